/* Kernel calls with Python arguments, which select the compiled variant and are converted to words. */
#include "launch.h"
#include "methods.h"

/* The address of a complex tensor, or of an array that read_tensor does not support, and (type, whether it is aligned).
 */
static PyObject *specialised_array(PyObject *value, uint64_t *address) {
    PyObject *place = PyObject_CallMethod(value, "data_ptr", NULL);
    PyObject *dtype = place && to_u64(place, address) ? PyObject_GetAttrString(value, "dtype") : NULL;
    PyObject *kind = dtype ? PyTuple_Pack(2, dtype, *address % 16 ? Py_False : Py_True) : NULL;
    Py_XDECREF(place);
    Py_XDECREF(dtype);
    return kind;
}

static PyObject *specialised_fields(PyObject *views, PyObject *fields);

/* Returns an object that is equal for two arguments for which Triton uses the same variant. For an int it tells the
 * properties that Triton specialises for; for a tensor it is a number from 256 on that tells type and alignment. A
 * tuple stands for itself, or if deep for what its fields tell. NULL: an exception. */
static PyObject *specialised(PyObject *views, PyObject *value, int constant, int deep, uint64_t *address) {
    operand_t tensor;
    /* the type is included because 1, 1.0 and True are equal */ if (constant)
        return PyTuple_Pack(2, (PyObject *)Py_TYPE(value), value);
    if (PyLong_CheckExact(value)) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow)
            return PyLong_FromLong(8 + 16 * (overflow > 0) + 2 * !(PyLong_AsUnsignedLongLongMask(value) % 16));
        return PyLong_FromLong((number == 1) + 2 * !(number % 16) + 4 * (number == (int32_t)number));
    }
    if (read_tensor(views, value, &tensor, 0) && tensor.code != DL_COMPLEX) {
        *address = tensor.address;
        return PyLong_FromLong(256 + 2 * (long)(tensor.code * 16 + tensor.item) + !(tensor.address % 16));
    }
    if (deep && PyTuple_Check(value)) return specialised_fields(views, value);
    if (PyBool_Check(value) || PyFloat_CheckExact(value))
        value = (PyObject *)Py_TYPE(value);
    else if (PyObject_HasAttrString(value, "data_ptr"))
        return specialised_array(value, address);
    Py_INCREF(value); /* a device context, or None */
    return value;
}

/* Returns (type of the tuple, what each field tells). NULL: an exception. */
static PyObject *specialised_fields(PyObject *views, PyObject *fields) {
    uint64_t address;
    Py_ssize_t count = PyTuple_Size(fields);
    PyObject *found = PyTuple_New(count + 1);
    if (!found) return NULL;
    Py_INCREF(Py_TYPE(fields));
    PyTuple_SetItem(found, 0, (PyObject *)Py_TYPE(fields));
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *kind = specialised(views, PyTuple_GetItem(fields, i), 0, 1, &address);
        if (!kind) {
            Py_DECREF(found);
            return NULL;
        }
        PyTuple_SetItem(found, i + 1, kind);
    }
    return found;
}

/* Returns the key (options, kind of each argument). deep: as in specialised. NULL: an exception. */
static PyObject *key_of(PyObject *views, PyObject *options, PyObject *constants, PyObject *values, int deep,
                        uint64_t *addresses) {
    Py_ssize_t count = PyTuple_Size(values);
    PyObject *key = PyTuple_New(count + 1);
    if (!key) return NULL;
    Py_INCREF(options);
    PyTuple_SetItem(key, 0, options);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *constant = PyTuple_GetItem(constants, i);
        PyObject *kind =
            constant ? specialised(views, PyTuple_GetItem(values, i), constant == Py_True, deep, &addresses[i]) : NULL;
        if (!kind) {
            Py_DECREF(key);
            return NULL;
        }
        PyTuple_SetItem(key, i + 1, kind);
    }
    return key;
}

/* Converts value to words, and returns how many; -1: an exception, or too many words. */
static Py_ssize_t words_from(PyObject *value, int kind, PyObject *held, uint64_t address, uint64_t *words,
                             Py_ssize_t room) {
    char *bytes;
    Py_ssize_t length;
    if (kind == CONSTANT) return 0;
    if (kind == WORDS) {
        if (PyBytes_AsStringAndSize(held, &bytes, &length) || length / 8 > room) return -1;
        memcpy(words, bytes, (size_t)length);
        return length / 8;
    }
    if (room < 1) return -1;
    if (kind == FLOAT || kind == DOUBLE) {
        double number = PyFloat_AsDouble(value);
        float single = (float)number;
        *words = 0;
        memcpy(words, kind == FLOAT ? (void *)&single : (void *)&number, kind == FLOAT ? 4 : 8);
    } else
        *words = kind == POINTER && !PyLong_Check(value) ? address : PyLong_AsUnsignedLongLongMask(value);
    return PyErr_Occurred() ? -1 : 1;
}

/* kernel_key(views, options, constants, arguments) -> a key that is equal for arguments for which Triton uses the same
 * variant. It holds no tensor. */
