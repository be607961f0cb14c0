/* Requests of far PEs on the GPU heap (far/execute_gpu.h): Python opens what they use. */
#include "../far/execute_gpu.h"
#include "conversions.h"
#include "methods.h"

/* far_open_gpu(base, length, is_hip, attach, device, relax, copy, query, stream, staging, scratch, plans) -> the
 * driver's code: from now on the service executes requests on GPU memory. attach to query: addresses of driver
 * functions. plans: HEADs of plans of launch_prepared. */
static PyObject *py_far_open_gpu(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t number[11];
    char *plans;
    Py_ssize_t length;
    if (!arity("far_open_gpu", n, 12) || PyBytes_AsStringAndSize(args[11], &plans, &length)) return NULL;
    for (int i = 0; i < 11; i++)
        if (!to_u64(args[i], &number[i])) return NULL;
    if (!far || !far->server || far->gpu || length != PLANS * HEAD * sizeof(uint64_t)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "no service runs, or it has GPU memory already, or plans have a wrong size");
        return NULL;
    }
    gpu_memory_t memory = {.base = (char *)number[0],
                           .length = number[1],
                           .is_hip = (int)number[2],
                           .attach = number[3],
                           .device = number[4],
                           .relax = number[5],
                           .copy = number[6],
                           .query = number[7],
                           .stream = number[8],
                           .staging = (char *)number[9],
                           .scratch = number[10]};
    int code = 0, error;
    Py_BEGIN_ALLOW_THREADS
    error = gpu_open(&memory, (const uint64_t *)plans, &code);
    Py_END_ALLOW_THREADS
    errno = error;
    if (error) return error == ENOMEM ? PyErr_NoMemory() : PyErr_SetFromErrno(PyExc_OSError);
    return PyLong_FromLong(code);
}

/* far_extend_gpu(length): the heap has grown. */
static PyObject *py_far_extend_gpu(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t length;
    if (!arity("far_extend_gpu", n, 1) || !to_u64(args[0], &length)) return NULL;
    gpu_extend(length);
    Py_RETURN_NONE;
}

INTERNAL PyMethodDef *far_gpu_methods(void) {
    static PyMethodDef all[] = {METHOD(far_open_gpu), METHOD(far_extend_gpu), LAST_METHOD};
    return all;
}
