/* Waits for words in CPU memory, and tests of them. */
#pragma once
#include <sched.h>
#include <time.h>

#include "_conversions.h"

#if defined(__x86_64__) || defined(__i386__)
#define CPU_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define CPU_RELAX() __asm__ volatile("yield")
#else
#define CPU_RELAX() __asm__ volatile("" ::: "memory")
#endif

/* If `spins` is at most this number, PEs share cores: see pyshmem.runtime.job. */
enum { CROWDED = 100 };

enum { EQ, NE, GT, GE, LT, LE };
#define COMPARE(T)                                                                                \
    /* an acquire: data that precede the store seen are readable after it */                      \
    static inline T##_t look_##T(const T##_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); } \
    static inline int holds_##T(T##_t seen, int cmp, T##_t v) {                                   \
        switch (cmp) {                                                                            \
        case EQ: return seen == v;                                                                \
        case NE: return seen != v;                                                                \
        case GT: return seen > v;                                                                 \
        case GE: return seen >= v;                                                                \
        case LT: return seen < v;                                                                 \
        default: return seen <= v;                                                                \
        }                                                                                         \
    }
#define POLLED(X) X(int16) X(uint16) X(int32) X(uint32) X(int64) X(uint64)
POLLED(COMPARE)

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* The state of a spinning wait. spins: the polls before the first yield, many if each PE has a core of its own, and few
 * if PEs share cores, because the other PE may need this core. */
typedef struct {
    uint64_t polls, spins;
    int64_t started, checked, limit;
    int failed;
} spin_t;

static spin_t spin_begin(double timeout, uint64_t spins) {
    return (spin_t){0, spins, 0, 0, timeout > 0 ? (int64_t)(timeout * 1e9) : 0, 0};
}

/* Returns 0 if the wait must stop: it timed out or a signal handler raised an exception, and `failed` tells which.
 * Called without the GIL; takes it every 20 ms, so that Ctrl-C and other signal handlers run. */
static int spin_check(spin_t *s, PyThreadState **released) {
    int64_t now = now_ns();
    if (!s->started) {
        s->started = s->checked = now;
        return 1;
    }
    if (s->limit && now - s->started > s->limit) {
        s->failed = 1;
        return 0;
    }
    if (now - s->checked < 20000000) return 1;
    s->checked = now;
    PyEval_RestoreThread(*released);
    s->failed = PyErr_CheckSignals() ? 2 : 0;
    *released = PyEval_SaveThread();
    return !s->failed;
}

/* Waits for a moment. Returns 0 if the wait must stop, as spin_check does. */
static int spin_pause(spin_t *s, PyThreadState **released) {
    if (++s->polls <= s->spins) {
        CPU_RELAX();
        return 1;
    }
    uint64_t yields = s->polls - s->spins;
    if (yields < 256 || s->spins > CROWDED) {
        sched_yield();
        if (yields & 15) return 1;
    } else {
        struct timespec t = {0, yields < 1024 ? 20000 : 200000};
        nanosleep(&t, NULL);
    }
    return spin_check(s, released);
}

static PyObject *spin_error(const spin_t *s) {
    if (s->failed == 1) PyErr_SetNone(PyExc_TimeoutError);
    return NULL;
}

static int wait_args(PyObject *const *args, int64_t *cmp, double *timeout, uint64_t *spins, PyObject *t, PyObject *s) {
    return to_i64(args[1], cmp) && to_f64(t, timeout) && to_u64(s, spins);
}

/* test(addr, cmp, value) -> bool;  wait(addr, cmp, value, timeout, spins) -> the value seen;
 * wait_any(addr, count, cmp, value, status_addr, first, timeout, spins) -> index, polling cyclically from `first` so
 * that no index starves; value is one for all, or (address,) of as many; status_addr (int32 each, not 0 excludes) may
 * be 0; without the last two arguments it does not wait, and returns -1 if there is none. */
