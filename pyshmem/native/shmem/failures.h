/* The errors of calls that have failed in a job without Python, in the words of pyshmem.diagnosis. */
#pragma once
#include "state.h"

/* What a member of a team calls. place: a heap offset, or a stride; at_offset: which. root: of a broadcast, or -1.
 * kind: of base/combine.h, or -1 of a barrier. */
typedef struct {
    uint64_t code;
    int kind, at_offset;
    uint64_t nelems;
    int64_t place, root;
} facts_t;

INTERNAL _Noreturn void refuse_timed_out(const char *routine, const char *argument, const char *got, const char *wants,
                                         const int64_t *pes, int64_t count);
INTERNAL _Noreturn void refuse_failed(const char *routine, int64_t outcome, team_t *team);
INTERNAL _Noreturn void refuse_different(const char *routine, team_t *team, const facts_t *call);
INTERNAL _Noreturn void refuse_unlike(const char *routine, team_t *team, const facts_t *call);
INTERNAL void say_of_wait(const char *routine);
INTERNAL void note_end(void);
