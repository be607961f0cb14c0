#include "far.h"

#include "methods.h"

/* Reads n arguments, which are unsigned integers. */
INTERNAL int words_of(const char *name, PyObject *const *args, Py_ssize_t n, Py_ssize_t want, uint64_t *words) {
    if (!arity(name, n, want)) return 0;
    for (Py_ssize_t i = 0; i < n; i++)
        if (!to_u64(args[i], &words[i])) return 0;
    if (!far) PyErr_SetString(PyExc_RuntimeError, "there are no far PEs");
    return far != NULL;
}
#define FAR_METHOD(NAME, ROUTINE, COUNT, CALL)                                        \
    static PyObject *py_##NAME(PyObject *self, PyObject *const *args, Py_ssize_t n) { \
        (void)self;                                                                   \
        uint64_t a[COUNT + 1];                                                        \
        if (!words_of(#NAME, args, n, COUNT, a)) return NULL;                         \
        caller_begin();                                                               \
        link_t *failed = CALL;                                                        \
        return far_result(caller.released, failed, ROUTINE);                          \
    }
FAR_METHOD(far_put, "put", 3, far_put(a[0], (char *)a[1], a[2]))
FAR_METHOD(far_get, "get", 3, far_get((char *)a[0], a[1], a[2], 1))
FAR_METHOD(far_get_nbi, "get_nbi", 3, far_get((char *)a[0], a[1], a[2], 0))
FAR_METHOD(far_put_strided, "iput", 6, far_put_strided(a[0], (char *)a[1], a[2], a[3], a[4], a[5]))
FAR_METHOD(far_get_strided, "iget", 6, far_get_strided((char *)a[0], a[1], a[2], a[3], a[4], a[5]))
FAR_METHOD(far_put_signal, "put_signal", 6, far_put_signal(a[0], (char *)a[1], a[2], a[3], (uint32_t)a[4], a[5]))
FAR_METHOD(far_quiet, "quiet", 0, far_quiet())
/* fabric_trial(place, ms, value) -> whether the provider has told the truth */
static PyObject *py_fabric_trial(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t a[4], verdict = 0;
    if (!words_of("fabric_trial", args, n, 3, a)) return NULL;
    caller_begin();
    link_t *failed = far_try(a[0], a[1], a[2], &verdict);
    PyObject *done = far_result(caller.released, failed, "init");
    if (!done) return NULL;
    Py_DECREF(done);
    return PyBool_FromLong(verdict != 0);
}

FAR_METHOD(far_fence, "fence", 0, far_fence())
FAR_METHOD(far_await, "get", 3, far_await(a[0], a[1], a[2]))

/* far_ask(dest, place, nbytes) -> the number of a request for data, which are in dest after far_await(place, number,
 * next). next: the number of a later request, or the same; if a handler raises an exception, the replies to both are
 * dropped. */
static PyObject *py_far_ask(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t a[4], number = 0;
    if (!words_of("far_ask", args, n, 3, a)) return NULL;
    caller_begin();
    link_t *failed =
        rma_takes(a[1], a[2]) ? rma_get((char *)a[0], a[1], a[2], 0) : far_ask((char *)a[0], a[1], a[2], &number);
    PyObject *done = far_result(caller.released, failed, "get");
    if (!done) return NULL;
    Py_DECREF(done);
    return PyLong_FromUnsignedLongLong(number);
}

/* far_quiet_pe(pe) */
FAR_METHOD(far_quiet_pe, "pe_quiet", 1, a[0] < (uint64_t)far->n_pes ? far_quiet_pe(a[0]) : NULL)

/* far_fetch_<type>(operator, place[, value]) -> the previous value, with (operator, place, cond, value) for a
 * compare-and-swap; far_update_<type>(operator, place, value) -> None. */
#define FAR_ATOMICS(T, B)                                                                                        \
    static PyObject *far_atomic_##T(PyObject *const *args, Py_ssize_t n, int fetches) {                          \
        uint64_t operator, place, old = 0;                                                                       \
        T##_t first = 0, second = 0;                                                                             \
        if (!far || n < 2 || n > 4) {                                                                            \
            PyErr_SetString(PyExc_TypeError, "far atomics take 2 to 4 arguments");                               \
            return NULL;                                                                                         \
        }                                                                                                        \
        if (!to_u64(args[0], &operator) || !to_u64(args[1], &place)) return NULL;                                \
        if ((n > 2 && !to_##T(args[2], &first)) || (n > 3 && !to_##T(args[3], &second))) return NULL;            \
        caller_begin();                                                                                          \
        link_t *failed = far_atomic(place, (uint32_t)operator * 16 + TYPE_##T, bits_##T(n > 3 ? second : first), \
                                    bits_##T(first), fetches ? &old : NULL, 1);                                  \
        PyObject *done = far_result(caller.released, failed, "atomic");                                          \
        if (!done || !fetches) return done;                                                                      \
        Py_DECREF(done);                                                                                         \
        return from_##T(value_##T((B##_t)old));                                                                  \
    }                                                                                                            \
    static PyObject *py_far_fetch_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                     \
        (void)self;                                                                                              \
        return far_atomic_##T(args, n, 1);                                                                       \
    }                                                                                                            \
    static PyObject *py_far_update_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                    \
        (void)self;                                                                                              \
        return far_atomic_##T(args, n, 0);                                                                       \
    }
ATOMIC_TYPES(FAR_ATOMICS)

#define FAR_ATOMIC_METHODS(T, B) METHOD(far_fetch_##T), METHOD(far_update_##T),
INTERNAL PyMethodDef *far_atomic_methods(void) {
    static PyMethodDef all[] = {ATOMIC_TYPES(FAR_ATOMIC_METHODS) LAST_METHOD};
    return all;
}
INTERNAL PyMethodDef *far_methods(void) {
    static PyMethodDef all[] = {
        METHOD(far_put),   METHOD(far_get),         METHOD(far_get_nbi),     METHOD(far_ask),
        METHOD(far_await), METHOD(far_put_strided), METHOD(far_get_strided), METHOD(far_put_signal),
        METHOD(far_quiet), METHOD(far_fence),       METHOD(fabric_trial),    METHOD(far_quiet_pe),
        LAST_METHOD,
    };
    return all;
}
