/* Teams, whose members meet and tell each other of their calls. They write into each other's memory: into that of
 * members on this node by stores, into that of far members by requests (_far.h).
 *
 * A team owns one area, which has the same offset on each member. It contains the epoch and flags of the barrier (2048
 * bytes), two notes, counters of the calls that this PE has begun, mailboxes for small exchanges, and one flag for each
 * possible root. Members make the same calls in the same order, so equal counters mean the same call. Each call has a
 * word, which tells routine, type and size: members exchange it as they meet, and if they differ the call ends with the
 * outcome DIFFERENT on all of them, before it has written results. Epochs only grow,
 * and nothing is reset between calls. A call waits for every store of a peer into this PE's area before it returns, so
 * an idle area can be reused by another team.
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
    MAILBOXES = COUNTERS + 128,
    STREAMED = MAILBOXES + 2 * FLAT * MAILBOX, /* the marks of the last calls on streams, see _streamed.h */
    STREAMED_CALLS = 16,
    ROOTS = STREAMED + 8 * STREAMED_CALLS,
    YIELD_NS = 400000,   /* a longer yield means that the core went to a program that computes */
    YIELDS_NS = 2000000, /* if PEs share cores, the longest time that a member yields before it sleeps */
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
 * an error, because the members' calls differ; an error of this member alone, because its broadcast is not the root's.
 */
enum { DONE, UNTOUCHED, STAGED, REFUSED, DIFFERENT, UNLIKE };

/* calls: those that this PE has begun. staged, refused: the last call in which a member has told of private memory, and
 * the last that another one has refused. from: the source of this PE as root, from its area on. history: the broadcasts
 * in which nobody met, see _collectives.h. streamed: the calls on streams, and their history. */
typedef struct {
    uint64_t notes, exchanges, calls, asleep, hasty, penalty;
    int64_t disturbed;
    uint64_t staged, refused;
    int64_t from;
    uint64_t history, streamed, streamed_history;
} counters_t;
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
    int left, bare;
    uint64_t call, word; /* the number of the call, and what it is */
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
    t->call = t->word = 0;
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
static void begin(team_t *t, uint64_t word) {
    t->call = ++counters(t)->calls;
    activity->meetings++;
    t->word = word;
}
static void release_gil(team_t *t) {
    if (!t->bare && !t->released) t->released = PyEval_SaveThread();
}

/* Ends a call: takes the GIL, and raises the error of a failed wait. */
static int finish(team_t *t) {
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
    if (t->failed) return 0;
    for (uint64_t polls = 0; polls < (crowded ? t->spin.spins : helper ? BEFORE_HELP : 200); polls++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
        CPU_RELAX();
    }
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
    release_gil(t);
    spin_starts(&t->spin);
    if (crowded && yield_for(t, word, epoch)) return spin_end(&t->spin), 1;
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < epoch)
        if (!(crowded ? sleep_on(t, word, epoch) : spin_pause(&t->spin))) break;
    spin_end(&t->spin);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch;
}

static int differ(team_t *t) {
    t->left = DIFFERENT;
    return 0;
}

/* The least and the greatest word of the members from which this PE has heard. */
typedef struct {
    uint64_t least, most;
} words_t;

/* A dissemination barrier of `n` members, of which this PE is number `me`, with flags from `flag` on. members: NULL:
 * all of the team. Beside each flag are two places for words, which alternate: the sender may be one epoch ahead. */
static int disseminate_among(team_t *t, const int64_t *members, int64_t n, int64_t me, uint64_t flag, uint64_t epoch,
                             words_t *words) {
    for (int64_t step = 1; step < n; step *= 2, flag++) {
        int64_t to = members ? members[(me + step) % n] : (me + step) % n;
        uint64_t place = 64 * flag + 8 + (epoch & 1) * sizeof *words;
        if (is_away(t, to))
            post_far(t, to, 64 * flag, epoch, t->area + place, (const char *)words, sizeof *words);
        else {
            memcpy(area_of(t, to) + place, words, sizeof *words);
            post(t, to, 64 * flag, epoch);
        }
        if (!await(t, 64 * flag, epoch)) return 0;
        const words_t *heard = (const words_t *)(t->area + place);
        if (heard->least < words->least) words->least = heard->least;
        if (heard->most > words->most) words->most = heard->most;
    }
    return 1;
}

