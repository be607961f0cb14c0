#include "reductions.h"

#include <stdlib.h>

/* bytes that are combined at a time, so that they stay in the L1 cache */
enum { BLOCK = 8192 };

static void write_result(const fold_t *f, int64_t j, uint64_t offset, const void *total, uint64_t count) {
    if (f->only >= 0 && f->only != j) return;
    char *to = f->dest + (f->dest_away ? f->dest_away[j] : j * f->dest_step) + offset;
    if (f->kind->narrow)
        f->kind->narrow(to, total, count);
    else
        memcpy(to, total, count * f->kind->item);
}

/* Combines one block. The order is always that of the members, so all get the same bits with either algorithm. Each
 * source is read before the target of the same member is written, so the two may be one array. */
static void fold_block(const fold_t *f, uint64_t offset, uint64_t count) {
    _Alignas(64) char total[BLOCK], copy[BLOCK];
    int64_t last = f->mode == REDUCE || f->only < 0 ? f->n - 1 : f->only;
    for (int64_t j = 0; j <= last; j++) {
        const char *part = f->source + (f->source_away ? f->source_away[j] : j * f->source_step) + offset;
        if (f->kind->widen) {
            f->kind->widen(copy, part, count);
            part = copy;
        } else if (f->mode == EXSCAN || (uintptr_t)part % f->kind->item)
            part = memcpy(copy, part, count * f->kind->item);
        if (f->mode == EXSCAN && j == 0) memset(total, 0, count * f->kind->wide);
        if (f->mode == EXSCAN) write_result(f, j, offset, total, count);
        if (j == 0)
            memcpy(total, part, count * f->kind->wide);
        else
            f->combine(total, part, count);
        if (f->mode == INSCAN) write_result(f, j, offset, total, count);
    }
    for (int64_t j = 0; f->mode == REDUCE && j < f->n; j++) write_result(f, j, offset, total, count);
}

INTERNAL void reduction_fold(const fold_t *f, uint64_t first, uint64_t end) {
    uint64_t most = BLOCK / f->kind->wide;
    for (; first < end; first += most) fold_block(f, first * f->kind->item, end - first < most ? end - first : most);
}

/* Combines a share for a team with far members: their elements are read into `parts`, and the results sent from there.
 */
static void fold_far(team_t *t, fold_t *f, char *dest, const char *source, uint64_t first, uint64_t end) {
    uint64_t skip = first * f->kind->item, nbytes = (end - first) * f->kind->item;
    int64_t *away = malloc(2 * (uint64_t)t->n * sizeof *away), *to = away + t->n;
    char *parts = malloc((uint64_t)t->n * nbytes);
    if (!away || !parts) {
        t->spin.failed = NO_MEMORY;
        free(away);
        free(parts);
        return;
    }
    for (int64_t j = 0; j < t->n; j++) {
        char *part = parts + (uint64_t)j * nbytes;
        away[j] = is_away(t, j) ? part - (source + skip) : distance(t, j);
        to[j] = is_away(t, j) ? part - (dest + skip) : distance(t, j);
        if (is_away(t, j)) team_read(t, j, part, source + skip, nbytes);
    }
    team_complete(t);
    f->source_away = away, f->dest_away = to;
    if (!t->failed) reduction_fold(f, first, end);
    for (int64_t j = 0; j < t->n; j++)
        if (is_away(t, j)) team_send(t, j, dest + skip, parts + (uint64_t)j * nbytes, nbytes);
    free(away);
    free(parts);
}

/* Each member combines one share of the elements for all members. No other member reads or writes this share, so source
 * and target may be one array. */
static void fold_shares(team_t *t, fold_t *f, char *dest, const char *source, uint64_t count, int private) {
    uint64_t line = 64 / f->kind->item,
             share = ((count + (uint64_t)t->n - 1) / (uint64_t)t->n + line - 1) / line * line;
    uint64_t first = (uint64_t)t->me * share, end = first + share < count ? first + share : count;
    f->source = source - (t->away ? 0 : t->me * t->stride);
    f->dest = dest - (t->away ? 0 : t->me * t->stride);
    f->source_step = f->dest_step = t->stride;
    f->source_away = f->dest_away = t->away;
    f->only = -1;
    if (count * f->kind->item >= RELEASE_BYTES) team_release_turn(t);
    if (!barrier_agree(t, private)) return;
    if (first < count && t->nodes > 1)
        fold_far(t, f, dest, source, first, end);
    else if (first < count)
        reduction_fold(f, first, end);
    barrier_meet(t);
}

INTERNAL int reduction_is_small(const team_t *t, uint64_t nbytes) { return t->n <= FLAT && nbytes <= PAYLOAD; }

/* Small arrays, which may be private, are sent through the mailboxes, and each member combines all of them. */
INTERNAL void reduction_run(team_t *t, fold_t *f, char *dest, const char *source, uint64_t count, int private) {
    if (!reduction_is_small(t, count * f->kind->item)) {
        fold_shares(t, f, dest, source, count, private);
        return;
    }
    if (!barrier_exchange(t, source, count * f->kind->item, &f->source)) return;
    f->source += 16;
    f->source_step = MAILBOX;
    f->dest = dest; /* the only one that is written */
    f->dest_step = 0;
    f->only = t->me;
    reduction_fold(f, 0, count);
}

INTERNAL int reduction_prepare(const team_t *t, int64_t mode, int64_t operator, int64_t kind, fold_t *f) {
    if (operator < 0 || operator >= OPERATORS || kind < 0 || kind >= KINDS || !kinds[kind].combine[operator]) return 0;
    *f = (fold_t){.kind = &kinds[kind], .combine = kinds[kind].combine[operator], .mode = mode, .n = t->n};
    return 1;
}
