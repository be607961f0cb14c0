/* Teams, whose members meet and tell each other of their calls. They write into each other's memory: into that of
 * members on this node by stores, into that of far members by requests (_far.h).
 *
 * A team owns one area, which has the same offset on each member. It contains the epoch and flags of the barrier (2048
 * bytes), two notes, counters of the calls that this PE has begun, mailboxes for small exchanges, what the last calls
 * were, and flags for each member. Members make the same calls in the same order, so equal counters mean the same call.
 * Each call has a word, which tells routine, type, size and root. What members exchange as they meet also has the
 * number of the call, so that no two calls are combined: if it differs the call ends with the outcome DIFFERENT on all
 * of them
 * (_differences.h), before it has written results. If an exception or a time-out ends a call on one member, all others
 * get the outcome BROKEN, in this call and in later ones (_broken.h). Epochs only grow, and nothing is reset between
 * calls. A call waits for every store of a peer into this PE's area before it returns, so an idle area can be reused by
 * another team; only the two alarms may come later, and they tell for which team they are.
 *
 * A member may pass private memory, which the others cannot reach and do not know of. It tells them before they meet,
 * and then the call ends with the outcome STAGED on all of them, and pyshmem.transport.teams.staging completes it. */
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>

#include "_far.h"

enum {
    NOTE = 256,   /* bytes of a note */
    NOTES = 2048, /* offset of the two notes */
    COUNTERS = NOTES + 2 * NOTE,
    FLAT = 16,     /* up to this number of members, each writes to every other directly */
    MAILBOX = 128, /* an epoch, a word and a payload, two cache lines */
    PAYLOAD = MAILBOX - 16,
    MAILBOXES = COUNTERS + 256,
    STREAMED = MAILBOXES + 2 * FLAT * MAILBOX, /* the marks of the last calls on streams, see _streamed.h */
    STREAMED_CALLS = 16,
    CALLS = STREAMED + 8 * STREAMED_CALLS, /* the last calls, see call_t */
    LAST_CALLS = 16,
    FACTS = CALLS + 16 * LAST_CALLS, /* what this PE tells in words of a call that is refused or that it has left */
    ROOTS = FACTS + NOTE,            /* a flag of each root, and then one of each member, of refusals */
    YIELD_NS = 400000,               /* a longer yield means that the core went to a program that computes */
    YIELDS_NS = 2000000,             /* if PEs share cores, the longest time that a member yields before it sleeps */
    LOOK = 1024,         /* a wait looks at the others' calls after so many turns, and after 2, 4, ... times as many */
    HASTY = 16,          /* the waits that sleep at once after a long yield */
    MOST_HASTY = 512,    /* HASTY is doubled up to this if another long yield follows */
    HASTY_NS = 50000000, /* within this time */
    NO_MEMORY = 3,       /* why a call has failed, as in spin_t */
    INWARDS = 1,
    BETWEEN = 11,
    OUTWARDS = 22, /* the first flags of the three parts of a barrier over several nodes */
};
/* What remains to be done: nothing; everything, because nothing has happened; the call through staging memory; an
 * error, because the target is private here, or on the member through which the data come, and symmetric on the root;
 * an error, because the members' calls differ; an error of this member alone, because its broadcast is not the root's;
 * an error, because a member has left a call before its end.
 */
enum { DONE, UNTOUCHED, STAGED, REFUSED, DIFFERENT, UNLIKE, BROKEN };

/* calls: those that this PE has begun. Alarms: wanted, the refusal in which all members shall meet that have begun
 * call wanted_from; broken, the member that has left a call; refusals is the last refusal. They begin with the stamp of
 * the team, above STAMP_BITS.
 * heard: a call that another node waits in. staged, refused: the last call in which a member has told of private
 * memory, and the last that another one has refused. from: the source of this PE as root, from its area on. history:
 * the broadcasts in which nobody met, see _collectives.h. streamed: the calls on streams, and their history. */
typedef struct {
    uint64_t notes, exchanges, calls, asleep, broken, wanted, refusals, history;
    uint64_t hasty, penalty;
    int64_t disturbed;
    uint64_t staged, refused;
    int64_t from;
    uint64_t streamed, streamed_history, heard, wanted_from;
} counters_t;
/* FLAG_BITS: below the number of a call in flags of broadcasts, and wide enough for a history */
enum { STAMP_BITS = 16, FLAG_BITS = 16 };

/* A call that this PE has begun: in the ring CALLS, by its number. root: and 1, of a broadcast; or 0. */
typedef struct {
    uint64_t word, root;
} call_t;
/* away: the distance to each member's memory, if it is not (j - me) * stride; for far members, to places of _links.h.
 * node: the number of each member's node, if there are several. leaders: the first member on each node. locals: the
 * members on this node. bare: whether C calls, which has no GIL to release. */
