/* Collectives of teams. _native.c includes this file. Callers have checked all arguments but types. Members write into each other's
 * memory: into that of members on this node by stores, into that of far members by requests (_far.h).
 *
 * A team owns one area, which has the same offset on each member. It contains the epoch and flags of the barrier (2048 bytes),
 * two notes, counters of the calls that this PE has begun, mailboxes for small exchanges, and one flag for each possible root.
 * Members make the same calls in the same order, so equal counters mean the same call. Epochs only grow, and nothing is reset
 * between calls. A call waits for every store of a peer into this PE's area before it returns, so an idle area can be reused by
 * another team.
 *
 * A member may pass private memory, which the others cannot reach and do not know of. It tells them before they meet, and the call
 * then ends with the outcome STAGED on all of them: pyshmem.transport.teams.staging does the rest. */
enum {
    NOTE = 256, NOTES = 2048,       /* bytes of a note; offset of the two notes */
    COUNTERS = NOTES + 2 * NOTE,
    FLAT = 16,                      /* up to this number of members, each writes to every other directly */
    MAILBOX = 128, PAYLOAD = MAILBOX - 8, /* an epoch and a payload, two cache lines */
    MAILBOXES = COUNTERS + 128,
    ROOTS = MAILBOXES + 2 * FLAT * MAILBOX,
    PULL_BYTES = 1 << 19,           /* from this total size on, the members read from the root instead of the root writing */
    YIELD_NS = 400000,              /* a longer yield means that the core went to a program that computes */
    HASTY = 16, MOST_HASTY = 512,   /* the waits that sleep at once after a long yield; doubled if there is another one */
    HASTY_NS = 50000000,            /* within this time */
    YIELDS_NS = 2000000,            /* if PEs share cores, the longest time that a member yields before it sleeps */
    NO_MEMORY = 3,                  /* why a call has failed, as in spin_t */
    INWARDS = 1, BETWEEN = 11, OUTWARDS = 22, /* the first flags of the three parts of a barrier over several nodes */
    BLOCK = 8192,                   /* bytes of a reduction that are combined at a time, so that they stay in the L1 cache */
    PRIVATE_TARGET = 1,             /* a bit of `private`; another one stands for the source */
};
/* What is left to do: nothing; all, because nothing has happened; the call through staging memory; an error, because the target is
 * private here, or on the member through which the data come, and symmetric on the root. */
enum { DONE, UNTOUCHED, STAGED, REFUSED };

/* calls: the collectives that move data, without reductions through mailboxes. staged, refused: the last call in which a member has
 * told of private memory, and the last that another one has refused. from: the source of this PE as root, from its area on. */
typedef struct { uint64_t notes, exchanges, calls, asleep, hasty, penalty; int64_t disturbed; uint64_t staged, refused; int64_t from; } counters_t;
/* away: the distance to each member's memory, if it is not (j - me) * stride; for far members, to places of _far.h. node: the number
 * of each member's node, if there are several. leaders: the first member on each node. locals: the members on this node. */
typedef struct {
    char *area;
    int64_t stride, me, n;
    const int64_t *away, *node, *leaders, *locals;
    int64_t nodes, n_locals;
    spin_t spin;
    PyThreadState *released;
    link_t *failed;
    int left;
} team_t;

static int to_numbers(PyObject *bytes, const int64_t **numbers, int64_t *count) {
    char *text;
    Py_ssize_t length;
    if (!bytes || PyBytes_AsStringAndSize(bytes, &text, &length)) return 0;
    *numbers = (const int64_t *)text;
    *count = length / 8;
    return 1;
}

/* Reads the first three arguments of every collective: team, timeout, spins. The team is (area, bytes between the areas of neighbours,
 * me, n), and with a table (..., away, node, leaders, locals), each an array of int64 as bytes; the last three are empty on one node. */
