#include "collectives.h"

/* The flag of a broadcast: the number of the call, two bits, and the sender's history. A history is made of the words
 * of all broadcasts in which nobody met. A root may be several calls ahead, so its flag shows the history of a later
 * call: but the member comes to that call too, and the histories differ then if any of the calls differed. */
enum {
    MEETS = 1 << 15,  /* the members meet in this call, and compare their words then */
    SPOILT = 1 << 14, /* the sender's call was not the root's, so it sends nothing on */
    HISTORY = SPOILT - 1,
};

static void add_to_history(team_t *t) {
    counters_t *own = counters(t);
    own->history = (own->history + t->word) * UINT64_C(0x9E3779B97F4A7C15) >> 50;
}

static void spread(team_t *t, int64_t child, int64_t root, char *dest, const char *source, uint64_t nbytes,
                   uint64_t bits) {
    uint64_t place = ROOTS + 8 * (uint64_t)root, flag = t->call << FLAG_BITS | bits | counters(t)->history;
    if (t->left == REFUSED) team_send(t, child, (char *)&counters(t)->refused, (const char *)&t->call, sizeof t->call);
    if (t->left == UNLIKE) flag |= SPOILT;
    if (is_away(t, child)) {
        team_post_far(t, child, place, flag, dest, source, nbytes);
        return;
    }
    if (nbytes) copy_bytes(dest + distance(t, child), source, nbytes);
    team_post(t, child, place, flag);
}

static void spread_from_root(team_t *t, int64_t root, char *dest, const char *source, uint64_t nbytes, uint64_t bits) {
    int64_t order = (t->me - root + t->n) % t->n; /* a binomial tree; with few members the root is the parent of all */
    for (int64_t step = 1; step < t->n; step = t->n <= FLAT ? step + 1 : step * 2) {
        if (t->n <= FLAT ? order > 0 : order >= step) continue;
        if (order + step >= t->n) break;
        spread(t, (order + step + root) % t->n, root, dest, source, nbytes, bits);
    }
}

/* The same over several nodes: a binomial tree of the nodes, which one member of each receives and passes on to the
 * others there. */
static void spread_over_nodes(team_t *t, int64_t root, char *dest, const char *source, uint64_t nbytes, uint64_t bits) {
    int64_t home = t->node[root], own = t->node[t->me], order = (own - home + t->nodes) % t->nodes;
    if (t->me != (own == home ? root : t->leaders[own])) return;
    for (int64_t step = 1; step < t->nodes; step *= 2)
        if (order < step && order + step < t->nodes)
            spread(t, t->leaders[(order + step + home) % t->nodes], root, dest, source, nbytes, bits);
    for (int64_t i = 0; i < t->n_locals; i++)
        if (t->locals[i] != t->me) spread(t, t->locals[i], root, dest, source, nbytes, bits);
}

/* The root's part before the data go: returns MEETS if all members meet in this call. */
static uint64_t begin_as_root(team_t *t, const char *source, uint64_t nbytes, int64_t private) {
    counters_t *own = counters(t);
    int pull = t->nodes < 2 && nbytes * (uint64_t)(t->n - 1) >= PULL_BYTES;
    int staged = (private & (pull ? PRIVATE_TARGET | PRIVATE_SOURCE : PRIVATE_TARGET)) != 0;
    if (pull) team_release_turn(t);
    if (staged) barrier_tell(t, &own->staged, t->call);
    own->from = source - t->area;
    if (pull || staged) return MEETS;
    add_to_history(t);
    return 0;
}

/* Waits for the root, and returns MEETS if all members meet in this call. Otherwise the calls are compared here. */
static uint64_t hear_from_root(team_t *t, int64_t root) {
    counters_t *own = counters(t);
    uint64_t place = ROOTS + 8 * (uint64_t)root;
    if (!team_await(t, place, t->call << FLAG_BITS)) return 0;
    uint64_t flag = __atomic_load_n((uint64_t *)(t->area + place), __ATOMIC_ACQUIRE);
    int ahead = flag >> FLAG_BITS > t->call; /* so it has not met this member */
    if (!ahead && flag & MEETS) return MEETS;
    add_to_history(t);
    if (ahead || (!(flag & SPOILT) && (flag & HISTORY) == own->history)) return 0;
    own->history = flag & HISTORY;
    call_at(t->area, t->call)->word = 0; /* it has been refused */
    t->left = UNLIKE;
    return 0;
}

/* A root may be several calls ahead of a member. This is safe because each member has a separate flag for each root,
 * and only the member's parent in the tree of that root writes it. A root with private memory is not ahead: it meets
 * all members in staging. */
INTERNAL void collective_broadcast(team_t *t, int64_t root, char *dest, const char *source, uint64_t nbytes,
                                   int64_t private) {
    counters_t *own = counters(t);
    int is_root = t->me == root;
    uint64_t bits = is_root ? begin_as_root(t, source, nbytes, private) : hear_from_root(t, root);
    if (is_over(t)) return;
    int pull = bits && own->staged != t->call;
    if (own->staged == t->call)
        t->left = STAGED;
    else if (t->left == DONE && (own->refused == t->call || private & PRIVATE_TARGET))
        t->left = REFUSED;
    uint64_t pushed = pull || t->left != DONE ? 0 : nbytes;
    if (t->nodes > 1)
        spread_over_nodes(t, root, dest, is_root ? source : dest, pushed, bits);
    else
        spread_from_root(t, root, dest, is_root ? source : dest, pushed, bits);
    if (t->left == STAGED) return;
    if (pull) team_release_turn(t);
    if (t->left == DONE && (is_root ? !(private & KEPT_TARGET) : pull)) {
        const char *home = is_root ? t->area : area_of(t, root), *from = home + ((counters_t *)(home + COUNTERS))->from;
        if (from != dest) copy_bytes(dest, from, nbytes);
    }
    if (pull) barrier_meet(t); /* the root may reuse its source when all members have read it */
}

static void scatter_far(team_t *t, uint64_t to, const char *from, const blocks_t *b) {
    team_release_turn(t);
    if (t->failed) return;
    if (b->count > 1)
        team_note(t, far_put_strided(to, from, b->dest_step, b->source_step, b->item, b->count));
    else if (b->count && b->item)
        team_note(t, far_put(to, from, b->item));
}

INTERNAL void collective_scatter(team_t *t, char *dest, const char *source, const blocks_t *b, int private) {
    if (b->item * b->count * (uint64_t)t->n >= RELEASE_BYTES) team_release_turn(t);
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
    barrier_agree(t, private);
}
