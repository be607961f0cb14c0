/* Waits for words in this PE's memory, and tests of them. */
#pragma once
#include "state.h"

INTERNAL int watch(spin_t *s);
INTERNAL spin_t begin_wait(const char *routine);
INTERNAL uint64_t count_included(uint64_t count, const int *status);

/* Where the present values of words can be read: a copy of GPU memory, which the next call of the thread replaces. */
static inline const void *readable(const void *words, uint64_t nbytes) {
    return LIKELY(!on_gpu(words)) ? words : (const void *)RARE("look", (int64_t)words, (int64_t)nbytes);
}

INTERNAL RARELY _Noreturn void refuse_comparison(const char *routine, int cmp);

/* Checks `count` words of `size` bytes that a call waits for or tests, and the comparison. */
static inline void check_words(const char *routine, const char *argument, const void *words, uint64_t count,
                               uint64_t size, int cmp) {
    if (!LIKELY((unsigned)cmp <= LE)) refuse_comparison(routine, cmp);
    uint64_t nbytes = bytes_of(routine, "nelems", count, size);
    symmetric(routine, argument, count ? aligned(routine, argument, words, size) : words, nbytes);
}

INTERNAL RARELY void time_out(const char *routine, const char *argument, const void *word, int cmp, int64_t value,
                              int64_t seen, int many);

/* v: one value for all words, or with `each` as many. wait: 0 for a test. Without a word that counts, nothing is
 * waited for. */
#define AWAITING(T)                                                                                                    \
    INTERNAL RARELY T##_t wait_slowly_##T(const char *routine, const char *argument, const T##_t *ivar, int cmp,       \
                                          T##_t v);                                                                    \
    static inline T##_t wait_##T(const char *routine, const char *argument, const void *where, int cmp, T##_t v) {     \
        const T##_t *ivar = where;                                                                                     \
        check_words(routine, argument, ivar, 1, sizeof *ivar, cmp);                                                    \
        T##_t seen = look_##T(readable(ivar, sizeof v));                                                               \
        return LIKELY(holds_##T(seen, cmp, v)) ? seen : wait_slowly_##T(routine, argument, ivar, cmp, v);              \
    }                                                                                                                  \
    static inline int test_##T(const char *routine, const void *ivar, int cmp, T##_t v) {                              \
        check_words(routine, "ivar", ivar, 1, sizeof v, cmp);                                                          \
        return holds_##T(look_##T(readable(ivar, sizeof v)), cmp, v);                                                  \
    }                                                                                                                  \
    INTERNAL int every_##T(const char *routine, const void *where, size_t count, const int *status, int cmp,           \
                           const T##_t *v, int each, int wait);                                                        \
    INTERNAL size_t first_##T(const char *routine, const void *where, size_t count, const int *status, int cmp,        \
                              const T##_t *v, int each, int wait);                                                     \
    INTERNAL size_t some_##T(const char *routine, const void *where, size_t count, size_t *indices, const int *status, \
                             int cmp, const T##_t *v, int each, int wait);
POLLED(AWAITING)
