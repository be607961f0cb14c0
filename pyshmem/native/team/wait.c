#include "wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broken.h"

enum {
    YIELD_NS = 400000,   /* a longer yield means that the core went to a program that computes */
    YIELDS_NS = 2000000, /* if PEs share cores, the longest time that a member yields before it sleeps */
    HASTY = 16,          /* the waits that sleep at once after a long yield */
    MOST_HASTY = 512,    /* HASTY is doubled up to this if another long yield follows */
    HASTY_NS = 50000000, /* within this time */
};

static int sleep_on(team_t *t, uint64_t *word, uint64_t epoch) {
    struct timespec most = {0, 20000000};
    __atomic_store_n(&counters(t)->asleep, 1, __ATOMIC_SEQ_CST);
    uint64_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    if (seen < epoch) syscall(SYS_futex, word, FUTEX_WAIT, (uint32_t)seen, &most, NULL, 0); /* unless it changed */
    __atomic_store_n(&counters(t)->asleep, 0, __ATOMIC_RELAXED);
    return spin_check(&t->spin);
}

/* Yields until the epoch has arrived, and returns whether it has. This is the fastest wait if the core goes to other
 * members that wait too. If a member or another program computes, a yield lasts for milliseconds; the next waits then
 * sleep at once: a few of them after a single long yield, and more if long yields are frequent. */
static int yield_for(team_t *t, const uint64_t *word, uint64_t epoch) {
    counters_t *own = counters(t);
    if (own->hasty) {
        own->hasty--;
        return 0;
    }
    int64_t begun = now_ns(), before = begun, now = begun;
    while (now - before < YIELD_NS && now - begun < YIELDS_NS) {
        before = now;
        sched_yield();
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
        now = now_ns();
    }
    if (now - before < YIELD_NS) return 0;
    own->penalty = now - own->disturbed > HASTY_NS ? HASTY : own->penalty < MOST_HASTY ? 2 * own->penalty : MOST_HASTY;
    own->disturbed = now;
    own->hasty = own->penalty;
    return 0;
}

INTERNAL int team_await(team_t *t, uint64_t offset, uint64_t epoch) {
    uint64_t *word = (uint64_t *)(t->area + offset);
    int crowded = t->spin.spins <= CROWDED;
    if (is_over(t)) return 0;
    for (uint64_t polls = 0; polls < (crowded ? t->spin.spins : helper ? BEFORE_HELP : 200); polls++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
        CPU_RELAX();
    }
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
    team_release_turn(t);
    spin_starts(&t->spin);
    if (crowded && yield_for(t, word, epoch)) return spin_end(&t->spin), 1;
    for (uint64_t turn = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) < epoch; turn++)
        if (!(crowded ? sleep_on(t, word, epoch) : spin_pause(&t->spin)) || calls_must_stop(t, turn)) break;
    spin_end(&t->spin);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch;
}

/* Ends the call for the team: if it has failed here, all members get to know; and what it has read may be of a later
 * time if another one has left it. A member leaves before it touches its arrays again, so a mark then stands. */
INTERNAL void team_close_call(team_t *t) {
    if (t->failed || t->spin.failed)
        team_leave(t);
    else if (t->left == DONE) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (is_broken(t)) t->left = BROKEN;
    }
}
