/* Tensors as arguments: one call reads address, size and type, by the C functions of DLPack's exchange table
 * (DLPack 1.3), which torch.Tensor provides. Reading them as attributes takes longer than the operation itself. */
#pragma once
#include <stdlib.h>

#include "_activity.h"
#include "_conversions.h"

typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor_t;

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

/* A view describes a heap: (reader, torch.Tensor, base, starts, ends, device type, device, heap, deltas, near, far
 * deltas, far), see pyshmem.runtime.heap. near is the route to the PEs with mapped heaps, far that to the others, see
 * pyshmem.transport. */
typedef struct {
    uint64_t base;
    PyObject *starts, *ends, *heap, *deltas, *near, *far_deltas, *far;
} view_t;
typedef struct {
    uint64_t address, nbytes, item;
    int32_t device_type, device;
    uint8_t code;
} operand_t;

/* Reads a torch.Tensor and returns 1. Returns 0 without an exception for any other object. All views have the same
 * reader and type. */
static int read_dlpack(PyObject *views, PyObject *o, dl_tensor_t *t) {
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

/* As read_dlpack. Returns 0 also for empty tensors, and for complex numbers, which may be lazily conjugated. */
static int read_tensor(PyObject *views, PyObject *o, operand_t *out, int contiguous) {
    dl_tensor_t t;
    if (!read_dlpack(views, o, &t) || t.code == DL_COMPLEX || t.lanes != 1 || t.bits % 8) return 0;
    int64_t count = 1;
    for (int32_t i = t.ndim - 1; i >= 0; i--) {
        if (contiguous && t.shape[i] != 1 && t.strides && t.strides[i] != count) return 0;
        count *= t.shape[i];
    }
    *out = (operand_t){
        (uint64_t)t.data + t.byte_offset, (uint64_t)count * t.bits / 8, t.bits / 8, t.device_type, t.device_id, t.code};
    return count > 0;
}

/* Reads a plain tensor: one that is contiguous and not empty. */
static int read_plain(PyObject *views, PyObject *o, operand_t *out) { return read_tensor(views, o, out, 1); }

/* Finds the heap in the operand's kind of memory. Returns 0 if none is open. */
static int find_view(PyObject *views, const operand_t *t, view_t *v) {
    for (Py_ssize_t i = 0; i < PyList_Size(views); i++) {
        PyObject *view = PyList_GetItem(views, i);
        if (PyLong_AsLong(PyTuple_GetItem(view, 5)) != t->device_type ||
            PyLong_AsLong(PyTuple_GetItem(view, 6)) != t->device)
            continue;
        v->starts = PyTuple_GetItem(view, 3);
        v->ends = PyTuple_GetItem(view, 4);
        v->heap = PyTuple_GetItem(view, 7);
        v->deltas = PyTuple_GetItem(view, 8);
        v->near = PyTuple_GetItem(view, 9);
        v->far_deltas = PyTuple_GetItem(view, 10);
        v->far = PyTuple_GetItem(view, 11);
        return to_u64(PyTuple_GetItem(view, 2), &v->base);
    }
    return 0;
}

/* Whether the bytes lie in one live allocation. starts and ends are those of pyshmem.runtime.allocator. */
static int is_live(const view_t *v, uint64_t address, uint64_t nbytes) {
    long long offset = (long long)(address - v->base);
    Py_ssize_t low = 0, high = PyList_Size(v->starts);
    while (high - low > 1) {
        Py_ssize_t middle = (low + high) / 2;
        if (PyLong_AsLongLong(PyList_GetItem(v->starts, middle)) <= offset)
            low = middle;
        else
            high = middle;
    }
    return offset + (long long)nbytes <= PyLong_AsLongLong(PyList_GetItem(v->ends, low));
}

/* Whether a tensor of one element is lazily negated, as z.conj().imag is: it is contiguous, but its memory is not its
 * value. */
static int is_lazily_negated(PyObject *o, const operand_t *t) {
    if (t->code != DL_FLOAT || t->nbytes != t->item) return 0;
    PyObject *answer = PyObject_CallMethod(o, "is_neg", NULL);
    int negated = answer != Py_False;
    Py_XDECREF(answer);
    PyErr_Clear();
    return negated;
}

/* Whether an object is an integer and no bool. A bool of NumPy before 2.3 has an index. */
static int is_integer(PyObject *o) {
    if (PyLong_CheckExact(o)) return 1;
    if (!PyIndex_Check(o) || PyBool_Check(o)) return 0;
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(o), "__name__");
    int boolean =
        !name || !PyUnicode_CompareWithASCIIString(name, "bool") || !PyUnicode_CompareWithASCIIString(name, "bool_");
    Py_XDECREF(name);
    PyErr_Clear();
    return !boolean;
}

/* Translates an address of this PE to pe, and returns the route there. Returns NULL without an exception if there is
 * none, or if pe is no integer: a dictionary finds 1.0 and True where it has 1. */
static PyObject *move_to(const view_t *v, PyObject *pe, uint64_t *address) {
    int64_t delta;
    if (!is_integer(pe)) return NULL;
    PyObject *route = v->near, *found = PyDict_GetItemWithError(v->deltas, pe);
    if (!found && !PyErr_Occurred()) {
        route = v->far;
        found = PyDict_GetItemWithError(v->far_deltas, pe);
    }
    if (!found || !to_i64(found, &delta)) {
        PyErr_Clear();
        return NULL;
    }
    *address += (uint64_t)delta;
    return route;
}

