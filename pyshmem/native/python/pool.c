/* The pools of memory (base/pool.h) for Python. */
#include "../base/pool.h"
#include "methods.h"
#include "tensors.h"

/* pool_add(address, bytes, kind): this memory belongs to the pool of this kind from now on. */
static PyObject *py_pool_add(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t start, size;
    int32_t kind;
    if (!arity("pool_add", n, 3) || !to_u64(args[0], &start) || !to_u64(args[1], &size) || !to_int32(args[2], &kind))
        return NULL;
    if (!pool_add(start, size, kind)) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* pool_end(): no pool has memory any more. */
static PyObject *py_pool_end(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    pool_end();
    Py_RETURN_NONE;
}

/* pool_blocks(kind) -> [(address, bytes), ...] of the blocks that are used, sorted. A collection of garbage, which any
 * new object may begin, may free blocks: so none is made with the lock. */
static PyObject *py_pool_blocks(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    int32_t kind;
    if (!arity("pool_blocks", n, 1) || !to_int32(args[0], &kind)) return NULL;
    size_t count;
    uint64_t (*found)[2] = pool_blocks(kind, &count);
    PyObject *result = found ? PyList_New((Py_ssize_t)count) : PyErr_NoMemory();
    for (size_t i = 0; result && i < count; i++) {
        PyObject *row = Py_BuildValue("KK", found[i][0], found[i][1]);
        if (!row || PyList_SetItem(result, (Py_ssize_t)i, row)) Py_CLEAR(result);
    }
    free(found);
    return result;
}

static void drop_pooled(void *managed) {
    pool_give((uint64_t)((dl_managed_t *)managed)->tensor.data);
    free(managed);
}
static void drop_pooled_capsule(PyObject *o) {
    if (PyCapsule_IsValid(o, "dltensor")) drop_pooled(PyCapsule_GetPointer(o, "dltensor"));
}

/* pool_tensor(bytes) -> a DLPack capsule of a uint8 tensor in the pool of CPU memory, which gives its memory back when
 * it dies; None if there is no room. */
static PyObject *py_pool_tensor(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    int64_t nbytes;
    if (!arity("pool_tensor", n, 1) || !to_i64(args[0], &nbytes)) return NULL;
    dl_managed_t *m = calloc(1, sizeof *m);
    if (!m) return PyErr_NoMemory();
    m->extent = nbytes;
    m->tensor = (dl_tensor_t){pool_take(nbytes, POOL_CPU), 1, 0, 1, DL_UINT, 8, 1, &m->extent, NULL, 0};
    m->deleter = drop_pooled;
    if (m->tensor.data) return PyCapsule_New(m, "dltensor", drop_pooled_capsule);
    free(m);
    Py_RETURN_NONE;
}

INTERNAL PyMethodDef *pool_methods(void) {
    static PyMethodDef all[] = {METHOD(pool_add), METHOD_NO_ARGUMENTS(pool_end), METHOD(pool_blocks),
                                METHOD(pool_tensor), LAST_METHOD};
    return all;
}
