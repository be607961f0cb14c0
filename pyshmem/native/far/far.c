#include "far.h"

#include <sched.h>

#include "../base/spin.h"

INTERNAL far_t *far;

#define TRIAL_NS INT64_C(10000000000) /* the limit of waits in the self-test of a fabric */
INTERNAL int far_is_late(int64_t since) {
    int64_t limit = far->trial ? TRIAL_NS : far->limit;
    return limit && now_ns() - since > limit;
}

INTERNAL void far_pause(void) {
    if (far->spins <= CROWDED)
        sched_yield();
    else
        CPU_RELAX();
}

/* Whether calls that wait sleep at once, because one has lost its core. */
INTERNAL int far_backs_off(void) { return now_ns() < __atomic_load_n(&far->backoff_until, __ATOMIC_RELAXED); }
