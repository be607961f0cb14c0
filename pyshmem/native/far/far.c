#include "far.h"

#include "../base/spin.h"

INTERNAL far_t *far;

#define TRIAL_NS INT64_C(10000000000) /* the limit of waits in the self-test of a fabric */
INTERNAL int64_t far_wait_limit(void) { return far->trial ? TRIAL_NS : far->limit; }

/* Whether calls that wait sleep at once, because one has lost its core. */
INTERNAL int far_backs_off(void) { return now_ns() < __atomic_load_n(&far->backoff_until, __ATOMIC_RELAXED); }
