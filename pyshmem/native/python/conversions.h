/* What all parts of _native stand on: Python's numbers as C's, and rows of the tables of methods, of which each part
 * has one. Addresses and byte strides are passed as integers; the callers have checked every address. */
#pragma once
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "../base/internal.h"
#include "../base/word.h" /* float64_t, float32_t */

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL}
#define METHOD_NO_ARGUMENTS(name) {#name, py_##name, METH_NOARGS, NULL}
#define LAST_METHOD {NULL, NULL, 0, NULL}

INTERNAL int arity(const char *name, Py_ssize_t got, Py_ssize_t want);
INTERNAL int to_u64(PyObject *o, uint64_t *out);
INTERNAL int to_i64(PyObject *o, int64_t *out);
INTERNAL int to_f64(PyObject *o, double *out);

#define CONVERTED(X) X(int16) X(uint16) X(int32) X(uint32) X(int64) X(uint64) X(float32) X(float64)
#define DECLARE_CONVERSIONS(T)                    \
    INTERNAL int to_##T(PyObject *o, T##_t *out); \
    INTERNAL PyObject *from_##T(T##_t v);
CONVERTED(DECLARE_CONVERSIONS)

INTERNAL int add_names(PyObject *table, const char *key, const char *const *names);