static int to_team(PyObject *const *args, team_t *t) {
    PyObject *team[4];
    uint64_t area, spins;
    double timeout;
    for (int i = 0; i < 4; i++)
        if (!(team[i] = PyTuple_GetItem(args[0], i))) return 0;
    if (!to_u64(team[0], &area) || !to_i64(team[1], &t->stride) || !to_i64(team[2], &t->me) || !to_i64(team[3], &t->n) ||
        !to_f64(args[1], &timeout) || !to_u64(args[2], &spins))
        return 0;
    t->area = (char *)area;
    t->spin = spin_begin(timeout, spins);
    t->released = NULL;
    t->failed = NULL;
    t->left = DONE;
    t->away = t->node = NULL;
    t->nodes = 0;
    if (PyTuple_Size(args[0]) == 4) return 1;
    int64_t n;
    int read = to_numbers(PyTuple_GetItem(args[0], 4), &t->away, &n) && to_numbers(PyTuple_GetItem(args[0], 5), &t->node, &n) &&
               to_numbers(PyTuple_GetItem(args[0], 6), &t->leaders, &t->nodes) && to_numbers(PyTuple_GetItem(args[0], 7), &t->locals, &t->n_locals);
    return read;
}

static inline int64_t distance(const team_t *t, int64_t j) { return t->away ? t->away[j] : (j - t->me) * t->stride; }
static inline uint64_t place_of(const team_t *t, int64_t j, const void *here) { return (uint64_t)here + (uint64_t)distance(t, j); }
static inline char *area_of(const team_t *t, int64_t j) { return (char *)place_of(t, j, t->area); }
static inline int is_away(const team_t *t, int64_t j) { return t->away && is_far(place_of(t, j, t->area)); }
static inline counters_t *counters(const team_t *t) { return (counters_t *)(t->area + COUNTERS); }
static void release_gil(team_t *t) { if (!t->released) t->released = PyEval_SaveThread(); }

/* Ends a call: takes the GIL, and raises the error of a failed wait. */
static int finish(team_t *t) {
    if (t->failed) return Py_XDECREF(far_result(t->released, t->failed, "collective")), 0;
    if (t->released) PyEval_RestoreThread(t->released);
    if (t->spin.failed == NO_MEMORY) PyErr_NoMemory();
    else if (t->spin.failed) spin_error(&t->spin);
    return !t->spin.failed;
}

static PyObject *left(team_t *t) { return finish(t) ? PyLong_FromLong(t->left) : NULL; }

/* Notes the result of a request to a far member: after a failure, the call makes no further ones and ends. */
static void note(team_t *t, link_t *failed) { if (failed) { t->failed = failed; t->spin.failed = 1; } }

static void complete(team_t *t) { if (t->nodes > 1 && !t->failed) { release_gil(t); note(t, far_quiet()); } }

/* Copies to member j, or from it; dest and source are addresses of this PE. A far copy is complete after `complete`. */
static void send_to(team_t *t, int64_t j, char *dest, const char *source, uint64_t nbytes) {
    uint64_t to = place_of(t, j, dest);
    if (!is_away(t, j)) { memcpy((char *)to, source, nbytes); return; }
    release_gil(t);
    if (!t->failed) note(t, far_put(to, source, nbytes));
}
static void read_from(team_t *t, int64_t j, char *dest, const char *source, uint64_t nbytes) {
    uint64_t from = place_of(t, j, source);
    if (!is_away(t, j)) { memcpy(dest, (char *)from, nbytes); return; }
    release_gil(t);
    if (!t->failed) note(t, far_get(dest, from, nbytes, 0));
}

/* Stores an epoch into a word of a far member's area, after nbytes of data. */
static void post_far(team_t *t, int64_t j, uint64_t offset, uint64_t epoch, char *dest, const char *source, uint64_t nbytes) {
    release_gil(t);
    uint64_t area = place_of(t, j, t->area), asleep = area + COUNTERS + offsetof(counters_t, asleep);
    if (!t->failed) note(t, far_post(place_of(t, j, dest), source, nbytes, area + offset, epoch, asleep));
}

/* Stores an epoch into a word of member j's area, with release order. If PEs share cores, a sleeping member is woken. It sleeps
 * because a yield could give its core to another program for milliseconds. */
