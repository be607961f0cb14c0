/* Python's copies between the parts of partitioned tensors (base/blocks.h). */
#include "../base/blocks.h"
#include "conversions.h"
#include "methods.h"

/* copy_blocks(to, from, plan, axes, past): plan has the axes, outermost first, each an axis_t and its runs. */
static PyObject *py_copy_blocks(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t to, from, axes, past;
    if (!arity("copy_blocks", n, 5) || !to_u64(args[0], &to) || !to_u64(args[1], &from) || !to_u64(args[3], &axes) ||
        !to_u64(args[4], &past))
        return NULL;
    const char *plan = PyBytes_AsString(args[2]);
    if (!plan) return NULL;
    Py_BEGIN_ALLOW_THREADS
    copy_blocks((char *)to, (const char *)from, (const axis_t *)plan, (int64_t)axes, (int)past);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

INTERNAL PyMethodDef *block_methods(void) {
    static PyMethodDef all[] = {METHOD(copy_blocks), LAST_METHOD};
    return all;
}