typedef struct {
    char *area;
    int64_t stride, me, n;
    const int64_t *away, *node, *leaders, *locals;
    int64_t nodes, n_locals;
    spin_t spin;
    PyThreadState *released;
    link_t *failed;
    int left, bare, refuses;
    /* the number of the call, what it is, and both with the history, which tells it from all other calls */
    uint64_t call, word, said;
} team_t;

static int to_numbers(PyObject *bytes, const int64_t **numbers, int64_t *count) {
    char *text;
    Py_ssize_t length;
    if (!bytes || PyBytes_AsStringAndSize(bytes, &text, &length)) return 0;
    *numbers = (const int64_t *)text;
    *count = length / 8;
    return 1;
}

/* Reads who the members of a team are, from (area, bytes between the areas of neighbours, me, n), or with a table (...,
 * away, node, leaders, locals), each an array of int64 as bytes; the last three are empty on one node. */
static int to_members(PyObject *wires, team_t *t) {
    PyObject *team[4];
    uint64_t area;
    int64_t n;
    for (int i = 0; i < 4; i++)
        if (!(team[i] = PyTuple_GetItem(wires, i))) return 0;
    if (!to_u64(team[0], &area) || !to_i64(team[1], &t->stride) || !to_i64(team[2], &t->me) || !to_i64(team[3], &t->n))
        return 0;
    t->area = (char *)area;
    t->away = t->node = NULL;
    t->nodes = 0;
    return PyTuple_Size(wires) == 4 || (to_numbers(PyTuple_GetItem(wires, 4), &t->away, &n) &&
                                        to_numbers(PyTuple_GetItem(wires, 5), &t->node, &n) &&
                                        to_numbers(PyTuple_GetItem(wires, 6), &t->leaders, &t->nodes) &&
                                        to_numbers(PyTuple_GetItem(wires, 7), &t->locals, &t->n_locals));
}

/* Reads the first three arguments of every collective: team, timeout, spins. */
static int to_team(PyObject *const *args, team_t *t) {
    uint64_t spins;
    double timeout;
    if (!to_members(args[0], t) || !to_f64(args[1], &timeout) || !to_u64(args[2], &spins)) return 0;
    t->spin = spin_begin(timeout, spins);
    t->spin.interrupted = handle_signals;
    t->spin.with = &t->released;
    t->released = NULL;
    t->bare = 0;
    t->call = t->word = t->said = 0;
    t->refuses = 0;
    t->failed = NULL;
    t->left = DONE;
    return 1;
}

static inline int64_t distance(const team_t *t, int64_t j) { return t->away ? t->away[j] : (j - t->me) * t->stride; }
static inline uint64_t place_of(const team_t *t, int64_t j, const void *here) {
    return (uint64_t)here + (uint64_t)distance(t, j);
}
static inline char *area_of(const team_t *t, int64_t j) { return (char *)place_of(t, j, t->area); }
static inline int is_away(const team_t *t, int64_t j) { return t->away && is_far(place_of(t, j, t->area)); }
static inline counters_t *counters(const team_t *t) { return (counters_t *)(t->area + COUNTERS); }
static inline call_t *call_at(const char *area, uint64_t number) {
    return (call_t *)(area + CALLS) + number % LAST_CALLS;
}

/* Whether a member has left a call, or wants this PE to meet the others in a refusal. */
static inline int is_broken(const team_t *t) {
    uint64_t broken = __atomic_load_n(&counters(t)->broken, __ATOMIC_RELAXED);
    return __builtin_expect(broken != 0, 0) && broken >> STAMP_BITS == counters(t)->refusals >> STAMP_BITS;
}
static inline int is_wanted(const team_t *t) {
    counters_t *own = counters(t);
    if (__builtin_expect(__atomic_load_n(&own->wanted, __ATOMIC_ACQUIRE) != own->refusals + 1, 1)) return 0;
    return t->call >= own->wanted_from && !t->refuses;
}
/* Whether the call must not go on: then `left` says why. */
static inline int is_alarmed(team_t *t) {
    if (is_broken(t)) return t->left = BROKEN;
    return is_wanted(t) ? t->left = DIFFERENT : 0;
}
static inline int is_over(const team_t *t) {
    return t->failed || t->spin.failed || t->left == DIFFERENT || t->left == BROKEN;
}

/* Begins a call, and returns whether it may go on. root: of a broadcast, or -1. What the call is stands in the ring
 * before its number is the last. */
