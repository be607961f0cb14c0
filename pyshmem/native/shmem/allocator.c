#include "allocator.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* live: allocations, with their ends as they were asked for, in the order of their offsets. tight: so many of the first
 * have no hole before them. */
typedef struct {
    uint64_t start, end;
} range_t;
static struct {
    pthread_mutex_t lock;
    uint64_t size, count, room, used, tight;
    range_t *live;
} taken = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t up(uint64_t offset, uint64_t alignment) { return (offset + alignment - 1) & ~(alignment - 1); }
static uint64_t held(const range_t *r) { return up(r->end, CACHE_LINE) - r->start; }

INTERNAL void open_allocator(uint64_t size) { taken.size = size, taken.count = taken.used = taken.tight = 0; }
INTERNAL void close_allocator(void) {
    free(taken.live);
    taken.live = NULL;
    taken.size = taken.count = taken.room = taken.used = taken.tight = 0;
}

/* The number of allocations that begin before `offset`. */
static uint64_t before(uint64_t offset) {
    uint64_t low = 0, high = taken.count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (taken.live[middle].start < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static range_t *found_at(uint64_t offset) {
    uint64_t at = before(offset);
    return at < taken.count && taken.live[at].start == offset ? &taken.live[at] : NULL;
}

static uint64_t hole_start(uint64_t at) { return at ? up(taken.live[at - 1].end, CACHE_LINE) : 0; }
static uint64_t hole_end(uint64_t at) { return at < taken.count ? taken.live[at].start : taken.size; }

static int has_room(void) {
    if (taken.count < taken.room) return 1;
    uint64_t room = taken.room ? 2 * taken.room : 256;
    range_t *more = realloc(taken.live, room * sizeof *more);
    if (!more) return 0;
    taken.live = more, taken.room = room;
    return 1;
}

static int64_t take(uint64_t nbytes, uint64_t alignment) {
    if (nbytes > taken.size || !has_room()) return -1;
    while (taken.tight < taken.count && taken.live[taken.tight].start == hole_start(taken.tight)) taken.tight++;
    for (uint64_t at = taken.tight; at <= taken.count; at++) {
        uint64_t start = up(hole_start(at), alignment), end = hole_end(at);
        if (start > end || nbytes > end - start) continue;
        memmove(taken.live + at + 1, taken.live + at, (taken.count - at) * sizeof *taken.live);
        taken.live[at] = (range_t){start, start + nbytes};
        taken.used += held(&taken.live[at]);
        taken.count++;
        return (int64_t)start;
    }
    return -1;
}

static void loosen(uint64_t at) {
    if (at < taken.tight) taken.tight = at;
}

INTERNAL int64_t take_bytes(uint64_t nbytes, uint64_t alignment) {
    pthread_mutex_lock(&taken.lock);
    int64_t offset = take(nbytes, alignment > CACHE_LINE ? alignment : CACHE_LINE);
    pthread_mutex_unlock(&taken.lock);
    return offset;
}

INTERNAL int give_bytes_back(uint64_t offset) {
    pthread_mutex_lock(&taken.lock);
    range_t *found = found_at(offset);
    if (found) {
        loosen((uint64_t)(found - taken.live));
        taken.used -= held(found);
        memmove(found, found + 1, (uint64_t)(taken.live + --taken.count - found) * sizeof *found);
    }
    pthread_mutex_unlock(&taken.lock);
    return found != NULL;
}

INTERNAL int resize_bytes(uint64_t offset, uint64_t nbytes) {
    pthread_mutex_lock(&taken.lock);
    range_t *found = found_at(offset);
    int fits = found && nbytes <= hole_end((uint64_t)(found - taken.live) + 1) - offset;
    if (fits) {
        loosen((uint64_t)(found - taken.live) + 1);
        taken.used -= held(found);
        found->end = offset + nbytes;
        taken.used += held(found);
    }
    pthread_mutex_unlock(&taken.lock);
    return fits;
}

INTERNAL uint64_t bytes_taken(uint64_t offset) {
    pthread_mutex_lock(&taken.lock);
    range_t *found = found_at(offset);
    uint64_t nbytes = found ? found->end - found->start : 0;
    pthread_mutex_unlock(&taken.lock);
    return nbytes;
}

INTERNAL uint64_t bytes_in_use(void) { return taken.used; }