static void post(team_t *t, int64_t j, uint64_t offset, uint64_t epoch) {
    if (is_away(t, j)) { post_far(t, j, offset, epoch, NULL, NULL, 0); return; }
    uint64_t *word = (uint64_t *)(area_of(t, j) + offset);
    __atomic_store_n(word, epoch, __ATOMIC_RELEASE);
    if (t->spin.spins > CROWDED) return;
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* either this PE sees that the member sleeps, or the member sees the word */
    if (__atomic_load_n(&((counters_t *)(area_of(t, j) + COUNTERS))->asleep, __ATOMIC_RELAXED))
        syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static int sleep_on(team_t *t, uint64_t *word, uint64_t epoch) {
    struct timespec most = {0, 20000000};
    __atomic_store_n(&counters(t)->asleep, 1, __ATOMIC_SEQ_CST);
    uint64_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    if (seen < epoch) syscall(SYS_futex, word, FUTEX_WAIT, (uint32_t)seen, &most, NULL, 0); /* unless it changed */
    __atomic_store_n(&counters(t)->asleep, 0, __ATOMIC_RELAXED);
    return spin_check(&t->spin, &t->released);
}

/* Yields until the epoch has arrived, and returns whether it has. This is the fastest wait if the core goes to other members that
 * wait too. If a member or another program computes, a yield lasts for milliseconds; the next waits then sleep at once: a few of
 * them after a single long yield, and more if long yields are frequent. */
static int yield_for(team_t *t, const uint64_t *word, uint64_t epoch) {
    counters_t *own = counters(t);
    if (own->hasty) { own->hasty--; return 0; }
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
    for (uint64_t polls = 0; polls < (crowded ? t->spin.spins : 200); polls++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
        CPU_RELAX();
    }
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
    release_gil(t);
    if (crowded && yield_for(t, word, epoch)) return 1;
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < epoch)
        if (!(crowded ? sleep_on(t, word, epoch) : spin_pause(&t->spin, &t->released))) return 0;
    return 1;
}

/* A dissemination barrier of `n` members, of which this PE is number `me`, with flags from `flag` on. members: NULL: all of the team. */
static int disseminate_among(team_t *t, const int64_t *members, int64_t n, int64_t me, uint64_t flag, uint64_t epoch) {
    for (int64_t step = 1; step < n; step *= 2, flag++) {
        int64_t to = (me + step) % n;
        post(t, members ? members[to] : to, 64 * flag, epoch);
        if (!await(t, 64 * flag, epoch)) return 0;
    }
    return 1;
}

static int64_t index_of(const int64_t *members, int64_t member) {
    int64_t i = 0;
    while (members[i] != member) i++;
    return i;
}

/* The barrier: of each node, of the leaders, and of each node again. The epoch is in the first 64 bytes of the area; flags follow, 64
 * bytes apart. */
static int disseminate(team_t *t) {
    uint64_t epoch = ++*(uint64_t *)t->area;
    int passed = 1;
    /* seq_cst: a load after the barrier must not overtake a store of this PE before it (store buffering) */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (t->nodes > 1) {
        int64_t me = index_of(t->locals, t->me);
        passed = disseminate_among(t, t->locals, t->n_locals, me, INWARDS, epoch) &&
                 (me || disseminate_among(t, t->leaders, t->nodes, t->node[t->me], BETWEEN, epoch)) &&
                 disseminate_among(t, t->locals, t->n_locals, me, OUTWARDS, epoch);
    } else passed = disseminate_among(t, NULL, t->n, t->me, INWARDS, epoch);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return passed;
}

/* Sends the payload of each member to every other member, for at most FLAT members. Member j's payload is at
 * *mailboxes + j * MAILBOX + 8. Two alternating sets of mailboxes are sufficient: before a member writes into a set again, it has
 * received the payloads of the exchange between, which the others sent after they had read this set. */