static int begin_rooted(team_t *t, uint64_t word, int64_t root) {
    counters_t *own = counters(t);
    t->call = own->calls + 1;
    *call_at(t->area, t->call) = (call_t){word, (uint64_t)(root + 1)};
    __atomic_store_n(&own->calls, t->call, __ATOMIC_RELEASE);
    activity->meetings++;
    t->word = word + (uint64_t)(root + 1) * UINT64_C(0xD6E8FEB86659FD93);
    t->said = t->word ^ (t->call << FLAG_BITS | own->history) * UINT64_C(0x9E3779B97F4A7C15);
    return !is_alarmed(t);
}
static int begin(team_t *t, uint64_t word) { return begin_rooted(t, word, -1); }
static void release_gil(team_t *t) {
    if (!t->bare && !t->released) t->released = PyEval_SaveThread();
}

static void leave_team(team_t *t);              /* of _broken.h */
static int must_stop(team_t *t, uint64_t turn); /* of _differences.h */

/* Ends the call for the team: if it has failed here, all members get to know; and what it has read may be of a later
 * time if another one has left it. A member leaves before it touches its arrays again, so a mark then stands. */
static void close_call(team_t *t) {
    if (t->failed || t->spin.failed)
        leave_team(t);
    else if (t->left == DONE) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (is_broken(t)) t->left = BROKEN;
    }
}

/* Ends a call: takes the GIL, and raises the error of a failed wait. */
static int finish(team_t *t) {
    close_call(t);
    if (t->failed) return Py_XDECREF(far_result(t->released, t->failed, "collective")), 0;
    if (t->released) PyEval_RestoreThread(t->released);
    if (t->spin.failed == NO_MEMORY)
        PyErr_NoMemory();
    else if (t->spin.failed)
        spin_error(&t->spin);
    return !t->spin.failed;
}

static PyObject *left(team_t *t) { return finish(t) ? PyLong_FromLong(t->left) : NULL; }

/* Records the result of a request to a far member: after a failure the call makes no further requests and ends. */
static void note(team_t *t, link_t *failed) {
    if (failed) {
        t->failed = failed;
        t->spin.failed = 1;
    }
}

static void complete(team_t *t) {
    if (t->nodes > 1 && !t->failed) {
        release_gil(t);
        caller.released = t->released, caller.raised = 0;
        note(t, far_quiet());
        caller.released = NULL;
        if (t->failed && caller.raised) end_gets();
    }
}

/* Copies to member j, or from it; dest and source are addresses of this PE. A far copy is complete after `complete`. */
static void send_to(team_t *t, int64_t j, char *dest, const char *source, uint64_t nbytes) {
    uint64_t to = place_of(t, j, dest);
    if (!is_away(t, j)) {
        memcpy((char *)to, source, nbytes);
        return;
    }
    release_gil(t);
    if (!t->failed) note(t, far_put(to, source, nbytes));
}
static void read_from(team_t *t, int64_t j, char *dest, const char *source, uint64_t nbytes) {
    uint64_t from = place_of(t, j, source);
    if (!is_away(t, j)) {
        memcpy(dest, (char *)from, nbytes);
        return;
    }
    release_gil(t);
    if (!t->failed) note(t, far_get(dest, from, nbytes, 0));
}

/* Stores an epoch into a word of a far member's area, after nbytes of data. */
static void post_far(team_t *t, int64_t j, uint64_t offset, uint64_t epoch, char *dest, const char *source,
                     uint64_t nbytes) {
    release_gil(t);
    uint64_t area = place_of(t, j, t->area), asleep = area + COUNTERS + offsetof(counters_t, asleep);
    if (!t->failed) note(t, far_post(place_of(t, j, dest), source, nbytes, area + offset, epoch, asleep));
}

/* Stores an epoch into a word of member j's area, with release order. If PEs share cores, a sleeping member is woken.
 * It sleeps because a yield could give its core to another program for milliseconds. */
static void post(team_t *t, int64_t j, uint64_t offset, uint64_t epoch) {
    if (is_away(t, j)) {
        post_far(t, j, offset, epoch, NULL, NULL, 0);
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

static int await(team_t *t, uint64_t offset, uint64_t epoch) {
    uint64_t *word = (uint64_t *)(t->area + offset);
    int crowded = t->spin.spins <= CROWDED;
    if (is_over(t)) return 0;
    for (uint64_t polls = 0; polls < (crowded ? t->spin.spins : helper ? BEFORE_HELP : 200); polls++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
        CPU_RELAX();
    }
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
    release_gil(t);
    spin_starts(&t->spin);
    if (crowded && yield_for(t, word, epoch)) return spin_end(&t->spin), 1;
    for (uint64_t turn = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) < epoch; turn++)
        if (!(crowded ? sleep_on(t, word, epoch) : spin_pause(&t->spin)) || must_stop(t, turn)) break;
    spin_end(&t->spin);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch;
}
