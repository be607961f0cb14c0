#include "waits.h"

#include "methods.h"

/* What tells the user of a long wait, and the nanoseconds after which a wait is long. NULL: nothing tells. namer: says
 * in the page of counts.h which call waits. */
static PyObject *teller, *namer;
static int64_t long_wait;

/* Says which call waits, once for a wait, if somebody watches. Returns whether that failed. */
static int name_wait(void) {
    if (!namer || !activity->watched || activity->where[0]) return 0;
    PyObject *none = PyObject_CallNoArgs(namer);
    Py_XDECREF(none);
    return !none;
}

/* Takes the GIL, so that Ctrl-C and other signal handlers run, and tells of a long wait. s->with: the thread state of a
 * wait without the GIL. */
INTERNAL int handle_signals(spin_t *s) {
    PyThreadState **released = s->with;
    PyEval_RestoreThread(*released);
    int raised = PyErr_CheckSignals() != 0;
    if (!raised && teller && !s->told && s->checked - s->started > long_wait) {
        PyObject *none = PyObject_CallNoArgs(teller);
        s->told = 1;
        raised = !none;
        Py_XDECREF(none);
    }
    raised = raised || name_wait();
    *released = PyEval_SaveThread();
    return raised;
}

/* tell_of_waits(seconds, function): calls the function once in each wait that takes longer. 0 seconds: never. */
static PyObject *py_tell_of_waits(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    double seconds;
    if (!arity("tell_of_waits", n, 2) || !to_f64(args[0], &seconds)) return NULL;
    Py_CLEAR(teller);
    long_wait = (int64_t)(seconds * 1e9);
    if (seconds > 0) {
        Py_INCREF(args[1]);
        teller = args[1];
    }
    Py_RETURN_NONE;
}

/* count_in(address, function): counts in the page at this address, 0: in none; the function writes there which call
 * waits. */
static PyObject *py_count_in(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t address;
    if (!arity("count_in", n, 2) || !to_u64(args[0], &address)) return NULL;
    activity = address ? (activity_t *)address : &no_activity;
    Py_CLEAR(namer);
    if (address) Py_INCREF(namer = args[1]);
    Py_RETURN_NONE;
}

/* count_call(far, bytes): a call that neither locate nor locate_word has counted. */
static PyObject *py_count_call(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t nbytes;
    if (!arity("count_call", n, 2) || !to_u64(args[1], &nbytes)) return NULL;
    count_call(args[0] == Py_True, nbytes);
    Py_RETURN_NONE;
}

/* wait_goes_on(begins), wait_ends(): in each turn of a loop of Python's that waits, and at its end. */
static PyObject *py_wait_goes_on(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    if (!arity("wait_goes_on", n, 1)) return NULL;
    if (args[0] == Py_True) {
        count_wait(NULL);
    } else if (activity->watched) {
        if (!activity->since) activity->since = now_ns();
        if (now_ns() - activity->since > LONG_NS && name_wait()) return NULL;
    }
    Py_RETURN_NONE;
}
static PyObject *py_wait_ends(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    count_wait_end();
    Py_RETURN_NONE;
}

/* Releases the GIL for a wait, which then handles signals. */
INTERNAL void spin_without_gil(spin_t *s, PyThreadState **released) {
    s->interrupted = handle_signals;
    s->with = released;
    *released = PyEval_SaveThread();
}

INTERNAL PyObject *spin_error(const spin_t *s) {
    if (s->failed == 1) PyErr_SetNone(PyExc_TimeoutError);
    return NULL;
}

static int wait_args(PyObject *const *args, int64_t *cmp, double *timeout, uint64_t *spins, PyObject *t, PyObject *s) {
    return to_i64(args[1], cmp) && to_f64(t, timeout) && to_u64(s, spins);
}

/* test(addr, cmp, value) -> bool;  wait(addr, cmp, value, timeout, spins) -> the value seen;
 * wait_any(addr, count, cmp, value, status_addr, timeout, spins) -> index; value is one for all, or (address,) of as
 * many; status_addr (int32 each, not 0 excludes) may be 0; without the last two arguments it does not wait, and returns
 * -1 if there is none. */
