#include "engine.h"

#include <stdlib.h>

#include "broken.h"
#include "library.h"
#include "refusal.h"

static uint64_t engine_area_bytes(uint64_t n_pes) { return (ROOTS + 16 * n_pes + 63) / 64 * 64; }

static void *engine_new_team(const seat_t *seat) {
    team_t *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->area = seat->area, made->stride = seat->stride, made->me = seat->me, made->n = seat->n;
    made->spin = spin_begin(seat->timeout, seat->spins);
    made->spin.interrupted = (int (*)(spin_t *))seat->watch;
    counters(made)->refusals = seat->stamp << STAMP_BITS;
    return made;
}

static int64_t engine_absent(void *team, int64_t *members) {
    team_t t = *(const team_t *)team;
    int64_t found = 0;
    begun_t *each = calloc((size_t)t.n, sizeof *each + 1);
    char *behind = (char *)(each + t.n);
    if (each) barrier_find_absent(&t, each, behind);
    for (int64_t j = 0; each && j < t.n; j++)
        if (behind[j]) members[found++] = j;
    free(each);
    return found;
}

static void engine_leave(void *team, const char *why) {
    team_t t = *(const team_t *)team;
    team_leave(&t);
    if (team_breaker(&t) != t.me) return;
    memset(t.area + FACTS, 0, NOTE);
    memcpy(t.area + FACTS, why, strlen(why) < NOTE ? strlen(why) : NOTE - 1);
}

static int64_t engine_breaker(void *team, char why[FACT_BYTES]) {
    team_t t = *(const team_t *)team;
    if (!is_broken(&t)) return -1;
    int64_t member = team_breaker(&t);
    const char *there = area_of(&t, member);
    uint64_t theirs = ((const counters_t *)(there + COUNTERS))->refusals;
    memcpy(why, there + FACTS, NOTE);
    why[theirs >> STAMP_BITS == counters(&t)->refusals >> STAMP_BITS ? NOTE - 1 : 0] = 0;
    return member;
}

static int engine_refuse(void *team, const char *facts, said_t *said) {
    team_t t = *(const team_t *)team;
    char note[NOTE];
    told_t *told = calloc((size_t)t.n, sizeof *told);
    if (!told) return CALL_NO_MEMORY;
    memset(note, ' ', NOTE);
    memcpy(note, facts, strlen(facts) < NOTE ? strlen(facts) : NOTE);
    if (is_broken(&t))
        t.left = BROKEN;
    else
        team_refuse(&t, note, told);
    for (int64_t j = 0; j < t.n; j++) {
        uint64_t last = told[j].counters.calls;
        said[j] = (said_t){.number = last, .known = last < LAST_CALLS ? last : LAST_CALLS};
        memcpy(said[j].facts, told[j].facts, NOTE);
        for (uint64_t i = 0; i < said[j].known; i++) {
            const call_t *call = &told[j].calls[(last - i) % LAST_CALLS];
            said[j].words[i] = call->word, said[j].roots[i] = (int64_t)call->root - 1;
        }
    }
    free(told);
    team_close_call(&t);
    return t.spin.failed ? t.spin.failed : t.left == BROKEN ? CALL_BROKEN : CALL_DONE;
}

static void engine_count_in(void *page) { activity = page ? page : &no_activity; }

_Static_assert((int)FACT_BYTES == (int)NOTE && (int)TOLD_CALLS == (int)LAST_CALLS, "as in team.h");

const engine_t pyshmem_engine = {
    &library_calls, engine_area_bytes, engine_new_team, engine_absent,
    engine_leave,   engine_breaker,    engine_refuse,   engine_count_in,
};