static PyObject *py_kernel_key(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t addresses[MOST_WORDS];
    if (!arity("kernel_key", n, 4)) return NULL;
    if (PyTuple_Size(args[3]) > MOST_WORDS) {
        PyErr_Format(PyExc_TypeError, "a kernel takes up to %d arguments", MOST_WORDS);
        return NULL;
    }
    return key_of(args[0], args[1], args[2], args[3], 1, addresses);
}

/* layout(views, symmetric, *tensors) -> bytes that are equal for tensors of equal types, devices, shapes and strides,
 * which are alike in whether their addresses are multiples of 16; and, for the first one, in whether it lies in one
 * live allocation. None stands for no tensor. Returns None if one of them is anything else. */
static PyObject *py_layout(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    enum { MOST = 6, DIMENSIONS = 4, WORDS_EACH = 2 + 2 * DIMENSIONS };
    int64_t words[MOST * WORDS_EACH] = {0};
    Py_ssize_t used = 0;
    if (n < 2 || n > 1 + MOST) {
        PyErr_Format(PyExc_TypeError, "layout takes views and up to %d tensors", MOST);
        return NULL;
    }
    for (Py_ssize_t i = 1; i < n; i++, used++) {
        dl_tensor_t t;
        view_t view;
        if (args[i] == Py_None) continue; /* a word of 0 */
        if (!read_dlpack(args[0], args[i], &t) || t.ndim > DIMENSIONS || !t.strides) Py_RETURN_NONE;
        uint64_t address = (uint64_t)t.data + t.byte_offset, count = 1;
        int64_t *kind = &words[used];
        for (int32_t j = 0; j < t.ndim; j++, used += 2) {
            words[used + 2] = t.shape[j];
            words[used + 3] = t.strides[j];
            count *= (uint64_t)t.shape[j];
        }
        operand_t own = {address, count * t.bits / 8, t.bits / 8, t.device_type, t.device_id, t.code, 0, 0};
        int live = i == 1 && find_view(args[0], &own, &view) && is_live(&view, address, own.nbytes);
        kind[0] = 1 + 2 * live + 4 * (address % 16 == 0) + 8 * t.ndim + ((int64_t)t.code << 8) +
                  ((int64_t)t.bits << 16) + ((int64_t)t.lanes << 32);
        kind[1] = t.device_type + ((int64_t)t.device_id << 32);
        used++;
    }
    return PyBytes_FromStringAndSize((char *)words, used * (Py_ssize_t)sizeof *words);
}

/* call_kernel(views, known, options, constants, grid, stream, arguments) -> the result of launch_prepared if known
 * contains the key of the arguments, in which a tuple stands for itself; otherwise the key. known: by key, (the HEAD of
 * a plan of launch_prepared with any grid, the kind of each argument as a byte, the words of each argument of kind
 * WORDS as bytes and None for the others). With None as the grid it launches nothing, and returns 0 if it would. */
static PyObject *py_call_kernel(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t addresses[MOST_WORDS], words[MOST_WORDS + 4] = {0}, head[HEAD], stream;
    char *plan, *kinds;
    Py_ssize_t used = 0, length, count;
    if (!arity("call_kernel", n, 7) || !to_u64(args[5], &stream) || (count = PyTuple_Size(args[6])) < 0) return NULL;
    if (count > MOST_WORDS) {
        PyErr_Format(PyExc_TypeError, "a kernel takes up to %d arguments", MOST_WORDS);
        return NULL;
    }
    PyObject *key = key_of(args[0], args[2], args[3], args[6], 0, addresses);
    if (!key) return NULL;
    PyObject *found = PyDict_GetItemWithError(args[1], key);
    if (!found && !PyErr_Occurred()) return key;
    Py_DECREF(key);
    if (found && args[4] == Py_None) return PyLong_FromLong(0);
    if (!found || PyBytes_AsStringAndSize(PyTuple_GetItem(found, 0), &plan, &length) ||
        PyBytes_AsStringAndSize(PyTuple_GetItem(found, 1), &kinds, &length))
        return NULL;
    memcpy(head, plan, sizeof head);
    for (Py_ssize_t i = 0; i < 3; i++)
        head[GRID_X + i] = i < PyTuple_Size(args[4]) ? PyLong_AsUnsignedLongLongMask(PyTuple_GetItem(args[4], i)) : 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *held = PyTuple_GetItem(PyTuple_GetItem(found, 2), i);
        Py_ssize_t more = held ? words_from(PyTuple_GetItem(args[6], i), kinds[i], held, addresses[i], words + used,
                                            MOST_WORDS - used)
                               : -1;
        if (more < 0 && !PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "call_kernel takes up to %d words", MOST_WORDS);
        if (more < 0) return NULL;
        used += more;
    }
    return PyErr_Occurred() ? NULL : enqueue_kernel(head, stream, words);
}

INTERNAL PyMethodDef *kernel_call_methods(void) {
    static PyMethodDef all[] = {METHOD(kernel_key), METHOD(layout), METHOD(call_kernel), LAST_METHOD};
    return all;
}
