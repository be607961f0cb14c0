/* The refusal in which the members meet whose calls differ (differences.h): each tells the others what it has called.
 */
#pragma once
#include "wait.h"

/* What a member tells in a refusal; `syncs` is the epoch of barriers. */
typedef struct {
    uint64_t syncs;
    counters_t counters;
    call_t calls[LAST_CALLS];
    char facts[NOTE];
} told_t;

INTERNAL int team_refuse(team_t *t, const char *facts, told_t *told);
