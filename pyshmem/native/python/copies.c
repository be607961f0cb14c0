/* Calls on the CPU memory of near PEs: puts and gets are copies (base/copy.h). The same to far PEs: far.h. */
#include "../base/copy.h"
#include "methods.h"

static PyObject *py_copy(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t dst, src, nbytes;
    if (!arity("copy", n, 3) || !to_u64(args[0], &dst) || !to_u64(args[1], &src) || !to_u64(args[2], &nbytes))
        return NULL;
    if (nbytes < RELEASE_BYTES) {
        copy_item((char *)dst, (const char *)src, nbytes);
    } else {
        Py_BEGIN_ALLOW_THREADS
        memmove((char *)dst, (const char *)src, nbytes);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

/* copy_strided(dst, src, dst_step, src_step, item_bytes, count), with steps in bytes. */
static PyObject *py_copy_strided(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t dst, src, item, count;
    int64_t dst_step, src_step;
    if (!arity("copy_strided", n, 6) || !to_u64(args[0], &dst) || !to_u64(args[1], &src) ||
        !to_i64(args[2], &dst_step) || !to_i64(args[3], &src_step) || !to_u64(args[4], &item) ||
        !to_u64(args[5], &count))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (uint64_t i = 0; i < count; i++)
        copy_item((char *)dst + (int64_t)i * dst_step, (const char *)src + (int64_t)i * src_step, item);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_fence(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    Py_RETURN_NONE;
}

INTERNAL PyMethodDef *copy_methods(void) {
    static PyMethodDef all[] = {METHOD(copy), METHOD(copy_strided), METHOD_NO_ARGUMENTS(fence), LAST_METHOD};
    return all;
}
