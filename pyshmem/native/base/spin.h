/* Waiting for words in CPU memory: comparisons, and the pauses between two looks. Nothing here knows Python. */
#pragma once
#include "counts.h"
#include "internal.h"
#include <stdint.h>

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
INTERNAL int64_t now_ns(void);

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
    const char *name; /* of the call that waits, for the page of counts.h; NULL: Python names it */
    int (*interrupted)(struct spin *);
    void *with;
} spin_t;
GLOBAL int (*helper)(int ends);
enum { BEFORE_HELP = 40 }; /* polls */
INTERNAL spin_t spin_begin(double timeout, uint64_t spins);
INTERNAL void count_wait(const char *name);
INTERNAL void count_wait_end(void);

static inline void spin_starts(spin_t *s) {
    if (!s->counted) count_wait(s->name);
    s->counted = 1;
}
INTERNAL void spin_end(spin_t *s);
INTERNAL int spin_check(spin_t *s);
INTERNAL int spin_pause(spin_t *s);

/* The next index of a Weyl sequence, with which *_any and *_some begin: so no index starves. With a plain counter,
 * indices could starve in a program whose loop makes `count` such calls. */
static inline uint64_t next_first(uint64_t count) {
    static _Thread_local uint64_t turn;
    turn += UINT64_C(0x9E3779B97F4A7C15); /* 2**64 over the golden ratio */
    return (uint64_t)((unsigned __int128)turn * count >> 64);
}

#define DECLARE_FIND(T)                                                                          \
    INTERNAL int64_t find_##T(const T##_t *p, uint64_t count, int cmp, const T##_t *v, int each, \
                              const int32_t *status, uint64_t first);
POLLED(DECLARE_FIND)
