/* Collectives that move data between the members of a team (_barriers.h): every target is ready before any member
 * calls, so a member writes into the targets of others at once. Callers have checked all arguments but types. */
#pragma once
#include "_barriers.h"

enum {
    PULL_BYTES = 1 << 19, /* from this total size on, the members read from the root instead of the root writing */
    PRIVATE_TARGET = 1,   /* a bit of `private`; another one stands for the source */
};

static void spread(team_t *t, int64_t child, uint64_t flag, uint64_t epoch, char *dest, const char *source,
                   uint64_t nbytes) {
    if (t->left == REFUSED) send_to(t, child, (char *)&counters(t)->refused, (const char *)&epoch, sizeof epoch);
    if (is_away(t, child)) {
        post_far(t, child, flag, epoch, dest, source, nbytes);
        return;
    }
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

/* The same over several nodes: a binomial tree of the nodes, which one member of each receives and passes on to the
 * others there. */
static void spread_over_nodes(team_t *t, int64_t root, uint64_t epoch, char *dest, const char *source,
                              uint64_t nbytes) {
    int64_t home = t->node[root], own = t->node[t->me], order = (own - home + t->nodes) % t->nodes;
    uint64_t flag = ROOTS + 8 * (uint64_t)root;
    if (t->me != (own == home ? root : t->leaders[own])) return;
    for (int64_t step = 1; step < t->nodes; step *= 2)
        if (order < step && order + step < t->nodes)
            spread(t, t->leaders[(order + step + home) % t->nodes], flag, epoch, dest, source, nbytes);
    for (int64_t i = 0; i < t->n_locals; i++)
        if (t->locals[i] != t->me) spread(t, t->locals[i], flag, epoch, dest, source, nbytes);
}

/* A root may be several calls ahead of a member. This is safe because each member has a separate flag for each root,
 * and only the member's parent in the tree of that root writes it. A root with private memory is not ahead: it meets
 * all members in staging. */
static void broadcast(team_t *t, int64_t root, char *dest, const char *source, uint64_t nbytes, int64_t private) {
    counters_t *own = counters(t);
    uint64_t call = t->call;
    int is_root = t->me == root, pull = t->nodes < 2 && nbytes * (uint64_t)(t->n - 1) >= PULL_BYTES;
    if (pull) release_gil(t);
    if (is_root && private && (pull || private & PRIVATE_TARGET)) tell(t, &own->staged, call);
    if (is_root)
        own->from = source - t->area;
    else if (!await(t, ROOTS + 8 * (uint64_t)root, call))
        return;
    if (own->staged == call)
        t->left = STAGED;
    else if (own->refused == call || private & PRIVATE_TARGET)
        t->left = REFUSED;
    uint64_t pushed = pull || t->left != DONE ? 0 : nbytes;
    if (t->nodes > 1)
        spread_over_nodes(t, root, call, dest, is_root ? source : dest, pushed);
    else
        spread_from_root(t, root, call, dest, is_root ? source : dest, pushed);
    if (t->left == STAGED) return;
    if (t->left == DONE && (pull || is_root)) {
        const char *home = is_root ? t->area : area_of(t, root), *from = home + ((counters_t *)(home + COUNTERS))->from;
        if (from != dest) memmove(dest, from, nbytes);
    }
    if (pull) meet(t); /* the root may reuse its source when all members have read it */
}

/* broadcast(team, timeout, spins, root, dest, source, nbytes, private, word) -> what is left to do. private: 1 if the
 * target is private, plus 2 if the source is. */
static PyObject *py_broadcast(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    int64_t root, private;
    uint64_t dest, source, nbytes, word;
    if (!arity("broadcast", n, 9) || !to_team(args, &t) || !to_i64(args[3], &root) || !to_u64(args[4], &dest) ||
        !to_u64(args[5], &source) || !to_u64(args[6], &nbytes) || !to_i64(args[7], &private) || !to_u64(args[8], &word))
        return NULL;
    begin(&t, word);
    broadcast(&t, root, (char *)dest, (char *)source, nbytes, private);
    return left(&t);
}

/* scatter copies `count` items of `item` bytes from source + j * skip to dest on each member j. It ends with a barrier.
 * A member whose target is private copies nothing, because it does not know whether those of the others are symmetric.
 */
typedef struct {
    uint64_t skip, item, dest_step, source_step, count;
} blocks_t;

static void scatter_far(team_t *t, uint64_t to, const char *from, const blocks_t *b) {
    release_gil(t);
    if (t->failed) return;
    if (b->count > 1)
        note(t, far_put_strided(to, from, b->dest_step, b->source_step, b->item, b->count));
    else if (b->item)
        note(t, far_put(to, from, b->item));
}

static void scatter(team_t *t, char *dest, const char *source, const blocks_t *b, int private) {
    if (b->item * b->count * (uint64_t)t->n >= RELEASE_BYTES) release_gil(t);
    for (int64_t k = 1; k <= t->n && !private; k++) {
        int64_t j = (t->me + k) % t->n; /* each member begins with a different one */
        char *to = dest + distance(t, j);
        const char *from = source + (uint64_t)j * b->skip;
        if (is_away(t, j)) {
            scatter_far(t, (uint64_t)to, from, b);
            continue;
        }
        for (uint64_t i = 0; i < b->count && to != from; i++)
            copy_item(to + i * b->dest_step, from + i * b->source_step, b->item);
    }
    agree(t, private);
}

/* scatter(team, timeout, spins, dest, source, skip, item, dest_step, source_step, count, private, word) -> what is left
 * to do. All but count are in bytes. private: whether the target is. */
static PyObject *py_scatter(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    uint64_t dest, source, word;
    int64_t private;
    blocks_t b;
    if (!arity("scatter", n, 12) || !to_team(args, &t) || !to_u64(args[3], &dest) || !to_u64(args[4], &source) ||
        !to_u64(args[5], &b.skip) || !to_u64(args[6], &b.item) || !to_u64(args[7], &b.dest_step) ||
        !to_u64(args[8], &b.source_step) || !to_u64(args[9], &b.count) || !to_i64(args[10], &private) ||
        !to_u64(args[11], &word))
        return NULL;
    begin(&t, word);
    scatter(&t, (char *)dest, (char *)source, &b, private != 0);
    return left(&t);
}

static PyMethodDef collective_methods[] = {METHOD(broadcast), METHOD(scatter), LAST_METHOD};
