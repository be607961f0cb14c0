#include "spin.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

INTERNAL int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* What a wait calls meanwhile, and with `ends` at its end: the requests of far PEs are executed. Returns whether it has
 * slept. NULL: there are none. */
INTERNAL int (*helper)(int ends);

INTERNAL spin_t spin_begin(double timeout, uint64_t spins) {
    return (spin_t){.spins = spins, .limit = timeout > 0 ? (int64_t)(timeout * 1e9) : 0};
}

static void let_help_end(spin_t *s) {
    if (s->helped) helper(1);
    s->helped = 0;
}

/* A wait that has to wait: its beginning, and its end. Waits within it belong to it, as a look at GPU memory does. */
static _Thread_local int waiting;
INTERNAL void count_wait(const char *name) {
    if (waiting++) return;
    activity->waits++;
    if (!activity->watched) return;
    activity->since = now_ns();
    if (name) snprintf(activity->where, sizeof activity->where, "%s", name);
}
INTERNAL void count_wait_end(void) {
    if (--waiting || !activity->since) return;
    activity->waited += (uint64_t)(now_ns() - activity->since);
    activity->since = 0;
    activity->where[0] = 0;
}

INTERNAL void spin_end(spin_t *s) {
    let_help_end(s);
    if (s->counted) count_wait_end();
    s->counted = 0;
}

/* Returns 0 if the wait must stop. */
INTERNAL int spin_check(spin_t *s) {
    int64_t now = now_ns();
    if (activity->watched && !activity->since) activity->since = now; /* it was not when the wait began */
    if (!s->started) {
        s->started = s->checked = now;
        return 1;
    }
    if (s->limit && now - s->started > s->limit) {
        s->failed = 1;
        return 0;
    }
    if (!s->interrupted || now - s->checked < LONG_NS) return 1;
    s->checked = now;
    let_help_end(s);
    s->failed = s->interrupted(s) ? 2 : 0;
    return !s->failed;
}

/* Waits for a moment. Returns 0 if the wait must stop. */
INTERNAL int spin_pause(spin_t *s) {
    spin_starts(s);
    if (helper && s->polls >= BEFORE_HELP) {
        s->helped = 1;
        if (helper(0)) return spin_check(s);
    }
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
    return spin_check(s);
}

/* The first word, cyclically from `first` on so that no index starves, of which the comparison holds, or -1. v: one
 * value for all, or with `each` as many. status: not 0 excludes a word; may be NULL. */
#define FIND(T)                                                                                                \
    INTERNAL int64_t find_##T(const T##_t *p, uint64_t count, int cmp, const T##_t *v, int each,               \
                              const int32_t *status, uint64_t first) {                                         \
        for (uint64_t k = 0, i = first; k < count; k++, i = i + 1 < count ? i + 1 : 0)                         \
            if (!(status && status[i]) && holds_##T(look_##T(p + i), cmp, v[each ? i : 0])) return (int64_t)i; \
        return -1;                                                                                             \
    }
POLLED(FIND)