static int64_t index_of(const int64_t *members, int64_t member) {
    int64_t i = 0;
    while (members[i] != member) i++;
    return i;
}

/* The barrier: of each node, of the leaders, and of each node again. The epoch is in the first 64 bytes of the area;
 * flags follow, 64 bytes apart. */
static int disseminate(team_t *t) {
    uint64_t epoch = ++*(uint64_t *)t->area;
    int passed = 1;
    words_t words = {t->word, t->word};
    /* seq_cst: a load after the barrier must not overtake a store of this PE before it (store buffering) */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (t->nodes > 1) {
        int64_t me = index_of(t->locals, t->me);
        passed = disseminate_among(t, t->locals, t->n_locals, me, INWARDS, epoch, &words) &&
                 (me || disseminate_among(t, t->leaders, t->nodes, t->node[t->me], BETWEEN, epoch, &words)) &&
                 disseminate_among(t, t->locals, t->n_locals, me, OUTWARDS, epoch, &words);
    } else
        passed = disseminate_among(t, NULL, t->n, t->me, INWARDS, epoch, &words);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return passed && (words.least == words.most || differ(t));
}

/* Sends the payload of each member to every other member, for at most FLAT members. Member j's payload is at
 * *mailboxes + j * MAILBOX + 16. Two alternating sets of mailboxes are sufficient: before a member writes into a set
 * again, it has received the payloads of the exchange between, which the others sent after they had read this set. */
static int exchange(team_t *t, const void *payload, uint64_t nbytes, const char **mailboxes) {
    uint64_t epoch = ++counters(t)->exchanges;
    uint64_t set = MAILBOXES + (epoch & 1) * FLAT * MAILBOX;
    for (int64_t k = 1; k <= t->n; k++) {
        int64_t j = (t->me + k) % t->n;
        uint64_t mailbox = set + (uint64_t)t->me * MAILBOX;
        if (is_away(t, j)) {
            char letter[8 + PAYLOAD];
            memcpy(letter, &t->word, 8);
            memcpy(letter + 8, payload, nbytes);
            post_far(t, j, mailbox, epoch, t->area + mailbox + 8, letter, 8 + nbytes);
            continue;
        }
        char *to = area_of(t, j) + mailbox;
        memcpy(to + 8, &t->word, 8);
        memcpy(to + 16, payload, nbytes);
        post(t, j, mailbox, epoch);
    }
    *mailboxes = t->area + set;
    int alike = 1;
    for (int64_t k = 1; k < t->n; k++) {
        uint64_t mailbox = set + (uint64_t)((t->me + t->n - k) % t->n) * MAILBOX;
        if (!await(t, mailbox, epoch)) return 0;
        alike &= *(const uint64_t *)(t->area + mailbox + 8) == t->word;
    }
    return alike || differ(t);
}

/* A barrier. Stores and copies that a member made before it are visible to all members after it. */
static int meet(team_t *t) {
    const char *mailboxes;
    if (t->n <= FLAT) return exchange(t, "", 0, &mailboxes); /* every member posts to every other, behind its copies */
    complete(t);
    return disseminate(t);
}

/* Stores the number of this call into a word of all members. The caller then posts to them. */
static void tell(team_t *t, uint64_t *word, uint64_t call) {
    for (int64_t j = 0; j < t->n; j++) send_to(t, j, (char *)word, (const char *)&call, sizeof call);
    complete(t);
}

/* A barrier, after which all members know whether the memory of one of them is private. Returns whether the call can go
 * on. */
static int agree(team_t *t, int private) {
    counters_t *own = counters(t);
    if (private) tell(t, &own->staged, t->call);
    if (!meet(t)) return 0;
    if (own->staged == t->call) t->left = STAGED;
    return t->left == DONE;
}

/* agree(team, timeout, spins, private, word) -> what is left to do: DONE means nothing special. */
static PyObject *py_agree(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    int64_t private;
    uint64_t word;
    if (!arity("agree", n, 5) || !to_team(args, &t) || !to_i64(args[3], &private) || !to_u64(args[4], &word))
        return NULL;
    begin(&t, word);
    agree(&t, private != 0);
    return left(&t);
}

