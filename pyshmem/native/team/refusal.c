#include "refusal.h"

#include <string.h>

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* All members write to all, in refusals only. */
static int meet_apart(team_t *t, uint64_t epoch) {
    uint64_t flags = ROOTS + 8 * (uint64_t)t->n;
    team_complete(t);
    for (int64_t j = 0; j < t->n; j++) team_post(t, j, flags + 8 * (uint64_t)t->me, epoch);
    for (int64_t j = 0; j < t->n; j++)
        if (!team_await(t, flags + 8 * (uint64_t)j, epoch)) return 0;
    return 1;
}

/* Meets the others, tells them `facts`, and hears theirs. Afterwards all have the same counters, which are those of the
 * member that is farthest. */
INTERNAL int team_refuse(team_t *t, const char *facts, told_t *told) {
    counters_t *own = counters(t);
    uint64_t number = own->refusals + 1, *syncs = (uint64_t *)t->area;
    t->call = own->calls;
    if (own->wanted != number) calls_differ(t);
    t->refuses = 1, t->left = DONE;
    memcpy(t->area + FACTS, facts, NOTE);
    if (!meet_apart(t, 2 * number)) return 0;
    for (int64_t j = 0; j < t->n; j++) {
        team_read(t, j, (char *)&told[j].syncs, t->area, sizeof told->syncs);
        team_read(t, j, (char *)&told[j].counters, t->area + COUNTERS, sizeof told->counters);
        team_read(t, j, (char *)told[j].calls, t->area + CALLS, sizeof told->calls);
        team_read(t, j, told[j].facts, t->area + FACTS, NOTE);
    }
    team_complete(t);
    if (!meet_apart(t, 2 * number + 1)) return 0;
    for (int64_t j = 0; j < t->n; j++) {
        *syncs = later(*syncs, told[j].syncs);
        own->notes = later(own->notes, told[j].counters.notes);
        own->exchanges = later(own->exchanges, told[j].counters.exchanges);
        own->calls = later(own->calls, told[j].counters.calls);
        own->history = later(own->history, told[j].counters.history);
    }
    memset(t->area + CALLS, 0, LAST_CALLS * sizeof(call_t)); /* nobody tells of a call twice */
    own->refusals = number;
    return 1;
}
