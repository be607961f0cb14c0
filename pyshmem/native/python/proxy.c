/* The proxy thread (far/proxy.h) for Python. */
#include "conversions.h" /* Python.h comes before all headers of the system */

#include <errno.h>

#include "../far/proxy.h"
#include "far.h"
#include "methods.h"

/* proxy_open(ring, record, code): starts the proxy for the ring, whose words are 0. */
static PyObject *py_proxy_open(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t number[3];
    if (!words_of("proxy_open", args, n, 3, number)) return NULL;
    if (far->proxy) return PyErr_SetString(PyExc_RuntimeError, "a proxy runs already"), NULL;
    errno = proxy_open((char *)number[0], (int64_t *)number[1], (int64_t)number[2]);
    if (errno) return errno == ENOMEM ? PyErr_NoMemory() : PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

/* proxy_wake(): a kernel is about to be launched. proxy_drain(): the kernels have ended. proxy_stop(): their requests
 * are executed, and no more come. None does anything without a proxy. */
static PyObject *py_proxy_wake(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (far && far->proxy) proxy_wake(far->proxy);
    Py_RETURN_NONE;
}
static PyObject *py_proxy_drain(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (!far || !far->proxy) Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS
    proxy_drain();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
static PyObject *py_proxy_stop(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (!far || !far->proxy) Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS
    proxy_stop();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

INTERNAL PyMethodDef *proxy_methods(void) {
    static PyMethodDef all[] = {METHOD(proxy_open), METHOD_NO_ARGUMENTS(proxy_wake), METHOD_NO_ARGUMENTS(proxy_drain),
                                METHOD_NO_ARGUMENTS(proxy_stop), LAST_METHOD};
    return all;
}
