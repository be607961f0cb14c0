/* Copies between the parts of partitioned tensors in CPU memory: products of lists of runs, a list for each axis. */
#pragma once
#include "_conversions.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* `number` runs of indices, each a step after the one before; the first is at `to` in one part and at `from` in the
 * other. `length`: indices of a run, of the last axis bytes. All others but `number` are bytes. */
typedef struct {
    int64_t to, from, to_step, from_step, number, length;
} run_t;

/* The head of an axis in a plan: its runs follow. to, from: bytes from one index to the next. */
typedef struct {
    int64_t to, from, n_runs;
} axis_t;

/* Writes past the caches: what is larger than they are would be read before it is overwritten. */
static void copy_past_caches(char *to, const char *from, size_t nbytes) {
#ifdef __SSE2__
    size_t first = -(uintptr_t)to & 15;
    if (nbytes >= 64 + first) {
        memcpy(to, from, first);
        to += first, from += first, nbytes -= first;
        for (; nbytes >= 64; nbytes -= 64, to += 64, from += 64) {
            __m128i v[4];
            for (int i = 0; i < 4; i++) v[i] = _mm_loadu_si128((const __m128i *)from + i);
            for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)to + i, v[i]);
        }
    }
#endif
    memcpy(to, from, nbytes);
}

static void copy_runs(const run_t *run, char *to, const char *from, int past) {
#define EACH(copy) \
    for (int64_t i = 0; i < run->number; i++, to += run->to_step, from += run->from_step) copy
    to += run->to, from += run->from;
    size_t nbytes = (size_t)run->length;
    /* elements of a size that the compiler knows are moved by one instruction */
    if (nbytes == 1)
        EACH(memcpy(to, from, 1));
    else if (nbytes == 2)
        EACH(memcpy(to, from, 2));
    else if (nbytes == 4)
        EACH(memcpy(to, from, 4));
    else if (nbytes == 8)
        EACH(memcpy(to, from, 8));
    else if (nbytes == 16)
        EACH(memcpy(to, from, 16));
    else if (past)
        EACH(copy_past_caches(to, from, nbytes));
    else
        EACH(memcpy(to, from, nbytes));
#undef EACH
}

static void copy_axis(const axis_t *axis, int64_t axes, char *to, const char *from, int past) {
    const run_t *run = (const run_t *)(axis + 1), *end = run + axis->n_runs;
    for (; run < end; run++) {
        if (axes == 1) {
            copy_runs(run, to, from, past);
            continue;
        }
        for (int64_t i = 0; i < run->number; i++)
            for (int64_t j = 0; j < run->length; j++)
                copy_axis((const axis_t *)end, axes - 1, to + run->to + i * run->to_step + j * axis->to,
                          from + run->from + i * run->from_step + j * axis->from, past);
    }
}

/* copy_blocks(to, from, plan, axes, past): plan has the axes, outermost first, each an axis_t and its runs. */
static PyObject *py_copy_blocks(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t to, from, axes, past;
    if (!arity("copy_blocks", n, 5) || !to_u64(args[0], &to) || !to_u64(args[1], &from) || !to_u64(args[3], &axes) ||
        !to_u64(args[4], &past))
        return NULL;
    const char *plan = PyBytes_AsString(args[2]);
    if (!plan) return NULL;
    Py_BEGIN_ALLOW_THREADS
    copy_axis((const axis_t *)plan, (int64_t)axes, (char *)to, (const char *)from, (int)past);
#ifdef __SSE2__
    _mm_sfence();
#endif
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef block_methods[] = {METHOD(copy_blocks), LAST_METHOD};
