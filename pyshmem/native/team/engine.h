/* What the C library calls of its own copy of the engine, in a job that it has opened without Python: the table of
 * interface.h, and what python/ does with teams otherwise. */
#pragma once
#include <stdint.h>

#include "interface.h"

enum { FACT_BYTES = 256, TOLD_CALLS = 16 };

/* Where a team is: the area of this PE, the bytes to the area of the next member, this member's number, and how many
 * there are. stamp: tells the team from those that used the area before. watch: what waits call, see spin_t. */
typedef struct {
    char *area;
    int64_t stride, me, n;
    uint64_t stamp, spins;
    double timeout;
    int (*watch)(void *spin);
} seat_t;

/* What a member says of its calls: the number and facts of this one, and the word and root of the last `known`, the
 * last first. The word of one that has been refused is 0. */
typedef struct {
    uint64_t number, known, words[TOLD_CALLS];
    int64_t roots[TOLD_CALLS];
    char facts[FACT_BYTES + 1];
} said_t;

typedef struct {
    const native_calls_t *calls;
    uint64_t (*area_bytes)(uint64_t n_pes);
    void *(*new_team)(const seat_t *seat); /* NULL: no memory. It is freed by free(). The area has been cleared. */
    int64_t (*absent)(void *team, int64_t *members);      /* those that have not reached this call: their number */
    void (*leave)(void *team, const char *why);           /* this member has left a call */
    int64_t (*breaker)(void *team, char why[FACT_BYTES]); /* the member that has left a call, or -1 */
    int (*refuse)(void *team, const char *facts, said_t *said); /* what an outcome is: CALL_DONE if all have told */
    void (*count_in)(void *page);                               /* of base/counts.h */
} engine_t;

extern const engine_t pyshmem_engine; /* of the unit engine.c, hidden in the library */
