/* Start and end of the server (far/life.h) for Python. */
#include "conversions.h" /* Python.h comes before all headers of the system */

#include <errno.h>

#include "../far/greeting.h"
#include "../far/life.h"
#include "far.h"
#include "methods.h"

/* Adds the PEs. Returns -1 for an exception. */
static int add_pes(far_t *f, PyObject *addresses, PyObject *hosts) {
    for (int pe = 0; pe < f->n_pes; pe++) {
        PyObject *address = PyTuple_GetItem(addresses, pe), *host_name = PyTuple_GetItem(hosts, pe);
        char *name = host_name ? PyBytes_AsString(host_name) : NULL, *text = NULL;
        Py_ssize_t length = 0;
        if (!address || !name || (address != Py_None && PyBytes_AsStringAndSize(address, &text, &length))) return -1;
        if (!far_add(f, pe, name, text, (size_t)length)) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

/* far_open(my_pe, n_pes, base, length, timeout, spins, job, token, listener, refuse, addresses, hosts): starts the
 * server. listener: a socket. refuse(routine, pe, errno) raises the error of a failed request. addresses: by PE, a
 * sockaddr as bytes, or None for near PEs. hosts: by PE, as bytes. */
static PyObject *py_far_open(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t number[7];
    double timeout;
    char *token;
    Py_ssize_t length;
    int64_t listener;
    if (!arity("far_open", n, 12) || !to_f64(args[4], &timeout) || !to_i64(args[8], &listener) ||
        PyBytes_AsStringAndSize(args[7], &token, &length))
        return NULL;
    for (int i = 0; i < 7; i++)
        if (i != 4 && !to_u64(args[i], &number[i])) return NULL;
    if (far || length != TOKEN) {
        PyErr_SetString(PyExc_RuntimeError, "a service runs already, or a token has a wrong size");
        return NULL;
    }
    far_t *f = far_new((int)number[0], (int)number[1], number[6], token);
    if (!f) return PyErr_NoMemory();
    f->base = (char *)number[2], f->length = number[3], f->spins = (int)number[5];
    f->limit = (int64_t)(timeout * 1e9);
    if (add_pes(f, args[10], args[11])) {
        far_free(f);
        return NULL;
    }
    int error = far_start(f, (int)listener);
    if (error) {
        far_free(f);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_XDECREF(refuse_request);
    Py_INCREF(refuse_request = args[9]);
    Py_RETURN_NONE;
}

/* far_leave(): the program has ended without finalize, and other PEs may end before this one does. */
static PyObject *py_far_leave(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    far_allow_ends();
    Py_RETURN_NONE;
}

/* far_close(): every PE has completed its requests. */
static PyObject *py_far_close(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    far_t *f = far;
    if (!f) Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS
    far_stop();
    Py_END_ALLOW_THREADS
    far = NULL;
    far_free(f);
    Py_CLEAR(refuse_request);
    Py_RETURN_NONE;
}

INTERNAL PyMethodDef *service_methods(void) {
    static PyMethodDef all[] = {METHOD(far_open), METHOD_NO_ARGUMENTS(far_leave), METHOD_NO_ARGUMENTS(far_close),
                                LAST_METHOD};
    return all;
}
