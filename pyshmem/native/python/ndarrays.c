#include "ndarrays.h"

#include "methods.h"

static struct {
    PyTypeObject *type, *integer; /* numpy.ndarray, numpy.integer */
    PyObject *kinds;              /* by dtype: DLPack's code * NDARRAY_CODE + bytes of an element */
} ndarrays;

/* use_ndarrays(capsule, type, integer, kinds) -> whether arrays of NumPy are read here: not if its binary interface is
 * a later one. capsule: NumPy's table of functions, of which the first returns the number of the interface. */
static PyObject *py_use_ndarrays(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    unsigned (**table)(void) = arity("use_ndarrays", n, 4) ? PyCapsule_GetPointer(args[0], NULL) : NULL;
    if (!table) return NULL;
    unsigned interface = table[0]() >> 24;
    if (interface != 1 && interface != 2) Py_RETURN_FALSE;
    for (int i = 1; i < 4; i++) Py_INCREF(args[i]); /* for as long as the process runs */
    ndarrays.type = (PyTypeObject *)args[1];
    ndarrays.integer = (PyTypeObject *)args[2];
    ndarrays.kinds = args[3];
    Py_RETURN_TRUE;
}

/* The array's code * NDARRAY_CODE + bytes of an element, and its number of elements. Returns 0 without an exception for
 * other objects, and for arrays that are empty, not C-contiguous or not aligned, or of another type of element, such as
 * swapped bytes. */
INTERNAL uint64_t read_ndarray(PyObject *o, uint64_t *nelems) {
    uint64_t kind;
    if (!ndarrays.type || !PyObject_TypeCheck(o, ndarrays.type)) return 0;
    const ndarray_t *a = (ndarray_t *)o;
    if (~a->flags & (NDARRAY_C_CONTIGUOUS | NDARRAY_ALIGNED)) return 0;
    PyObject *found = PyDict_GetItemWithError(ndarrays.kinds, a->dtype);
    if (!found || !to_u64(found, &kind)) {
        PyErr_Clear();
        return 0;
    }
    *nelems = 1;
    for (int i = 0; i < a->ndim; i++) *nelems *= (uint64_t)a->shape[i];
    return *nelems ? kind : 0;
}

/* Returns an int of Python or NumPy as one of Python, a new reference; NULL without an exception for other objects,
 * such as a bool. */
INTERNAL PyObject *as_int(PyObject *o) {
    if (!PyLong_CheckExact(o)) {
        PyObject *number = ndarrays.integer && PyObject_TypeCheck(o, ndarrays.integer) ? PyNumber_Index(o) : NULL;
        PyErr_Clear();
        return number;
    }
    Py_INCREF(o);
    return o;
}

/* Reads a number of elements. Returns 0 without an exception if it is none. */
INTERNAL int to_count(PyObject *o, uint64_t *out) {
    PyObject *number = as_int(o);
    int done = number && to_u64(number, out);
    Py_XDECREF(number);
    PyErr_Clear();
    return done;
}

INTERNAL PyMethodDef *ndarray_methods(void) {
    static PyMethodDef all[] = {METHOD(use_ndarrays), LAST_METHOD};
    return all;
}
