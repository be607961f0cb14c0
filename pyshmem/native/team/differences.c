#include "differences.h"

/* A wait looks at the others' calls after so many turns, and after 2, 4, ... times as many. */
enum { LOOK = 1024 };

static void tell_word(team_t *t, int64_t j, uint64_t *word, uint64_t value) {
    if (is_away(t, j))
        team_send(t, j, (char *)word, (char *)&value, sizeof value);
    else
        __atomic_store_n((uint64_t *)place_of(t, j, word), value, __ATOMIC_RELEASE);
}

/* Tells all members that they shall meet in a refusal, because of a call of this number, and returns 0. Members that
 * are in earlier calls end them first. */
static int differ_in(team_t *t, uint64_t number) {
    counters_t *own = counters(t);
    uint64_t wanted = own->refusals + 1;
    t->left = DIFFERENT;
    for (int64_t j = 0; j < t->n && !t->refuses; j++) {
        tell_word(t, j, &own->wanted_from, number);
        tell_word(t, j, &own->wanted, wanted);
    }
    return 0;
}
INTERNAL int calls_differ(team_t *t) { return differ_in(t, t->call); }

/* What must be the same in two calls of one number. The root tells the others of another size of a small broadcast. */
static uint64_t call_key(call_t c) {
    uint64_t word = c.word >> 56 == WORD_BROADCAST ? WORD_BROADCAST : c.word;
    return (word ^ c.root * UINT64_C(0xD6E8FEB86659FD93)) * UINT64_C(0x9E3779B97F4A7C15);
}
enum { KEY_BITS = 24 }; /* of what one node tells another: the number of a call, and these bits of its key */
static uint64_t told_of(uint64_t number, call_t c) { return number << KEY_BITS | call_key(c) >> (64 - KEY_BITS); }

/* The number of a call in which a near member has made another one than this PE, or 0. */
static uint64_t differs_from(const team_t *t, int64_t j) {
    char *there = area_of(t, j);
    uint64_t *calls = &((counters_t *)(there + COUNTERS))->calls;
    uint64_t theirs = __atomic_load_n(calls, __ATOMIC_ACQUIRE), number = theirs < t->call ? theirs : t->call;
    if (!number || number + LAST_CALLS - 1 <= t->call) return 0;
    call_t call = *call_at(there, number);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (number + LAST_CALLS - 1 <= __atomic_load_n(calls, __ATOMIC_RELAXED)) return 0; /* it was another by then */
    call_t own = *call_at(t->area, number); /* its word is 0 if it has been refused */
    return own.word && call.word && call_key(call) != call_key(own) ? number : 0;
}

/* The number of another call of which another node has told, or 0. Tells those nodes of this one. */
static uint64_t differs_between(team_t *t) {
    uint64_t heard = __atomic_load_n(&counters(t)->heard, __ATOMIC_ACQUIRE), number = heard >> KEY_BITS;
    uint64_t told = told_of(t->call, *call_at(t->area, t->call));
    int64_t home = t->node[t->me];
    for (int64_t node = 0; t->leaders[home] == t->me && node < t->nodes; node++)
        if (node != home) tell_word(t, t->leaders[node], &counters(t)->heard, told);
    int known = number && number <= t->call && number + LAST_CALLS > t->call && call_at(t->area, number)->word;
    return known && heard != told_of(number, *call_at(t->area, number)) ? number : 0;
}

/* Called in a wait, `turn` times so far. Returns whether the wait must end; then `left` says why. */
INTERNAL int calls_must_stop(team_t *t, uint64_t turn) {
    if (is_alarmed(t)) return 1;
    if (turn & (turn - 1) || (turn < LOOK && t->spin.spins > CROWDED) || t->refuses) return 0;
    int is_long = t->nodes > 1 && t->spin.started && now_ns() - t->spin.started > LONG_NS;
    uint64_t number = is_long ? differs_between(t) : 0;
    for (int64_t j = 0; j < t->n && !number; j++) number = j == t->me || is_away(t, j) ? 0 : differs_from(t, j);
    if (number) differ_in(t, number);
    return number != 0;
}
