#include "blocks.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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

/* past: whether what is written goes past the caches. */
INTERNAL void copy_blocks(char *to, const char *from, const axis_t *axis, int64_t axes, int past) {
    copy_axis(axis, axes, to, from, past);
#ifdef __SSE2__
    _mm_sfence();
#endif
}