static int exchange(team_t *t, const void *payload, uint64_t nbytes, const char **mailboxes) {
    uint64_t epoch = ++counters(t)->exchanges;
    uint64_t set = MAILBOXES + (epoch & 1) * FLAT * MAILBOX;
    for (int64_t k = 1; k <= t->n; k++) {
        int64_t j = (t->me + k) % t->n;
        uint64_t mailbox = set + (uint64_t)t->me * MAILBOX;
        if (is_away(t, j)) { post_far(t, j, mailbox, epoch, t->area + mailbox + 8, payload, nbytes); continue; }
        memcpy(area_of(t, j) + mailbox + 8, payload, nbytes);
        post(t, j, mailbox, epoch);
    }
    *mailboxes = t->area + set;
    for (int64_t k = 1; k < t->n; k++)
        if (!await(t, set + (uint64_t)((t->me + t->n - k) % t->n) * MAILBOX, epoch)) return 0;
    return 1;
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

/* A barrier, after which all members know whether the memory of one of them is private. Returns whether the call can go on. */
static int agree(team_t *t, int private) {
    counters_t *own = counters(t);
    uint64_t call = ++own->calls;
    if (private) tell(t, &own->staged, call);
    if (!meet(t)) return 0;
    if (own->staged == call) t->left = STAGED;
    return t->left == DONE;
}

/* agree(team, timeout, spins, private) -> what is left to do: DONE means nothing special. */
static PyObject *py_agree(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    int64_t private;
    if (!arity("agree", n, 4) || !to_team(args, &t) || !to_i64(args[3], &private)) return NULL;
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

/* sync(team, timeout, spins) */
static PyObject *py_sync(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    if (!arity("sync", n, 3) || !to_team(args, &t)) return NULL;
    disseminate(&t);
    if (!finish(&t)) return NULL;
    Py_RETURN_NONE;
}

/* Whether member j has not yet reached the call that this PE is in: it has begun fewer calls of some kind than this PE. */
static int is_behind(team_t *t, int64_t j) {
    counters_t theirs = {0}, *own = counters(t);
    uint64_t syncs = 0;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    read_from(t, j, (char *)&syncs, t->area, sizeof syncs);
    read_from(t, j, (char *)&theirs, t->area + COUNTERS, sizeof theirs);
    complete(t);
    return t->failed || syncs < *(uint64_t *)t->area || theirs.notes < own->notes || theirs.exchanges < own->exchanges ||
           theirs.calls < own->calls;
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

/* share(team, timeout, spins, note) -> the concatenated notes of all members. All notes have the same length, at most NOTE. */
static PyObject *py_share(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    char *note;
    Py_ssize_t length;
    if (!arity("share", n, 4) || !to_team(args, &t) || PyBytes_AsStringAndSize(args[3], &note, &length)) return NULL;
    if (length > NOTE) { PyErr_SetString(PyExc_ValueError, "the note is too long"); return NULL; }
    uint64_t offset = NOTES + (++counters(&t)->notes & 1) * NOTE; /* the two notes alternate, as the mailboxes of exchange do */
    memcpy(t.area + offset, note, (size_t)length);
    meet(&t);
    if (!finish(&t)) return NULL;
    PyObject *all = PyBytes_FromStringAndSize(NULL, t.n * length);
    char *notes = all ? PyBytes_AsString(all) : NULL;
    t.released = NULL;
    for (int64_t j = 0; notes && j < t.n; j++) read_from(&t, j, notes + j * length, t.area + offset, (uint64_t)length);
    complete(&t);
    if (!finish(&t)) Py_CLEAR(all);
    return all;
}

/* ---- copies: every target is ready before any member calls, so a member writes into the targets of others at once ---- */

static void spread(team_t *t, int64_t child, uint64_t flag, uint64_t epoch, char *dest, const char *source, uint64_t nbytes) {
    if (t->left == REFUSED) send_to(t, child, (char *)&counters(t)->refused, (const char *)&epoch, sizeof epoch);
    if (is_away(t, child)) { post_far(t, child, flag, epoch, dest, source, nbytes); return; }
    if (nbytes) memcpy(dest + distance(t, child), source, nbytes);
    post(t, child, flag, epoch);
}

static void spread_from_root(team_t *t, int64_t root, uint64_t epoch, char *dest, const char *source, uint64_t nbytes) {
    int64_t order = (t->me - root + t->n) % t->n; /* a binomial tree; with few members the root is the parent of all */
    for (int64_t step = 1; step < t->n; step = t->n <= FLAT ? step + 1 : step * 2) {
        if (t->n <= FLAT ? order > 0 : order >= step) continue;
        if (order + step >= t->n) break;
        spread(t, (order + step + root) % t->n, ROOTS + 8 * (uint64_t)root, epoch, dest, source, nbytes);
    }
}

/* The same over several nodes: a binomial tree of the nodes, which one member of each receives and passes on to the others there. */
static void spread_over_nodes(team_t *t, int64_t root, uint64_t epoch, char *dest, const char *source, uint64_t nbytes) {
    int64_t home = t->node[root], own = t->node[t->me], order = (own - home + t->nodes) % t->nodes;
    uint64_t flag = ROOTS + 8 * (uint64_t)root;
    if (t->me != (own == home ? root : t->leaders[own])) return;
    for (int64_t step = 1; step < t->nodes; step *= 2)
        if (order < step && order + step < t->nodes)
            spread(t, t->leaders[(order + step + home) % t->nodes], flag, epoch, dest, source, nbytes);
    for (int64_t i = 0; i < t->n_locals; i++)
        if (t->locals[i] != t->me) spread(t, t->locals[i], flag, epoch, dest, source, nbytes);
}

/* A root may be several calls ahead of a member. This is safe because each member has a separate flag for each root, and only the
 * member's parent in the tree of that root writes it. A root with private memory is not ahead: it meets all members in staging. */
static void broadcast(team_t *t, int64_t root, char *dest, const char *source, uint64_t nbytes, int64_t private) {
    counters_t *own = counters(t);
    uint64_t call = ++own->calls;
    int is_root = t->me == root, pull = t->nodes < 2 && nbytes * (uint64_t)(t->n - 1) >= PULL_BYTES;
    if (pull) release_gil(t);
    if (is_root && private && (pull || private & PRIVATE_TARGET)) tell(t, &own->staged, call);
    if (is_root) own->from = source - t->area;
    else if (!await(t, ROOTS + 8 * (uint64_t)root, call)) return;
    if (own->staged == call) t->left = STAGED;
    else if (own->refused == call || private & PRIVATE_TARGET) t->left = REFUSED;
    uint64_t pushed = pull || t->left != DONE ? 0 : nbytes;
    if (t->nodes > 1) spread_over_nodes(t, root, call, dest, is_root ? source : dest, pushed);
    else spread_from_root(t, root, call, dest, is_root ? source : dest, pushed);
    if (t->left == STAGED) return;
    if (t->left == DONE && (pull || is_root)) {
        const char *home = is_root ? t->area : area_of(t, root), *from = home + ((counters_t *)(home + COUNTERS))->from;
        if (from != dest) memmove(dest, from, nbytes);
    }
    if (pull) meet(t); /* the root may reuse its source when all members have read it */
}

/* broadcast(team, timeout, spins, root, dest, source, nbytes, private) -> what is left to do. private: 1 if the target is private,
 * plus 2 if the source is. */
static PyObject *py_broadcast(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    int64_t root, private;
    uint64_t dest, source, nbytes;
    if (!arity("broadcast", n, 8) || !to_team(args, &t) || !to_i64(args[3], &root) || !to_u64(args[4], &dest) ||
        !to_u64(args[5], &source) || !to_u64(args[6], &nbytes) || !to_i64(args[7], &private))
        return NULL;
    broadcast(&t, root, (char *)dest, (char *)source, nbytes, private);
    return left(&t);
}

/* scatter copies `count` items of `item` bytes from source + j * skip to dest on each member j. It ends with a barrier. A member
 * whose target is private copies nothing, because it does not know whether those of the others are symmetric. */
typedef struct { uint64_t skip, item, dest_step, source_step, count; } blocks_t;

static void scatter_far(team_t *t, uint64_t to, const char *from, const blocks_t *b) {
    release_gil(t);
    if (t->failed) return;
    if (b->count > 1) note(t, far_put_strided(to, from, b->dest_step, b->source_step, b->item, b->count));
    else if (b->item) note(t, far_put(to, from, b->item));
}

static void scatter(team_t *t, char *dest, const char *source, const blocks_t *b, int private) {
    if (b->item * b->count * (uint64_t)t->n >= RELEASE_BYTES) release_gil(t);
    for (int64_t k = 1; k <= t->n && !private; k++) {
        int64_t j = (t->me + k) % t->n; /* each member begins with a different one */
        char *to = dest + distance(t, j);
        const char *from = source + (uint64_t)j * b->skip;
        if (is_away(t, j)) { scatter_far(t, (uint64_t)to, from, b); continue; }
        for (uint64_t i = 0; i < b->count && to != from; i++) copy_item(to + i * b->dest_step, from + i * b->source_step, b->item);
    }
    agree(t, private);
}

/* scatter(team, timeout, spins, dest, source, skip, item, dest_step, source_step, count, private) -> what is left to do. All but
 * count are in bytes. private: whether the target is. */
static PyObject *py_scatter(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    uint64_t dest, source;
    int64_t private;
    blocks_t b;
    if (!arity("scatter", n, 11) || !to_team(args, &t) || !to_u64(args[3], &dest) || !to_u64(args[4], &source) ||
        !to_u64(args[5], &b.skip) || !to_u64(args[6], &b.item) || !to_u64(args[7], &b.dest_step) ||
        !to_u64(args[8], &b.source_step) || !to_u64(args[9], &b.count) || !to_i64(args[10], &private))
        return NULL;
    scatter(&t, (char *)dest, (char *)source, &b, private != 0);
    return left(&t);
}

/* ---- reductions ---- */

/* A reduction or scan. The elements of member j are at source + j * source_step, and its results are stored at
 * dest + j * dest_step. away: distances that replace j * step. only: the member to compute results for; -1 means all members. */
enum { REDUCE, INSCAN, EXSCAN };
typedef struct {
    const kind_t *kind;
    combine_t combine;
    int64_t mode, n, only, source_step, dest_step;
    const int64_t *source_away, *dest_away;
    const char *source;
    char *dest;
} fold_t;

static void write_result(const fold_t *f, int64_t j, uint64_t offset, const void *total, uint64_t count) {
    if (f->only >= 0 && f->only != j) return;
    char *to = f->dest + (f->dest_away ? f->dest_away[j] : j * f->dest_step) + offset;
    if (f->kind->narrow) f->kind->narrow(to, total, count);
    else memcpy(to, total, count * f->kind->item);
}

/* Combines one block. The order is always that of the members, so all get the same bits with either algorithm. Each source is read
 * before the target of the same member is written, so the two may be one array. */
static void fold_block(const fold_t *f, uint64_t offset, uint64_t count) {
    _Alignas(64) char total[BLOCK], copy[BLOCK];
    int64_t last = f->mode == REDUCE || f->only < 0 ? f->n - 1 : f->only;
    for (int64_t j = 0; j <= last; j++) {
        const char *part = f->source + (f->source_away ? f->source_away[j] : j * f->source_step) + offset;
        if (f->kind->widen) { f->kind->widen(copy, part, count); part = copy; }
        else if (f->mode == EXSCAN || (uintptr_t)part % f->kind->item) part = memcpy(copy, part, count * f->kind->item);
        if (f->mode == EXSCAN && j == 0) memset(total, 0, count * f->kind->wide);
        if (f->mode == EXSCAN) write_result(f, j, offset, total, count);
        if (j == 0) memcpy(total, part, count * f->kind->wide);
        else f->combine(total, part, count);
        if (f->mode == INSCAN) write_result(f, j, offset, total, count);
    }
    for (int64_t j = 0; f->mode == REDUCE && j < f->n; j++) write_result(f, j, offset, total, count);
}

static void fold(const fold_t *f, uint64_t first, uint64_t end) {
    uint64_t most = BLOCK / f->kind->wide;
    for (; first < end; first += most) fold_block(f, first * f->kind->item, end - first < most ? end - first : most);
}

/* Combines a share for a team with far members: their elements are read into `parts`, and the results sent from there. */
static void fold_far(team_t *t, fold_t *f, char *dest, const char *source, uint64_t first, uint64_t end) {
    uint64_t skip = first * f->kind->item, nbytes = (end - first) * f->kind->item;
    int64_t *away = malloc(2 * (uint64_t)t->n * sizeof *away), *to = away + t->n;
    char *parts = malloc((uint64_t)t->n * nbytes);
    if (!away || !parts) { t->spin.failed = NO_MEMORY; free(away); free(parts); return; }
    for (int64_t j = 0; j < t->n; j++) {
        char *part = parts + (uint64_t)j * nbytes;
        away[j] = is_away(t, j) ? part - (source + skip) : distance(t, j);
        to[j] = is_away(t, j) ? part - (dest + skip) : distance(t, j);
        if (is_away(t, j)) read_from(t, j, part, source + skip, nbytes);
    }
    complete(t);
    f->source_away = away, f->dest_away = to;
    if (!t->failed) fold(f, first, end);
    for (int64_t j = 0; j < t->n; j++)
        if (is_away(t, j)) send_to(t, j, dest + skip, parts + (uint64_t)j * nbytes, nbytes);
    free(away);
    free(parts);
}

/* Each member combines one share of the elements for all members. No other member reads or writes this share, so source and
 * target may be one array. */
static void fold_shares(team_t *t, fold_t *f, char *dest, const char *source, uint64_t count, int private) {
    uint64_t line = 64 / f->kind->item, share = ((count + (uint64_t)t->n - 1) / (uint64_t)t->n + line - 1) / line * line;
    uint64_t first = (uint64_t)t->me * share, end = first + share < count ? first + share : count;
    f->source = source - (t->away ? 0 : t->me * t->stride);
    f->dest = dest - (t->away ? 0 : t->me * t->stride);
    f->source_step = f->dest_step = t->stride;
    f->source_away = f->dest_away = t->away;
    f->only = -1;
    if (count * f->kind->item >= RELEASE_BYTES) release_gil(t);
    if (!agree(t, private)) return;
    if (first < count && t->nodes > 1) fold_far(t, f, dest, source, first, end);
    else if (first < count) fold(f, first, end);
    meet(t);
}

/* Small arrays are sent through the mailboxes, and each member combines all of them: there they may be private. */
static void reduce(team_t *t, fold_t *f, char *dest, const char *source, uint64_t count, int private) {
    if (t->n > FLAT || count * f->kind->item > PAYLOAD) { fold_shares(t, f, dest, source, count, private); return; }
    if (!exchange(t, source, count * f->kind->item, &f->source)) return;
    f->source += 8;
    f->source_step = MAILBOX;
    f->dest = dest; /* the only one that is written */
    f->dest_step = 0;
    f->only = t->me;
    fold(f, 0, count);
}

static int to_fold(const team_t *t, int64_t mode, int64_t operator, int64_t kind, fold_t *f) {
    if (operator < 0 || operator >= OPERATORS || kind < 0 || kind >= KINDS || !kinds[kind].combine[operator]) return 0;
    *f = (fold_t){.kind = &kinds[kind], .combine = kinds[kind].combine[operator], .mode = mode, .n = t->n};
    return 1;
}

/* fold(team, timeout, spins, mode, operator, kind, dest, source, count, private) -> what is left to do. private: whether one array is. */
static PyObject *py_fold(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    fold_t f;
    int64_t mode, operator, kind, private;
    uint64_t dest, source, count;
    if (!arity("fold", n, 10) || !to_team(args, &t) || !to_i64(args[3], &mode) || !to_i64(args[4], &operator) ||
        !to_i64(args[5], &kind) || !to_u64(args[6], &dest) || !to_u64(args[7], &source) || !to_u64(args[8], &count) ||
        !to_i64(args[9], &private))
        return NULL;
    if (!to_fold(&t, mode, operator, kind, &f)) { PyErr_SetString(PyExc_ValueError, "no such operator on this type"); return NULL; }
    reduce(&t, &f, (char *)dest, (char *)source, count, private != 0);
    return left(&t);
}
