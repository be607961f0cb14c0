#include "team.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Begins a call, and returns whether it may go on. root: of a broadcast, or -1. What the call is stands in the ring
 * before its number is the last. */
INTERNAL int team_begin_rooted(team_t *t, uint64_t word, int64_t root) {
    counters_t *own = counters(t);
    t->call = own->calls + 1;
    *call_at(t->area, t->call) = (call_t){word, (uint64_t)(root + 1)};
    __atomic_store_n(&own->calls, t->call, __ATOMIC_RELEASE);
    activity->meetings++;
    t->word = word + (uint64_t)(root + 1) * UINT64_C(0xD6E8FEB86659FD93);
    t->said = t->word ^ (t->call << FLAG_BITS | own->history) * UINT64_C(0x9E3779B97F4A7C15);
    return !is_alarmed(t);
}
INTERNAL int team_begin(team_t *t, uint64_t word) { return team_begin_rooted(t, word, -1); }
INTERNAL void team_release_turn(team_t *t) {
    if (t->host && !t->released) t->released = t->host->release();
}

/* Records the result of a request to a far member: after a failure the call makes no further requests and ends. */
INTERNAL void team_note(team_t *t, link_t *failed) {
    if (failed) {
        t->failed = failed;
        t->spin.failed = 1;
    }
}

INTERNAL void team_complete(team_t *t) {
    if (t->nodes > 1 && !t->failed) {
        team_release_turn(t);
        caller.released = t->released, caller.raised = 0;
        team_note(t, far_quiet());
        caller.released = NULL;
        if (t->failed && caller.raised) far_end_gets();
    }
}

/* Copies to member j, or from it; dest and source are addresses of this PE. A far copy is complete after `complete`. */
INTERNAL void team_send(team_t *t, int64_t j, char *dest, const char *source, uint64_t nbytes) {
    uint64_t to = place_of(t, j, dest);
    if (!is_away(t, j)) {
        copy_bytes((char *)to, source, nbytes);
        return;
    }
    team_release_turn(t);
    if (!t->failed) team_note(t, far_put(to, source, nbytes));
}
INTERNAL void team_read(team_t *t, int64_t j, char *dest, const char *source, uint64_t nbytes) {
    uint64_t from = place_of(t, j, source);
    if (!is_away(t, j)) {
        copy_bytes(dest, (char *)from, nbytes);
        return;
    }
    team_release_turn(t);
    if (!t->failed) team_note(t, far_get(dest, from, nbytes, 0));
}

/* Stores an epoch into a word of a far member's area, after nbytes of data. */
INTERNAL void team_post_far(team_t *t, int64_t j, uint64_t offset, uint64_t epoch, char *dest, const char *source,
                            uint64_t nbytes) {
    team_release_turn(t);
    uint64_t area = place_of(t, j, t->area), asleep = area + COUNTERS + offsetof(counters_t, asleep);
    if (!t->failed) team_note(t, far_post(place_of(t, j, dest), source, nbytes, area + offset, epoch, asleep));
}

/* Stores an epoch into a word of member j's area, with release order. If PEs share cores, a sleeping member is woken.
 * It sleeps because a yield could give its core to another program for milliseconds. */
INTERNAL void team_post(team_t *t, int64_t j, uint64_t offset, uint64_t epoch) {
    if (is_away(t, j)) {
        team_post_far(t, j, offset, epoch, NULL, NULL, 0);
        return;
    }
    uint64_t *word = (uint64_t *)(area_of(t, j) + offset);
    __atomic_store_n(word, epoch, __ATOMIC_RELEASE);
    if (t->spin.spins > CROWDED) return;
    __atomic_thread_fence(
        __ATOMIC_SEQ_CST); /* either this PE sees that the member sleeps, or the member sees the word */
    if (__atomic_load_n(&((counters_t *)(area_of(t, j) + COUNTERS))->asleep, __ATOMIC_RELAXED))
        syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
