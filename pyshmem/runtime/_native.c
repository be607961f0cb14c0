/* pyshmem.runtime._native: operations on CPU memory that Python lacks: atomics, waits that release the GIL, the barrier, and copies
 * that write words by single stores. Addresses and byte strides are passed as integers. The callers have checked every address. */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#define CPU_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define CPU_RELAX() __asm__ volatile("yield")
#else
#define CPU_RELAX() __asm__ volatile("" ::: "memory")
#endif

/* Copies of at least this size release the GIL: taking it again costs about 50 ns, copying 128 KiB about 3 us. */
enum { RELEASE_BYTES = 131072 };

/* If `spins` is at most this number, PEs share cores: see pyshmem.runtime.job. */
enum { CROWDED = 100 };

/* ---- conversions: every argument is a Python int or float; overflow is an error ---- */

static int to_u64(PyObject *o, uint64_t *out) { *out = PyLong_AsUnsignedLongLong(o); return !(*out == UINT64_MAX && PyErr_Occurred()); }
static int to_i64(PyObject *o, int64_t *out) { *out = PyLong_AsLongLong(o); return !(*out == -1 && PyErr_Occurred()); }
static int to_f64(PyObject *o, double *out) { *out = PyFloat_AsDouble(o); return !(*out == -1.0 && PyErr_Occurred()); }