/* area_bytes(n_pes) -> the bytes of an area for a team of up to n_pes PEs. */
static PyObject *py_area_bytes(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t n_pes;
    if (!arity("area_bytes", n, 1) || !to_u64(args[0], &n_pes)) return NULL;
    return PyLong_FromUnsignedLongLong((ROOTS + 8 * n_pes + 63) / 64 * 64);
}

/* sync(team, timeout, spins[, word]) -> what is left to do: DONE or DIFFERENT. The word of a mere barrier is 0. */
static PyObject *py_sync(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    uint64_t word = 0;
    if ((n != 3 && !arity("sync", n, 4)) || !to_team(args, &t) || (n == 4 && !to_u64(args[3], &word))) return NULL;
    begin(&t, word);
    disseminate(&t);
    return left(&t);
}

/* Whether member j has not yet reached the call that this PE is in: it has begun fewer calls of some kind than this PE.
 */
static int is_behind(team_t *t, int64_t j) {
    counters_t theirs = {0}, *own = counters(t);
    uint64_t syncs = 0;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    read_from(t, j, (char *)&syncs, t->area, sizeof syncs);
    read_from(t, j, (char *)&theirs, t->area + COUNTERS, sizeof theirs);
    complete(t);
    return t->failed || syncs < *(uint64_t *)t->area || theirs.notes < own->notes ||
           theirs.exchanges < own->exchanges || theirs.calls < own->calls;
}

/* absent(team, timeout, spins) -> the members that have not reached the call in which this PE timed out. */
static PyObject *py_absent(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    if (!arity("absent", n, 3) || !to_team(args, &t)) return NULL;
    PyObject *found = PyList_New(0);
    for (int64_t j = 0; found && j < t.n; j++) {
        int behind = is_behind(&t, j);
        if (t.released) PyEval_RestoreThread(t.released);
        t.released = NULL;
        t.failed = NULL;
        if (!behind) continue;
        PyObject *member = PyLong_FromLongLong(j);
        if (!member || PyList_Append(found, member)) Py_CLEAR(found);
        Py_XDECREF(member);
    }
    return found;
}

/* Collects the notes of all members in `all`. All notes have the same length, at most NOTE; a barrier. The two notes of
 * an area alternate, as the mailboxes of exchange do. */
static int share(team_t *t, const char *note, uint64_t length, char *all) {
    uint64_t offset = NOTES + (++counters(t)->notes & 1) * NOTE;
    memcpy(t->area + offset, note, length);
    if (!meet(t)) {
        if (t->left == DIFFERENT)
            counters(t)->notes--; /* the others may not have written a note, and nobody reads it */
        return 0;
    }
    for (int64_t j = 0; j < t->n; j++) read_from(t, j, all + (uint64_t)j * length, t->area + offset, length);
    complete(t);
    return !t->failed;
}

/* share(team, timeout, spins, note, word) -> the concatenated notes of all members, or None if their words differ. All
 * notes have the same length, at most NOTE. */
static PyObject *py_share(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    char *note;
    Py_ssize_t length;
    uint64_t word;
    if (!arity("share", n, 5) || !to_team(args, &t) || PyBytes_AsStringAndSize(args[3], &note, &length) ||
        !to_u64(args[4], &word))
        return NULL;
    if (length > NOTE) {
        PyErr_SetString(PyExc_ValueError, "the note is too long");
        return NULL;
    }
    begin(&t, word);
    PyObject *all = PyBytes_FromStringAndSize(NULL, t.n * length);
    if (!all) return NULL;
    share(&t, note, (uint64_t)length, PyBytes_AsString(all));
    if (!finish(&t)) Py_CLEAR(all);
    if (all && t.left == DIFFERENT) {
        Py_DECREF(all);
        Py_RETURN_NONE;
    }
    return all;
}

static PyMethodDef team_methods[] = {METHOD(agree),  METHOD(area_bytes), METHOD(sync),
                                     METHOD(absent), METHOD(share),      LAST_METHOD};