/* Whether both are plain tensors of one type, in a kind of memory that has a heap. */
static int pair_of_one_kind(PyObject *views, PyObject *const *arrays, operand_t *dest, operand_t *source, view_t *v) {
    view_t other;
    return read_plain(views, arrays[0], dest) && read_plain(views, arrays[1], source) && dest->code == source->code &&
           dest->item == source->item && find_view(views, dest, v) && find_view(views, source, &other) &&
           v->heap == other.heap && !is_lazily_negated(arrays[0], dest) && !is_lazily_negated(arrays[1], source);
}

static int plain_pair(PyObject *views, PyObject *const *arrays, operand_t *dest, operand_t *source, view_t *v) {
    return pair_of_one_kind(views, arrays, dest, source, v) && is_live(v, dest->address, dest->nbytes) &&
           is_live(v, source->address, source->nbytes);
}

/* What locate and locate_word have found last in this thread, for an event of _events.h. found: 1 for data, 2 for a
 * word, whose place is in bytes from its heap's start. wants_located: whether somebody reads it. */
static int wants_located;
static _Thread_local struct {
    uint64_t nbytes, place;
    int found, far, on_gpu;
} located;

static PyObject *tuple_of(PyObject *heap, int n, const uint64_t *values) {
    PyObject *result = PyTuple_New(n + 1);
    if (!result) return NULL;
    Py_INCREF(heap);
    PyTuple_SetItem(result, 0, heap);
    for (int i = 0; result && i < n; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(values[i]);
        if (!value || PyTuple_SetItem(result, i + 1, value)) Py_CLEAR(result);
    }
    return result;
}

/* locate(views, symmetric, private, size[, pe]) -> (heap, address of symmetric on this PE, address of private, bytes);
 * with pe (route, address of symmetric on pe, ...). Returns None unless both are plain, large enough, of one type and
 * in one kind of memory, symmetric is live and there is a route to pe: the caller then takes the slow path, which finds
 * any error. */
static PyObject *py_locate(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    view_t v;
    operand_t symmetric, private;
    if (n != 4 && !arity("locate", n, 5)) return NULL;
    if (!read_plain(args[0], args[1], &symmetric) || !read_plain(args[0], args[2], &private)) Py_RETURN_NONE;
    uint64_t nbytes = private.nbytes, count;
    if (args[3] != Py_None) {
        if (!PyLong_CheckExact(args[3]) || !to_u64(args[3], &count)) {
            PyErr_Clear();
            Py_RETURN_NONE;
        }
        if (count == 0 || count > private.nbytes / private.item) Py_RETURN_NONE;
        nbytes = count * private.item;
    }
    if (symmetric.code != private.code || symmetric.item != private.item || nbytes > symmetric.nbytes) Py_RETURN_NONE;
    if (symmetric.device_type != private.device_type || symmetric.device != private.device ||
        is_lazily_negated(args[2], &private))
        Py_RETURN_NONE;
    if (!find_view(args[0], &symmetric, &v) || !is_live(&v, symmetric.address, nbytes)) Py_RETURN_NONE;
    PyObject *route = n == 5 ? move_to(&v, args[4], &symmetric.address) : v.heap;
    if (!route) Py_RETURN_NONE;
    if (n == 5) count_call(route == v.far, nbytes);
    if (wants_located) located.nbytes = nbytes, located.far = route == v.far, located.found |= 1;
    return tuple_of(route, 3, (uint64_t[]){symmetric.address, private.address, nbytes});
}

/* locate_word(views, target[, pe]) -> (heap, address on this PE, kind); with pe (route, address on pe, kind). Returns
 * None unless target is a plain, live tensor of one element. kind is DLPack's type code * 16 + bytes. */
static PyObject *py_locate_word(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    view_t v;
    operand_t symmetric;
    if (n != 2 && !arity("locate_word", n, 3)) return NULL;
    if (!read_plain(args[0], args[1], &symmetric) || symmetric.nbytes != symmetric.item) Py_RETURN_NONE;
    if (!find_view(args[0], &symmetric, &v) || !is_live(&v, symmetric.address, symmetric.nbytes)) Py_RETURN_NONE;
    uint64_t here = symmetric.address;
    PyObject *route = n == 3 ? move_to(&v, args[2], &symmetric.address) : v.heap;
    if (!route) Py_RETURN_NONE;
    if (n == 3) count_call(route == v.far, symmetric.item);
    if (wants_located) {
        if (!located.found) located.nbytes = symmetric.item;
        located.place = here - v.base, located.on_gpu = symmetric.device_type != 1;
        located.far = route == v.far, located.found |= 2;
    }
    return tuple_of(route, 2, (uint64_t[]){symmetric.address, symmetric.code * UINT64_C(16) + symmetric.item});
}

typedef struct {
    dl_tensor_t tensor;
    void *context;
    void (*deleter)(void *);
    int64_t extent;
} dl_managed_t;

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

/* locate_pair(views, target, source) -> (heap, address of target, address of source, elements of target, elements of
 * source, kind) if plain_pair holds, else None. kind is that of locate_word. */
static PyObject *py_locate_pair(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    view_t v;
    operand_t dest, source;
    if (!arity("locate_pair", n, 3)) return NULL;
    if (!plain_pair(args[0], args + 1, &dest, &source, &v)) Py_RETURN_NONE;
    return Py_BuildValue("OKKKKK", v.heap, dest.address, source.address, dest.nbytes / dest.item,
                         source.nbytes / source.item, dest.code * UINT64_C(16) + dest.item);
}

static PyMethodDef tensor_methods[] = {METHOD(tensor_reader), METHOD(locate),   METHOD(locate_word),
                                       METHOD(locate_pair),   METHOD(bytes_at), LAST_METHOD};
