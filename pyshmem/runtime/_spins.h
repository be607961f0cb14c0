/* Waiting for words in CPU memory: comparisons, and the pauses between two looks. Nothing here knows Python. */
#pragma once
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "_activity.h"

#if defined(__x86_64__) || defined(__i386__)
#define CPU_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define CPU_RELAX() __asm__ volatile("yield")
#else
#define CPU_RELAX() __asm__ volatile("" ::: "memory")
#endif

/* If `spins` is at most this number, PEs share cores: see pyshmem.base.job. */
enum { CROWDED = 100 };

enum { LONG_NS = 20000000 }; /* after which a wait looks for signals, and again */

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
 * if PEs share cores, because the other PE may need this core. interrupted: called every 20 ms, for which `with` is;
 * returns whether the wait must stop. NULL: nothing interrupts it. */
typedef struct spin {
    uint64_t polls, spins;
    int64_t started, checked, limit;
    int failed;       /* why the wait has stopped: 1 for a time-out, 2 for an interruption */
    int told;         /* whether `interrupted` has told of this wait */
    int helped;       /* whether `helper` has been called */
    int counted;      /* whether count_wait has been called */
    const char *name; /* of the call that waits, for the page of _activity.h; NULL: Python names it */
    int (*interrupted)(struct spin *);
    void *with;
} spin_t;

/* What a wait calls meanwhile, and with `ends` at its end: the requests of far PEs are executed. Returns whether it has
 * slept. NULL: there are none. */
static int (*helper)(int ends);
enum { BEFORE_HELP = 40 }; /* polls */

static spin_t spin_begin(double timeout, uint64_t spins) {
    return (spin_t){.spins = spins, .limit = timeout > 0 ? (int64_t)(timeout * 1e9) : 0};
}

static void let_help_end(spin_t *s) {
    if (s->helped) helper(1);
    s->helped = 0;
}

/* A wait that has to wait: its beginning, and its end. Waits within it belong to it, as a look at GPU memory does. */
static __thread int waiting;
static inline void count_wait(const char *name) {
    if (waiting++) return;
    activity->waits++;
    if (!activity->watched) return;
    activity->since = now_ns();
    if (name) snprintf(activity->where, sizeof activity->where, "%s", name);
}
static void count_wait_end(void) {
    if (--waiting || !activity->since) return;
    activity->waited += (uint64_t)(now_ns() - activity->since);
    activity->since = 0;
    activity->where[0] = 0;
}

static inline void spin_starts(spin_t *s) {
    if (!s->counted) count_wait(s->name);
    s->counted = 1;
}

static void spin_end(spin_t *s) {
    let_help_end(s);
    if (s->counted) count_wait_end();
    s->counted = 0;
}

/* Returns 0 if the wait must stop. */
static int spin_check(spin_t *s) {
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
static int spin_pause(spin_t *s) {
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

/* The next index of a Weyl sequence, with which *_any and *_some begin: so no index starves. With a plain counter,
 * indices could starve in a program whose loop makes `count` such calls. */
static inline uint64_t next_first(uint64_t count) {
    static _Thread_local uint64_t turn;
    turn += UINT64_C(0x9E3779B97F4A7C15); /* 2**64 over the golden ratio */
    return (uint64_t)((unsigned __int128)turn * count >> 64);
}

/* The first word, cyclically from `first` on so that no index starves, of which the comparison holds, or -1. v: one
 * value for all, or with `each` as many. status: not 0 excludes a word; may be NULL. */
#define FIND(T)                                                                                                       \
    static int64_t find_##T(const T##_t *p, uint64_t count, int cmp, const T##_t *v, int each, const int32_t *status, \
                            uint64_t first) {                                                                         \
        for (uint64_t k = 0, i = first; k < count; k++, i = i + 1 < count ? i + 1 : 0)                                \
            if (!(status && status[i]) && holds_##T(look_##T(p + i), cmp, v[each ? i : 0])) return (int64_t)i;        \
        return -1;                                                                                                    \
    }
POLLED(FIND)
