#include "tensors.h"

#include "methods.h"

#include <stdlib.h>

typedef struct {
    struct {
        uint32_t major, minor;
    } version;
    void *older, *allocate, *to_managed, *from_managed;
    int (*read)(void *, dl_tensor_t *); /* a borrowed tensor, which need not be released */
} dl_exchange_t;

/* tensor_reader(capsule) -> the address of the function that reads a tensor; 0 if the version of the table is not
 * supported. */
static PyObject *py_tensor_reader(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    dl_exchange_t *table = arity("tensor_reader", n, 1) ? PyCapsule_GetPointer(args[0], "dlpack_exchange_api") : NULL;
    if (!table) return NULL;
    return PyLong_FromVoidPtr(table->version.major == 1 ? (void *)table->read : NULL);
}

/* Reads a torch.Tensor and returns 1. Returns 0 without an exception for any other object. views: as in locate.h;
 * all of them have the same reader and type. */
INTERNAL int read_dlpack(PyObject *views, PyObject *o, dl_tensor_t *t) {
    uint64_t reader;
    PyObject *first = PyList_GetItem(views, 0);
    if (!first || !to_u64(PyTuple_GetItem(first, 0), &reader) || !reader) {
        PyErr_Clear();
        return 0;
    }
    if (Py_TYPE(o) != (PyTypeObject *)PyTuple_GetItem(first, 1)) return 0;
    if (((int (*)(void *, dl_tensor_t *))reader)(o, t)) {
        PyErr_Clear();
        return 0;
    } /* DLPack has no such type */
    return 1;
}

/* As read_dlpack. Returns 0 also for empty tensors. */
INTERNAL int read_tensor(PyObject *views, PyObject *o, operand_t *out, int contiguous) {
    dl_tensor_t t;
    if (!read_dlpack(views, o, &t) || t.lanes != 1 || t.bits % 8) return 0;
    int64_t count = 1;
    for (int32_t i = t.ndim - 1; i >= 0; i--) {
        if (contiguous && t.shape[i] != 1 && t.strides && t.strides[i] != count) return 0;
        count *= t.shape[i];
    }
    *out = (operand_t){(uint64_t)t.data + t.byte_offset,
                       (uint64_t)count * t.bits / 8,
                       t.bits / 8,
                       t.device_type,
                       t.device_id,
                       t.code,
                       0,
                       0};
    return count > 0;
}

/* Whether a tensor answers a question by anything but False. */
static int answers(PyObject *o, const char *question) {
    PyObject *answer = PyObject_CallMethod(o, question, NULL);
    int yes = answer != Py_False;
    Py_XDECREF(answer);
    PyErr_Clear();
    return yes;
}

/* Reads a plain array: a tensor or NumPy array that is contiguous, not empty and not lazily conjugated. */
INTERNAL int read_plain(PyObject *views, PyObject *o, operand_t *out) {
    if (read_tensor(views, o, out, 1))
        return out->code != DL_COMPLEX || !(answers(o, "is_conj") || answers(o, "is_neg"));
    uint64_t nelems, kind = read_ndarray(o, &nelems);
    if (!kind) return 0;
    const ndarray_t *a = (ndarray_t *)o;
    uint64_t item = kind % NDARRAY_CODE;
    *out = (operand_t){(uint64_t)a->data,
                       nelems * item,
                       item,
                       ON_CPU,
                       0,
                       (uint8_t)(kind / NDARRAY_CODE),
                       1,
                       !(a->flags & NDARRAY_WRITABLE)};
    return 1;
}

/* Whether a tensor of one element is lazily negated, as z.conj().imag is: it is contiguous, but its memory is not its
 * value. */
INTERNAL int is_lazily_negated(PyObject *o, const operand_t *t) {
    return t->code == DL_FLOAT && t->nbytes == t->item && !t->is_ndarray && answers(o, "is_neg");
}

static void drop_capsule(PyObject *o) {
    free(PyCapsule_IsValid(o, "dltensor") ? PyCapsule_GetPointer(o, "dltensor") : NULL);
}

/* bytes_at(address, bytes, device type, device) -> a DLPack capsule of a uint8 tensor, which does not keep the memory
 * alive. */
static PyObject *py_bytes_at(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t address;
    int64_t nbytes;
    int32_t device_type, device;
    if (!arity("bytes_at", n, 4) || !to_u64(args[0], &address) || !to_i64(args[1], &nbytes) ||
        !to_int32(args[2], &device_type) || !to_int32(args[3], &device))
        return NULL;
    dl_managed_t *m = calloc(1, sizeof *m);
    if (!m) return PyErr_NoMemory();
    m->extent = nbytes;
    m->tensor = (dl_tensor_t){(void *)address, device_type, device, 1, DL_UINT, 8, 1, &m->extent, NULL, 0};
    m->deleter = free; /* the tensor is the first field, so it has the address of the allocation */
    return PyCapsule_New(m, "dltensor", drop_capsule);
}

INTERNAL PyMethodDef *tensor_methods(void) {
    static PyMethodDef all[] = {METHOD(tensor_reader), METHOD(bytes_at), LAST_METHOD};
    return all;
}
