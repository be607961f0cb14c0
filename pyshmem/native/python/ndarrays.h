/* NumPy arrays as arguments, read where NumPy's own C programs read them: the fields of PyArrayObject are part of its
 * binary interface, the same in NumPy 1 and 2. The buffer protocol, and Python's attributes, take longer than a put. */
#pragma once
#include "conversions.h"

typedef struct {
    PyObject head;
    char *data;
    int ndim;
    Py_ssize_t *shape, *strides;
    PyObject *base, *dtype;
    int flags;
} ndarray_t;

enum { NDARRAY_C_CONTIGUOUS = 1, NDARRAY_ALIGNED = 0x100, NDARRAY_WRITABLE = 0x400, NDARRAY_CODE = 256 };
INTERNAL uint64_t read_ndarray(PyObject *o, uint64_t *nelems);
INTERNAL PyObject *as_int(PyObject *o);
INTERNAL int to_count(PyObject *o, uint64_t *out);
