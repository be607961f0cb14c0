/* Reductions and scans of a team, by the loops of base/combine.h. */
#pragma once
#include "../base/combine.h"
#include "barrier.h"
#include "interface.h"

/* A reduction or scan. The elements of member j are at source + j * source_step, and its results are stored at
 * dest + j * dest_step. away: distances that replace j * step. only: the member to compute results for; -1 means all
 * members. */
typedef struct {
    const kind_t *kind;
    combine_t combine;
    int64_t mode, n, only, source_step, dest_step;
    const int64_t *source_away, *dest_away;
    const char *source;
    char *dest;
} fold_t;
INTERNAL void reduction_fold(const fold_t *f, uint64_t first, uint64_t end);
INTERNAL int reduction_is_small(const team_t *t, uint64_t nbytes);
INTERNAL void reduction_run(team_t *t, fold_t *f, char *dest, const char *source, uint64_t count, int private);
INTERNAL int reduction_prepare(const team_t *t, int64_t mode, int64_t operator, int64_t kind, fold_t *f);
