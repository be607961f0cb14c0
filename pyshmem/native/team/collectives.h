/* Collectives that move data between the members of a team (barrier.h): every target is ready before any member
 * calls, so a member writes into the targets of others at once. Callers have checked all arguments but types. */
#pragma once
#include "barrier.h"

enum {
    PULL_BYTES = 1 << 19, /* from this total size on, the members read from the root instead of the root writing */
    PRIVATE_TARGET = 1,   /* bits of `private` */
    PRIVATE_SOURCE = 2,
    KEPT_TARGET = 4, /* the root's own target stays as it is */
};
INTERNAL void collective_broadcast(team_t *t, int64_t root, char *dest, const char *source, uint64_t nbytes,
                                   int64_t private);

/* scatter copies `count` items of `item` bytes from source + j * skip to dest on each member j. It ends with a barrier.
 * A member whose target is private copies nothing, because it does not know whether those of the others are symmetric.
 */
typedef struct {
    uint64_t skip, item, dest_step, source_step, count;
} blocks_t;
INTERNAL void collective_scatter(team_t *t, char *dest, const char *source, const blocks_t *b, int private);
