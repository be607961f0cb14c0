/* Members whose calls differ: they notice it, tell all others, and meet in a refusal, which says what each has called.
 *
 * Calls that meet in the same way exchange their words. Others would wait for each other forever: so a member that
 * waits looks at what the others have called, and the first member of each node tells those of the other nodes what it
 * waits in. A member that notices a difference wants all to meet in a refusal. After it all go on alike: they have
 * agreed on the counters of their next call. */
#pragma once
#include "broken.h"
#include "interface.h"

INTERNAL int differ(team_t *t);
INTERNAL int must_stop(team_t *t, uint64_t turn);

/* What a member tells in a refusal; `syncs` is the epoch of barriers. */
typedef struct {
    uint64_t syncs;
    counters_t counters;
    call_t calls[LAST_CALLS];
    char facts[NOTE];
} told_t;

static inline uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }
INTERNAL int refuse(team_t *t, const char *facts, told_t *told);