#define WAITS(T)                                                                                                      \
    static PyObject *py_test_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                               \
        (void)self;                                                                                                   \
        uint64_t addr;                                                                                                \
        int64_t cmp;                                                                                                  \
        T##_t v;                                                                                                      \
        if (!arity("test_" #T, n, 3) || !to_u64(args[0], &addr) || !to_i64(args[1], &cmp) || !to_##T(args[2], &v))    \
            return NULL;                                                                                              \
        return PyBool_FromLong(holds_##T(look_##T((T##_t *)addr), (int)cmp, v));                                      \
    }                                                                                                                 \
    static PyObject *py_wait_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                               \
        (void)self;                                                                                                   \
        uint64_t addr, spins;                                                                                         \
        int64_t cmp;                                                                                                  \
        double timeout;                                                                                               \
        T##_t v;                                                                                                      \
        if (!arity("wait_" #T, n, 5) || !to_u64(args[0], &addr) ||                                                    \
            !wait_args(args, &cmp, &timeout, &spins, args[3], args[4]) || !to_##T(args[2], &v))                       \
            return NULL;                                                                                              \
        T##_t *p = (T##_t *)addr,                                                                                     \
              seen = look_##T(p); /* the value compared is the one returned: the word may change again */             \
        if (!holds_##T(seen, (int)cmp, v)) {                                                                          \
            spin_t s = spin_begin(timeout, spins);                                                                    \
            PyThreadState *released = PyEval_SaveThread();                                                            \
            while (!holds_##T(seen = look_##T(p), (int)cmp, v) && spin_pause(&s, &released)) {}                       \
            PyEval_RestoreThread(released);                                                                           \
            if (s.failed) return spin_error(&s);                                                                      \
        }                                                                                                             \
        return from_##T(seen);                                                                                        \
    }                                                                                                                 \
    static int64_t find_##T(const T##_t *p, uint64_t count, int cmp, const T##_t *v, int each, const int32_t *status, \
                            uint64_t first) {                                                                         \
        for (uint64_t k = 0, i = first; k < count; k++, i = i + 1 < count ? i + 1 : 0)                                \
            if (!(status && status[i]) && holds_##T(look_##T(p + i), cmp, v[each ? i : 0])) return (int64_t)i;        \
        return -1;                                                                                                    \
    }                                                                                                                 \
    static PyObject *py_wait_any_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                           \
        (void)self;                                                                                                   \
        uint64_t addr, count, status, first, spins = 0;                                                               \
        int64_t cmp, found;                                                                                           \
        double timeout = 0;                                                                                           \
        T##_t one, *v = &one;                                                                                         \
        int each = n > 3 && PyTuple_Check(args[3]);                                                                   \
        if (n != 6 && !arity("wait_any_" #T, n, 8)) return NULL;                                                      \
        if (!to_u64(args[0], &addr) || !to_u64(args[1], &count) || !to_i64(args[2], &cmp) ||                          \
            !(each ? to_u64(PyTuple_GetItem(args[3], 0), (uint64_t *)&v) : to_##T(args[3], &one)) ||                  \
            !to_u64(args[4], &status) || !to_u64(args[5], &first))                                                    \
            return NULL;                                                                                              \
        if (n == 8 && (!to_f64(args[6], &timeout) || !to_u64(args[7], &spins))) return NULL;                          \
        T##_t *p = (T##_t *)addr;                                                                                     \
        found = find_##T(p, count, (int)cmp, v, each, (int32_t *)status, first);                                      \
        if (found < 0 && n == 8) {                                                                                    \
            spin_t s = spin_begin(timeout, spins);                                                                    \
            PyThreadState *released = PyEval_SaveThread();                                                            \
            while ((found = find_##T(p, count, (int)cmp, v, each, (int32_t *)status, first)) < 0 &&                   \
                   spin_pause(&s, &released)) {}                                                                      \
            PyEval_RestoreThread(released);                                                                           \
            if (s.failed) return spin_error(&s);                                                                      \
        }                                                                                                             \
        return PyLong_FromLongLong(found);                                                                            \
    }
POLLED(WAITS)

#define WAIT_METHODS(T) METHOD(test_##T), METHOD(wait_##T), METHOD(wait_any_##T),
static PyMethodDef wait_methods[] = {POLLED(WAIT_METHODS) LAST_METHOD};
