#include "conversions.h"

INTERNAL int arity(const char *name, Py_ssize_t got, Py_ssize_t want) {
    if (got == want) return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", name, want, got);
    return 0;
}

/* ---- every number is a Python int or float; overflow is an error ---- */

INTERNAL int to_u64(PyObject *o, uint64_t *out) {
    *out = PyLong_AsUnsignedLongLong(o);
    return !(*out == UINT64_MAX && PyErr_Occurred());
}
INTERNAL int to_i64(PyObject *o, int64_t *out) {
    *out = PyLong_AsLongLong(o);
    return !(*out == -1 && PyErr_Occurred());
}
INTERNAL int to_f64(PyObject *o, double *out) {
    *out = PyFloat_AsDouble(o);
    return !(*out == -1.0 && PyErr_Occurred());
}

static int out_of_range(const char *type) {
    PyErr_Format(PyExc_OverflowError, "value does not fit %s", type);
    return 0;
}
#define NARROW(T, WIDE, TO)                        \
    INTERNAL int to_##T(PyObject *o, T##_t *out) { \
        WIDE w;                                    \
        if (!TO(o, &w)) return 0;                  \
        *out = (T##_t)w;                           \
        return *out == w || out_of_range(#T);      \
    }
NARROW(int16, int64_t, to_i64)
NARROW(int32, int64_t, to_i64)
NARROW(uint16, uint64_t, to_u64)
NARROW(uint32, uint64_t, to_u64)
INTERNAL int to_int64(PyObject *o, int64_t *out) { return to_i64(o, out); }
INTERNAL int to_uint64(PyObject *o, uint64_t *out) { return to_u64(o, out); }
INTERNAL int to_float64(PyObject *o, double *out) { return to_f64(o, out); }
INTERNAL int to_float32(PyObject *o, float *out) {
    double d;
    if (!to_f64(o, &d)) return 0;
    *out = (float)d;
    return 1;
}

INTERNAL PyObject *from_int16(int16_t v) { return PyLong_FromLong(v); }
INTERNAL PyObject *from_int32(int32_t v) { return PyLong_FromLong(v); }
INTERNAL PyObject *from_int64(int64_t v) { return PyLong_FromLongLong(v); }
INTERNAL PyObject *from_uint16(uint16_t v) { return PyLong_FromUnsignedLong(v); }
INTERNAL PyObject *from_uint32(uint32_t v) { return PyLong_FromUnsignedLong(v); }
INTERNAL PyObject *from_uint64(uint64_t v) { return PyLong_FromUnsignedLongLong(v); }
INTERNAL PyObject *from_float32(float v) { return PyFloat_FromDouble(v); }
INTERNAL PyObject *from_float64(double v) { return PyFloat_FromDouble(v); }

/* Adds (key: tuple of names) to a table that Python reads. names end with NULL. Returns -1 for an exception. */
INTERNAL int add_names(PyObject *table, const char *key, const char *const *names) {
    Py_ssize_t count = 0;
    while (names[count]) count++;
    PyObject *all = PyTuple_New(count);
    for (Py_ssize_t i = 0; all && i < count; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (!name || PyTuple_SetItem(all, i, name)) Py_CLEAR(all);
    }
    int failed = !all || PyDict_SetItemString(table, key, all);
    Py_XDECREF(all);
    return failed ? -1 : 0;
}