static int out_of_range(const char *type) { PyErr_Format(PyExc_OverflowError, "value does not fit %s", type); return 0; }
#define NARROW(T, WIDE, TO)                                                                                      \
    static int to_##T(PyObject *o, T##_t *out) {                                                                 \
        WIDE w;                                                                                                  \
        if (!TO(o, &w)) return 0;                                                                                \
        *out = (T##_t)w;                                                                                         \
        return *out == w || out_of_range(#T);                                                                    \
    }
NARROW(int16, int64_t, to_i64)
NARROW(int32, int64_t, to_i64)
NARROW(uint16, uint64_t, to_u64)
NARROW(uint32, uint64_t, to_u64)
#define to_int64 to_i64
#define to_uint64 to_u64
typedef double float64_t;
typedef float float32_t;
#define to_float64 to_f64
static int to_float32(PyObject *o, float *out) { double d; if (!to_f64(o, &d)) return 0; *out = (float)d; return 1; }

static PyObject *from_int16(int16_t v) { return PyLong_FromLong(v); }
static PyObject *from_int32(int32_t v) { return PyLong_FromLong(v); }
static PyObject *from_int64(int64_t v) { return PyLong_FromLongLong(v); }
static PyObject *from_uint16(uint16_t v) { return PyLong_FromUnsignedLong(v); }
static PyObject *from_uint32(uint32_t v) { return PyLong_FromUnsignedLong(v); }
static PyObject *from_uint64(uint64_t v) { return PyLong_FromUnsignedLongLong(v); }
static PyObject *from_float32(float v) { return PyFloat_FromDouble(v); }
static PyObject *from_float64(double v) { return PyFloat_FromDouble(v); }

static int arity(const char *name, Py_ssize_t got, Py_ssize_t want) {
    if (got == want) return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", name, want, got);
    return 0;
}

/* ---- atomics: X(T, B), where B is the integer type of the same width. All are sequentially consistent, because the spec's AMOs
 * from one PE to one word are in program order and a fetch is also used as a poll ---- */

#define INTEGERS(X) X(int32, uint32) X(int64, uint64) X(uint32, uint32) X(uint64, uint64)
#define FLOATS(X) X(float32, uint32) X(float64, uint64)

#define PUN(T, B)                                                                                                \
    static inline B##_t bits_##T(T##_t v) { B##_t b; memcpy(&b, &v, sizeof b); return b; }                       \
    static inline T##_t value_##T(B##_t b) { T##_t v; memcpy(&v, &b, sizeof v); return v; }
INTEGERS(PUN) FLOATS(PUN)

#define SHARED(T, B)                                                                                             \
    static T##_t seq_fetch_##T(B##_t *p) { return value_##T(__atomic_load_n(p, __ATOMIC_SEQ_CST)); }             \
    static T##_t seq_set_##T(B##_t *p, T##_t v) { __atomic_store_n(p, bits_##T(v), __ATOMIC_SEQ_CST); return v; } \
    static T##_t seq_swap_##T(B##_t *p, T##_t v) { return value_##T(__atomic_exchange_n(p, bits_##T(v), __ATOMIC_SEQ_CST)); } \
    static T##_t seq_compare_swap_##T(B##_t *p, T##_t cond, T##_t v) {                                           \
        B##_t seen = bits_##T(cond);                                                                             \
        __atomic_compare_exchange_n(p, &seen, bits_##T(v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);               \
        return value_##T(seen);                                                                                  \
    }
INTEGERS(SHARED) FLOATS(SHARED)

#define BITWISE(T, B)                                                                                            \
    static T##_t seq_fetch_add_##T(B##_t *p, T##_t v) { return (T##_t)__atomic_fetch_add(p, (B##_t)v, __ATOMIC_SEQ_CST); } \
    static T##_t seq_fetch_and_##T(B##_t *p, T##_t v) { return (T##_t)__atomic_fetch_and(p, (B##_t)v, __ATOMIC_SEQ_CST); } \
    static T##_t seq_fetch_or_##T(B##_t *p, T##_t v) { return (T##_t)__atomic_fetch_or(p, (B##_t)v, __ATOMIC_SEQ_CST); }   \
    static T##_t seq_fetch_xor_##T(B##_t *p, T##_t v) { return (T##_t)__atomic_fetch_xor(p, (B##_t)v, __ATOMIC_SEQ_CST); }
INTEGERS(BITWISE)

#define FLOAT_ADD(T, B)                                                                                          \
    static T##_t seq_fetch_add_##T(B##_t *p, T##_t v) {                                                          \
        B##_t seen = __atomic_load_n(p, __ATOMIC_RELAXED);                                                       \
        while (!__atomic_compare_exchange_n(p, &seen, bits_##T(value_##T(seen) + v), 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {} \
        return value_##T(seen);                                                                                  \
    }
FLOATS(FLOAT_ADD)

#define WRAP_FETCH(T, B)                                                                                         \
    static PyObject *py_fetch_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                         \
        (void)self;                                                                                              \
        uint64_t addr;                                                                                           \
        if (!arity("fetch_" #T, n, 1) || !to_u64(args[0], &addr)) return NULL;                                   \
        return from_##T(seq_fetch_##T((B##_t *)addr));                                                           \
    }
#define WRAP_UPDATE(T, B, OP)                                                                                    \
    static PyObject *py_##OP##_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                        \
        (void)self;                                                                                              \
        uint64_t addr;                                                                                           \
        T##_t v;                                                                                                 \
        if (!arity(#OP "_" #T, n, 2) || !to_u64(args[0], &addr) || !to_##T(args[1], &v)) return NULL;            \
        return from_##T(seq_##OP##_##T((B##_t *)addr, v));                                                       \
    }
#define WRAP_COMPARE_SWAP(T, B)                                                                                  \
    static PyObject *py_compare_swap_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                  \
        (void)self;                                                                                              \
        uint64_t addr;                                                                                           \
        T##_t cond, v;                                                                                           \
        if (!arity("compare_swap_" #T, n, 3) || !to_u64(args[0], &addr) || !to_##T(args[1], &cond) || !to_##T(args[2], &v)) return NULL; \
        return from_##T(seq_compare_swap_##T((B##_t *)addr, cond, v));                                           \
    }
#define WRAP_ALL(T, B) WRAP_FETCH(T, B) WRAP_UPDATE(T, B, set) WRAP_UPDATE(T, B, swap) WRAP_UPDATE(T, B, fetch_add) WRAP_COMPARE_SWAP(T, B)
#define WRAP_BITWISE(T, B) WRAP_UPDATE(T, B, fetch_and) WRAP_UPDATE(T, B, fetch_or) WRAP_UPDATE(T, B, fetch_xor)
INTEGERS(WRAP_ALL) INTEGERS(WRAP_BITWISE) FLOATS(WRAP_ALL)

/* ---- waits ---- */

enum { EQ, NE, GT, GE, LT, LE };
#define COMPARE(T)                                                                                               \
    /* an acquire: data that precede the store seen are readable after it */                               \
    static inline T##_t look_##T(const T##_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }                \
    static inline int holds_##T(T##_t seen, int cmp, T##_t v) {                                                  \
        switch (cmp) {                                                                                           \
        case EQ: return seen == v;                                                                               \
        case NE: return seen != v;                                                                               \
        case GT: return seen > v;                                                                                \
        case GE: return seen >= v;                                                                               \
        case LT: return seen < v;                                                                                \
        default: return seen <= v;                                                                               \
        }                                                                                                        \
    }
#define POLLED(X) X(int16) X(uint16) X(int32) X(uint32) X(int64) X(uint64)
POLLED(COMPARE)

static int64_t now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * INT64_C(1000000000) + t.tv_nsec; }

/* The state of a spinning wait. spins: the polls before the first yield, many if each PE has a core of its own, and few if PEs
 * share cores, because the other PE may need this core. */
typedef struct { uint64_t polls, spins; int64_t started, checked, limit; int failed; } spin_t;

static spin_t spin_begin(double timeout, uint64_t spins) {
    return (spin_t){0, spins, 0, 0, timeout > 0 ? (int64_t)(timeout * 1e9) : 0, 0};
}

/* Returns 0 if the wait must stop: it timed out or a signal handler raised an exception, and `failed` tells which. Called without
 * the GIL; takes it every 20 ms, so that Ctrl-C and other signal handlers run. */
static int spin_check(spin_t *s, PyThreadState **released) {
    int64_t now = now_ns();
    if (!s->started) { s->started = s->checked = now; return 1; }
    if (s->limit && now - s->started > s->limit) { s->failed = 1; return 0; }
    if (now - s->checked < 20000000) return 1;
    s->checked = now;
    PyEval_RestoreThread(*released);
    s->failed = PyErr_CheckSignals() ? 2 : 0;
    *released = PyEval_SaveThread();
    return !s->failed;
}

/* Waits a little; 0 means stop, as spin_check. */
static int spin_pause(spin_t *s, PyThreadState **released) {
    if (++s->polls <= s->spins) { CPU_RELAX(); return 1; }
    uint64_t yields = s->polls - s->spins;
    if (yields < 256 || s->spins > CROWDED) { sched_yield(); if (yields & 15) return 1; }
    else { struct timespec t = {0, yields < 1024 ? 20000 : 200000}; nanosleep(&t, NULL); }
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
 * wait_any(addr, count, cmp, value, status_addr, first, timeout, spins) -> index, polling cyclically from `first` so that no
 * index starves; value is one for all, or (address,) of as many; status_addr (int32 each, not 0 excludes) may be 0; test_any alike without the last two, -1 when none. */
#define WAITS(T)                                                                                                 \
    static PyObject *py_test_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                          \
        (void)self;                                                                                              \
        uint64_t addr;                                                                                           \
        int64_t cmp;                                                                                             \
        T##_t v;                                                                                                 \
        if (!arity("test_" #T, n, 3) || !to_u64(args[0], &addr) || !to_i64(args[1], &cmp) || !to_##T(args[2], &v)) return NULL; \
        return PyBool_FromLong(holds_##T(look_##T((T##_t *)addr), (int)cmp, v));                                 \
    }                                                                                                            \
    static PyObject *py_wait_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                          \
        (void)self;                                                                                              \
        uint64_t addr, spins;                                                                                    \
        int64_t cmp;                                                                                             \
        double timeout;                                                                                          \
        T##_t v;                                                                                                 \
        if (!arity("wait_" #T, n, 5) || !to_u64(args[0], &addr) || !wait_args(args, &cmp, &timeout, &spins, args[3], args[4]) || \
            !to_##T(args[2], &v))                                                                                \
            return NULL;                                                                                         \
        T##_t *p = (T##_t *)addr, seen = look_##T(p); /* one look is compared and returned: the word may go on */ \
        if (!holds_##T(seen, (int)cmp, v)) {                                                                     \
            spin_t s = spin_begin(timeout, spins);                                                               \
            PyThreadState *released = PyEval_SaveThread();                                                       \
            while (!holds_##T(seen = look_##T(p), (int)cmp, v) && spin_pause(&s, &released)) {}                  \
            PyEval_RestoreThread(released);                                                                      \
            if (s.failed) return spin_error(&s);                                                                 \
        }                                                                                                        \
        return from_##T(seen);                                                                                   \
    }                                                                                                            \
    static int64_t find_##T(const T##_t *p, uint64_t count, int cmp, const T##_t *v, int each,          \
                            const int32_t *status, uint64_t first) {                                             \
        for (uint64_t k = 0, i = first; k < count; k++, i = i + 1 < count ? i + 1 : 0)                           \
            if (!(status && status[i]) && holds_##T(look_##T(p + i), cmp, v[each ? i : 0])) return (int64_t)i;   \
        return -1;                                                                                               \
    }                                                                                                            \
    static PyObject *py_wait_any_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {                      \
        (void)self;                                                                                              \
        uint64_t addr, count, status, first, spins = 0;                                                          \
        int64_t cmp, found;                                                                                      \
        double timeout = 0;                                                                                      \
        T##_t one, *v = &one;                                                                                    \
        int each = n > 3 && PyTuple_Check(args[3]);                                                              \
        if (n != 6 && !arity("wait_any_" #T, n, 8)) return NULL;                                                 \
        if (!to_u64(args[0], &addr) || !to_u64(args[1], &count) || !to_i64(args[2], &cmp) ||                      \
            !(each ? to_u64(PyTuple_GetItem(args[3], 0), (uint64_t *)&v) : to_##T(args[3], &one)) ||                 \
            !to_u64(args[4], &status) || !to_u64(args[5], &first))                                               \
            return NULL;                                                                                         \
        if (n == 8 && (!to_f64(args[6], &timeout) || !to_u64(args[7], &spins))) return NULL;                     \
        T##_t *p = (T##_t *)addr;                                                                                \
        found = find_##T(p, count, (int)cmp, v, each, (int32_t *)status, first);                                 \
        if (found < 0 && n == 8) {                                                                               \
            spin_t s = spin_begin(timeout, spins);                                                               \
            PyThreadState *released = PyEval_SaveThread();                                                       \
            while ((found = find_##T(p, count, (int)cmp, v, each, (int32_t *)status, first)) < 0 && spin_pause(&s, &released)) {} \
            PyEval_RestoreThread(released);                                                                      \
            if (s.failed) return spin_error(&s);                                                                 \
        }                                                                                                        \
        return PyLong_FromLongLong(found);                                                                       \
    }
POLLED(WAITS)

/* ---- copies ---- */

/* Copies an aligned word of at most 8 bytes by one store, because programs set flags with put and p and poll them (spec, Atomicity). */
static inline void copy_item(char *dst, const char *src, size_t nbytes) {
    uintptr_t both = (uintptr_t)dst | (uintptr_t)src;
#define WORD(T) { T v = __atomic_load_n((const T *)src, __ATOMIC_RELAXED); __atomic_store_n((T *)dst, v, __ATOMIC_RELAXED); return; }
    if (nbytes == 8 && !(both & 7)) WORD(uint64_t)
    if (nbytes == 4 && !(both & 3)) WORD(uint32_t)
    if (nbytes == 2 && !(both & 1)) WORD(uint16_t)
    memmove(dst, src, nbytes);
}

static PyObject *py_copy(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t dst, src, nbytes;
    if (!arity("copy", n, 3) || !to_u64(args[0], &dst) || !to_u64(args[1], &src) || !to_u64(args[2], &nbytes)) return NULL;
    if (nbytes < RELEASE_BYTES) {
        copy_item((char *)dst, (const char *)src, nbytes);
    } else {
        Py_BEGIN_ALLOW_THREADS
        memmove((char *)dst, (const char *)src, nbytes);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

/* copy_strided(dst, src, dst_step, src_step, item_bytes, count), with steps in bytes. */
static PyObject *py_copy_strided(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t dst, src, item, count;
    int64_t dst_step, src_step;
    if (!arity("copy_strided", n, 6) || !to_u64(args[0], &dst) || !to_u64(args[1], &src) || !to_i64(args[2], &dst_step) ||
        !to_i64(args[3], &src_step) || !to_u64(args[4], &item) || !to_u64(args[5], &count))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (uint64_t i = 0; i < count; i++)
        copy_item((char *)dst + (int64_t)i * dst_step, (const char *)src + (int64_t)i * src_step, item);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_fence(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    Py_RETURN_NONE;
}

/* ---- tensors: one call reads address, size and type, by the C functions of DLPack's exchange table (DLPack 1.3), which
 * torch.Tensor provides. Reading them as attributes takes longer than the operation itself. ---- */

typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor_t;

typedef struct {
    struct { uint32_t major, minor; } version;
    void *older, *allocate, *to_managed, *from_managed;
    int (*read)(void *, dl_tensor_t *); /* a borrowed tensor, which need not be released */
} dl_exchange_t;

enum { DL_FLOAT = 2, DL_COMPLEX = 5, DL_UINT = 1 };

/* tensor_reader(capsule) -> the address of the function that reads a tensor; 0 if the version of the table is not supported. */
static PyObject *py_tensor_reader(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    dl_exchange_t *table = arity("tensor_reader", n, 1) ? PyCapsule_GetPointer(args[0], "dlpack_exchange_api") : NULL;
    if (!table) return NULL;
    return PyLong_FromVoidPtr(table->version.major == 1 ? (void *)table->read : NULL);
}

/* A view describes a heap: (reader, torch.Tensor, base, starts, ends, device type, device, heap, deltas, direct, far deltas, far), see
 * pyshmem.runtime.heap. direct is the route to the PEs with mapped heaps, far that to the others, see pyshmem.transport. */
typedef struct { uint64_t base; PyObject *starts, *ends, *heap, *deltas, *direct, *far_deltas, *far; } view_t;
typedef struct { uint64_t address, nbytes, item; int32_t device_type, device; uint8_t code; } operand_t;

/* Reads a torch.Tensor and returns 1. Returns 0 without an exception for any other object. All views have the same reader and type. */
static int read_dlpack(PyObject *views, PyObject *o, dl_tensor_t *t) {
    uint64_t reader;
    PyObject *first = PyList_GetItem(views, 0);
    if (!first || !to_u64(PyTuple_GetItem(first, 0), &reader) || !reader) { PyErr_Clear(); return 0; }
    if (Py_TYPE(o) != (PyTypeObject *)PyTuple_GetItem(first, 1)) return 0;
    if (((int (*)(void *, dl_tensor_t *))reader)(o, t)) { PyErr_Clear(); return 0; } /* DLPack has no such type */
    return 1;
}

/* As read_dlpack. Returns 0 also for empty tensors, and for complex numbers, which may be lazily conjugated. */
static int read_tensor(PyObject *views, PyObject *o, operand_t *out, int contiguous) {
    dl_tensor_t t;
    if (!read_dlpack(views, o, &t) || t.code == DL_COMPLEX || t.lanes != 1 || t.bits % 8) return 0;
    int64_t count = 1;
    for (int32_t i = t.ndim - 1; i >= 0; i--) {
        if (contiguous && t.shape[i] != 1 && t.strides && t.strides[i] != count) return 0;
        count *= t.shape[i];
    }
    *out = (operand_t){(uint64_t)t.data + t.byte_offset, (uint64_t)count * t.bits / 8, t.bits / 8, t.device_type, t.device_id, t.code};
    return count > 0;
}

/* Reads a plain tensor: one that is contiguous and not empty. */
static int read_plain(PyObject *views, PyObject *o, operand_t *out) { return read_tensor(views, o, out, 1); }

/* Finds the heap in the operand's kind of memory. Returns 0 if none is open. */
static int find_view(PyObject *views, const operand_t *t, view_t *v) {
    for (Py_ssize_t i = 0; i < PyList_Size(views); i++) {
        PyObject *view = PyList_GetItem(views, i);
        if (PyLong_AsLong(PyTuple_GetItem(view, 5)) != t->device_type || PyLong_AsLong(PyTuple_GetItem(view, 6)) != t->device) continue;
        v->starts = PyTuple_GetItem(view, 3);
        v->ends = PyTuple_GetItem(view, 4);
        v->heap = PyTuple_GetItem(view, 7);
        v->deltas = PyTuple_GetItem(view, 8);
        v->direct = PyTuple_GetItem(view, 9);
        v->far_deltas = PyTuple_GetItem(view, 10);
        v->far = PyTuple_GetItem(view, 11);
        return to_u64(PyTuple_GetItem(view, 2), &v->base);
    }
    return 0;
}

/* Whether the bytes lie in one live allocation. starts and ends are those of pyshmem.runtime.allocator. */
static int is_live(const view_t *v, uint64_t address, uint64_t nbytes) {
    long long offset = (long long)(address - v->base);
    Py_ssize_t low = 0, high = PyList_Size(v->starts);
    while (high - low > 1) {
        Py_ssize_t middle = (low + high) / 2;
        if (PyLong_AsLongLong(PyList_GetItem(v->starts, middle)) <= offset) low = middle;
        else high = middle;
    }
    return offset + (long long)nbytes <= PyLong_AsLongLong(PyList_GetItem(v->ends, low));
}

/* Whether a tensor of one element is lazily negated, as z.conj().imag is: it is contiguous, but its memory is not its value. */
static int is_lazily_negated(PyObject *o, const operand_t *t) {
    if (t->code != DL_FLOAT || t->nbytes != t->item) return 0;
    PyObject *answer = PyObject_CallMethod(o, "is_neg", NULL);
    int negated = answer != Py_False;
    Py_XDECREF(answer);
    PyErr_Clear();
    return negated;
}

/* Translates an address of this PE to pe, and returns the route there. Returns NULL without an exception if there is none, or if
 * pe is no integer: a dictionary finds 1.0 and True where it has 1. */
static PyObject *move_to(const view_t *v, PyObject *pe, uint64_t *address) {
    int64_t delta;
    if (!PyLong_CheckExact(pe) && (!PyIndex_Check(pe) || PyBool_Check(pe))) return NULL;
    PyObject *route = v->direct, *found = PyDict_GetItemWithError(v->deltas, pe);
    if (!found && !PyErr_Occurred()) { route = v->far; found = PyDict_GetItemWithError(v->far_deltas, pe); }
    if (!found || !to_i64(found, &delta)) { PyErr_Clear(); return NULL; }
    *address += (uint64_t)delta;
    return route;
}

static PyObject *tuple_of(PyObject *heap, int n, const uint64_t *values) {
    PyObject *result = PyTuple_New(n + 1);
    if (!result) return NULL;
    Py_INCREF(heap);
    PyTuple_SetItem(result, 0, heap);
    for (int i = 0; result && i < n; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(values[i]);
        if (!value || PyTuple_SetItem(result, i + 1, value)) Py_CLEAR(result);
    }
    return result;
}

/* locate(views, symmetric, private, size[, pe]) -> (heap, address of symmetric on this PE, address of private, bytes); with pe
 * (route, address of symmetric on pe, ...). Returns None unless both are plain, large enough, of one type and in one kind of memory,
 * symmetric is live and there is a route to pe: the caller then takes the slow path, which finds any error. */
static PyObject *py_locate(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    view_t v;
    operand_t near, own;
    if (n != 4 && !arity("locate", n, 5)) return NULL;
    if (!read_plain(args[0], args[1], &near) || !read_plain(args[0], args[2], &own)) Py_RETURN_NONE;
    uint64_t nbytes = own.nbytes, count;
    if (args[3] != Py_None) {
        if (!PyLong_CheckExact(args[3]) || !to_u64(args[3], &count)) { PyErr_Clear(); Py_RETURN_NONE; }
        if (count == 0 || count > own.nbytes / own.item) Py_RETURN_NONE;
        nbytes = count * own.item;
    }
    if (near.code != own.code || near.item != own.item || nbytes > near.nbytes) Py_RETURN_NONE;
    if (near.device_type != own.device_type || near.device != own.device || is_lazily_negated(args[2], &own)) Py_RETURN_NONE;
    if (!find_view(args[0], &near, &v) || !is_live(&v, near.address, nbytes)) Py_RETURN_NONE;
    PyObject *route = n == 5 ? move_to(&v, args[4], &near.address) : v.heap;
    if (!route) Py_RETURN_NONE;
    return tuple_of(route, 3, (uint64_t[]){near.address, own.address, nbytes});
}

/* locate_word(views, target[, pe]) -> (heap, address on this PE, kind); with pe (route, address on pe, kind). Returns None unless
 * target is a plain, live tensor of one element. kind is DLPack's type code * 16 + bytes. */
static PyObject *py_locate_word(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    view_t v;
    operand_t near;
    if (n != 2 && !arity("locate_word", n, 3)) return NULL;
    if (!read_plain(args[0], args[1], &near) || near.nbytes != near.item) Py_RETURN_NONE;
    if (!find_view(args[0], &near, &v) || !is_live(&v, near.address, near.nbytes)) Py_RETURN_NONE;
    PyObject *route = n == 3 ? move_to(&v, args[2], &near.address) : v.heap;
    if (!route) Py_RETURN_NONE;
    return tuple_of(route, 2, (uint64_t[]){near.address, near.code * UINT64_C(16) + near.item});
}

typedef struct {
    dl_tensor_t tensor;
    void *context;
    void (*deleter)(void *);
    int64_t extent;
} dl_managed_t;

static void drop_capsule(PyObject *o) { free(PyCapsule_IsValid(o, "dltensor") ? PyCapsule_GetPointer(o, "dltensor") : NULL); }

/* bytes_at(address, bytes, device type, device) -> a DLPack capsule of a uint8 tensor, which does not keep the memory alive. */
static PyObject *py_bytes_at(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t address;
    int64_t nbytes;
    int32_t device_type, device;
    if (!arity("bytes_at", n, 4) || !to_u64(args[0], &address) || !to_i64(args[1], &nbytes) || !to_int32(args[2], &device_type) ||
        !to_int32(args[3], &device))
        return NULL;
    dl_managed_t *m = calloc(1, sizeof *m);
    if (!m) return PyErr_NoMemory();
    m->extent = nbytes;
    m->tensor = (dl_tensor_t){(void *)address, device_type, device, 1, DL_UINT, 8, 1, &m->extent, NULL, 0};
    m->deleter = free; /* the tensor is the first field, so it has the address of the allocation */
    return PyCapsule_New(m, "dltensor", drop_capsule);
}

#include "_messages.h"
#include "_wire.h"
#include "_far.h"
#include "_service.h"
#include "_polling.h"
#include "_loops.h"
#include "_collectives.h"
#include "_quick.h"
#include "_launch.h"
#include "_far_gpu.h"
#include "_proxy.h"

/* ---- the end of the process: an exit handler knows the status, after Python's own clean-up ---- */

typedef struct {
    int (*finalize)(void);
    int (*finalized)(int *);
    int (*abort)(uintptr_t, int);
    uintptr_t world;
    int pe;
    pid_t pid;
    char report[]; /* the file that pyshmemrun prints at the end; empty: without pyshmemrun */
} exit_t;

/* Finalises MPI after status 0. Any other status aborts the job, because other PEs could wait for this one for ever. */
static void at_exit(int status, void *arg) {
    exit_t *e = arg;
    int over = 0;
    if (getpid() != e->pid || e->finalized(&over) || over) return; /* MPI does not belong to a forked child */
    if (status == 0) {
        if (far) __atomic_store_n(&far->service->leaving, 1, __ATOMIC_RELEASE);
        end_polling();
        e->finalize();
        return;
    }
    FILE *f = e->report[0] ? fopen(e->report, "wx") : stderr;
    if (f) fprintf(f, "PE %d: exited with status %d\n", e->pe, status);
    fflush(NULL); /* where the file exists, it has the exception */
    usleep(200000); /* MPICH's mpiexec loses output that it has not read before the abort */
    e->abort(e->world, status);
}

/* watch_exit(MPI_Finalize, MPI_Finalized, MPI_Abort, MPI_COMM_WORLD, pe, report_path) */
static PyObject *py_watch_exit(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t finalize, finalized, abort_job, world;
    int32_t pe;
    Py_ssize_t length;
    if (!arity("watch_exit", n, 6) || !to_u64(args[0], &finalize) || !to_u64(args[1], &finalized) || !to_u64(args[2], &abort_job) ||
        !to_u64(args[3], &world) || !to_int32(args[4], &pe))
        return NULL;
    const char *report = PyUnicode_AsUTF8AndSize(args[5], &length);
    exit_t *e = report ? calloc(1, sizeof *e + (size_t)length + 1) : NULL;
    if (!e) return report ? PyErr_NoMemory() : NULL;
    e->finalize = (int (*)(void))finalize;
    e->finalized = (int (*)(int *))finalized;
    e->abort = (int (*)(uintptr_t, int))abort_job;
    e->world = world;
    e->pe = pe;
    e->pid = getpid();
    memcpy(e->report, report, (size_t)length);
    if (on_exit(at_exit, e)) { free(e); return PyErr_SetFromErrno(PyExc_OSError); }
    Py_RETURN_NONE;
}

#define ROW(name, function) {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, NULL},
#define ROWS_ALL(T, B)                                                                                           \
    ROW("fetch_" #T, py_fetch_##T) ROW("set_" #T, py_set_##T) ROW("swap_" #T, py_swap_##T)                       \
    ROW("fetch_add_" #T, py_fetch_add_##T) ROW("compare_swap_" #T, py_compare_swap_##T)
#define ROWS_BITWISE(T, B)                                                                                       \
    ROW("fetch_and_" #T, py_fetch_and_##T) ROW("fetch_or_" #T, py_fetch_or_##T) ROW("fetch_xor_" #T, py_fetch_xor_##T)
#define ROWS_WAITS(T) ROW("test_" #T, py_test_##T) ROW("wait_" #T, py_wait_##T) ROW("wait_any_" #T, py_wait_any_##T)
#define ROWS_FAR(T, B) ROW("far_fetch_" #T, py_far_fetch_##T) ROW("far_update_" #T, py_far_update_##T)

static PyMethodDef methods[] = {
    INTEGERS(ROWS_ALL) INTEGERS(ROWS_BITWISE) FLOATS(ROWS_ALL) POLLED(ROWS_WAITS)
    ROW("sync", py_sync) ROW("absent", py_absent) ROW("area_bytes", py_area_bytes) ROW("share", py_share) ROW("broadcast", py_broadcast)
    ROW("agree", py_agree) ROW("scatter", py_scatter) ROW("fold", py_fold) ROW("copy", py_copy) ROW("copy_strided", py_copy_strided)
    ROW("tensor_reader", py_tensor_reader) ROW("locate", py_locate) ROW("locate_word", py_locate_word) ROW("locate_pair", py_locate_pair) ROW("quick", py_quick)
    ROW("bytes_at", py_bytes_at)
    ROW("enqueue", py_enqueue) ROW("copier", py_copier) ROW("launch_prepared", py_launch_prepared) ROW("launch_graph", py_launch_graph)
    ROW("call_kernel", py_call_kernel) ROW("kernel_key", py_kernel_key) ROW("layout", py_layout) ROW("launch_pair", py_launch_pair) ROW("watch_exit", py_watch_exit)
    INTEGERS(ROWS_FAR) FLOATS(ROWS_FAR) ROW("far_put", py_far_put) ROW("far_get", py_far_get) ROW("far_get_nbi", py_far_get_nbi)
    ROW("far_ask", py_far_ask) ROW("far_await", py_far_await) ROW("far_messages", py_far_messages)
    ROW("far_put_strided", py_far_put_strided) ROW("far_get_strided", py_far_get_strided) ROW("far_put_signal", py_far_put_signal)
    ROW("far_use_messages", py_far_use_messages) ROW("far_quiet", py_far_quiet) ROW("far_quiet_pe", py_far_quiet_pe) ROW("far_open", py_far_open)
    ROW("far_open_gpu", py_far_open_gpu) ROW("far_extend_gpu", py_far_extend_gpu) ROW("proxy_open", py_proxy_open)
    {"proxy_wake", py_proxy_wake, METH_NOARGS, NULL}, {"proxy_drain", py_proxy_drain, METH_NOARGS, NULL}, {"proxy_stop", py_proxy_stop, METH_NOARGS, NULL},
    {"far_leave", py_far_leave, METH_NOARGS, NULL}, {"far_close", py_far_close, METH_NOARGS, NULL},
    {"far_end_polling", py_far_end_polling, METH_NOARGS, NULL}, {"fence", py_fence, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};
static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", "Atomics, waits, barrier and copies on CPU memory, by address.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