#define WAITS(T)                                                                                                       \
    static PyObject *py_test_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                                \
        (void)self;                                                                                                    \
        uint64_t addr;                                                                                                 \
        int64_t cmp;                                                                                                   \
        T##_t v;                                                                                                       \
        if (!arity("test_" #T, n, 3) || !to_u64(args[0], &addr) || !to_i64(args[1], &cmp) || !to_##T(args[2], &v))     \
            return NULL;                                                                                               \
        return PyBool_FromLong(holds_##T(look_##T((T##_t *)addr), (int)cmp, v));                                       \
    }                                                                                                                  \
    static PyObject *py_wait_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                                \
        (void)self;                                                                                                    \
        uint64_t addr, spins;                                                                                          \
        int64_t cmp;                                                                                                   \
        double timeout;                                                                                                \
        T##_t v;                                                                                                       \
        if (!arity("wait_" #T, n, 5) || !to_u64(args[0], &addr) ||                                                     \
            !wait_args(args, &cmp, &timeout, &spins, args[3], args[4]) || !to_##T(args[2], &v))                        \
            return NULL;                                                                                               \
        T##_t *p = (T##_t *)addr,                                                                                      \
              seen = look_##T(p); /* the value compared is the one returned: the word may change again */              \
        if (!holds_##T(seen, (int)cmp, v)) {                                                                           \
            spin_t s = spin_begin(timeout, spins);                                                                     \
            PyThreadState *released;                                                                                   \
            spin_without_gil(&s, &released);                                                                           \
            while (!holds_##T(seen = look_##T(p), (int)cmp, v) && spin_pause(&s)) {}                                   \
            spin_end(&s);                                                                                              \
            PyEval_RestoreThread(released);                                                                            \
            if (s.failed) return spin_error(&s);                                                                       \
        }                                                                                                              \
        return from_##T(seen);                                                                                         \
    }                                                                                                                  \
    static PyObject *py_wait_any_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                            \
        (void)self;                                                                                                    \
        uint64_t addr, count, status, spins = 0;                                                                       \
        int64_t cmp, found;                                                                                            \
        double timeout = 0;                                                                                            \
        T##_t one, *v = &one;                                                                                          \
        int each = n > 3 && PyTuple_Check(args[3]);                                                                    \
        if (n != 5 && !arity("wait_any_" #T, n, 7)) return NULL;                                                       \
        if (!to_u64(args[0], &addr) || !to_u64(args[1], &count) || !to_i64(args[2], &cmp) ||                           \
            !(each ? to_u64(PyTuple_GetItem(args[3], 0), (uint64_t *)&v) : to_##T(args[3], &one)) ||                   \
            !to_u64(args[4], &status))                                                                                 \
            return NULL;                                                                                               \
        if (n == 7 && (!to_f64(args[5], &timeout) || !to_u64(args[6], &spins))) return NULL;                           \
        T##_t *p = (T##_t *)addr;                                                                                      \
        uint64_t first = next_first(count);                                                                            \
        found = find_##T(p, count, (int)cmp, v, each, (int32_t *)status, first);                                       \
        if (found < 0 && n == 7) {                                                                                     \
            spin_t s = spin_begin(timeout, spins);                                                                     \
            PyThreadState *released;                                                                                   \
            spin_without_gil(&s, &released);                                                                           \
            while ((found = find_##T(p, count, (int)cmp, v, each, (int32_t *)status, first)) < 0 && spin_pause(&s)) {} \
            spin_end(&s);                                                                                              \
            PyEval_RestoreThread(released);                                                                            \
            if (s.failed) return spin_error(&s);                                                                       \
        }                                                                                                              \
        return PyLong_FromLongLong(found);                                                                             \
    }
POLLED(WAITS)

#define WAIT_METHODS(T) METHOD(test_##T), METHOD(wait_##T), METHOD(wait_any_##T),
INTERNAL PyMethodDef *wait_methods(void) {
    static PyMethodDef all[] = {POLLED(WAIT_METHODS) METHOD(tell_of_waits),
                                METHOD(count_in),
                                METHOD(count_call),
                                METHOD(wait_goes_on),
                                METHOD_NO_ARGUMENTS(wait_ends),
                                LAST_METHOD};
    return all;
}
