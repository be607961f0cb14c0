#include "waits.h"

/* Called in each wait, every 20 ms. Python's handlers of signals run where Python has called C: it would do so after
 * the call only. */
INTERNAL int watch(spin_t *s) {
    if (!state.embedded) RARE("handle_signals");
    if (state.notice > 0 && !s->told && (double)(s->checked - s->started) > 1e9 * state.notice) {
        s->told = 1;
        RARE("tell_of_wait", (int64_t)s->name);
    }
    return 0;
}

INTERNAL spin_t begin_wait(const char *routine) {
    spin_t s = spin_begin(state.timeout, state.spins);
    s.name = routine;
    if (state.spans) helper = state.calls->help;
    s.interrupted = watch;
    return s;
}

INTERNAL uint64_t count_included(uint64_t count, const int *status) {
    uint64_t included = 0;
    for (uint64_t i = 0; i < count; i++) included += !status || !status[i];
    return included;
}

INTERNAL RARELY _Noreturn void refuse_comparison(const char *routine, int cmp) {
    require_job(routine);
    refuse("ArgumentError", routine, "cmp", "SHMEM_CMP_EQ, NE, GT, GE, LT or LE", "%d", cmp);
}

/* Ends the job for a wait of `size` bytes that has timed out. many: whether any of several words would do. */
INTERNAL RARELY void time_out(const char *routine, const char *argument, const void *word, int cmp, int64_t value,
                              int64_t seen, int many) {
    RARE("timed_out", (int64_t)routine, (int64_t)argument, (int64_t)word, cmp, value, seen, many);
}

#define AWAITED(T)                                                                                                     \
    INTERNAL RARELY T##_t wait_slowly_##T(const char *routine, const char *argument, const T##_t *ivar, int cmp,       \
                                          T##_t v) {                                                                   \
        T##_t seen;                                                                                                    \
        spin_t s = begin_wait(routine);                                                                                \
        while (!holds_##T(seen = look_##T(readable(ivar, sizeof v)), cmp, v))                                          \
            if (!spin_pause(&s)) time_out(routine, argument, ivar, cmp, (int64_t)v, (int64_t)seen, 0);                 \
        spin_end(&s);                                                                                                  \
        return seen;                                                                                                   \
    }                                                                                                                  \
    INTERNAL int every_##T(const char *routine, const void *where, size_t count, const int *status, int cmp,           \
                           const T##_t *v, int each, int wait) {                                                       \
        const T##_t *ivars = where;                                                                                    \
        check_words(routine, "ivars", ivars, count, sizeof *ivars, cmp);                                               \
        for (size_t i = 0; i < count; i++) {                                                                           \
            if (status && status[i]) continue;                                                                         \
            if (wait)                                                                                                  \
                wait_##T(routine, "ivars", ivars + i, cmp, v[each ? i : 0]);                                           \
            else if (!test_##T(routine, ivars + i, cmp, v[each ? i : 0]))                                              \
                return 0;                                                                                              \
        }                                                                                                              \
        return 1;                                                                                                      \
    }                                                                                                                  \
    INTERNAL size_t first_##T(const char *routine, const void *where, size_t count, const int *status, int cmp,        \
                              const T##_t *v, int each, int wait) {                                                    \
        const T##_t *ivars = where;                                                                                    \
        check_words(routine, "ivars", ivars, count, sizeof *ivars, cmp);                                               \
        if (!count_included(count, status)) return SIZE_MAX;                                                           \
        uint64_t nbytes = count * sizeof *ivars;                                                                       \
        int64_t found = find_##T(readable(ivars, nbytes), count, cmp, v, each, status, next_first(count));             \
        if (found < 0 && !wait) return SIZE_MAX;                                                                       \
        if (found >= 0) return (size_t)found;                                                                          \
        spin_t s = begin_wait(routine);                                                                                \
        for (; found < 0; found = find_##T(readable(ivars, nbytes), count, cmp, v, each, status, next_first(count)))   \
            if (!spin_pause(&s)) time_out(routine, "ivars", ivars, cmp, (int64_t)v[0], 0, 1);                          \
        spin_end(&s);                                                                                                  \
        return (size_t)found;                                                                                          \
    }                                                                                                                  \
    INTERNAL size_t some_##T(const char *routine, const void *where, size_t count, size_t *indices, const int *status, \
                             int cmp, const T##_t *v, int each, int wait) {                                            \
        const T##_t *ivars = where;                                                                                    \
        if (!indices && count) refuse_null(routine, "indices", "room for nelems indices");                             \
        size_t first = first_##T(routine, where, count, status, cmp, v, each, wait), found = 0;                        \
        if (first == SIZE_MAX) return 0;                                                                               \
        ivars = readable(ivars, count * sizeof *ivars);                                                                \
        for (size_t i = 0; i < count; i++)                                                                             \
            if (i == first || (!(status && status[i]) && holds_##T(look_##T(ivars + i), cmp, v[each ? i : 0])))        \
                indices[found++] = i;                                                                                  \
        return found;                                                                                                  \
    }
POLLED(AWAITED)
