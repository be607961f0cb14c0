#include "pool.h"

#include <pthread.h>
#include <stdlib.h>

enum { POOL_UNIT = 512 };

/* A block of a pool. The list is sorted by address; free blocks of one region are never neighbours. `region` is where
 * the region begins. Blocks whose pool has ended while tensors held them are POOL_STALE, until these die. */
typedef struct pool_block {
    struct pool_block *next;
    uint64_t start, size, region;
    int kind, used;
} pool_block_t;
static struct {
    pthread_mutex_t lock;
    pool_block_t *first;
} pool = {PTHREAD_MUTEX_INITIALIZER, NULL};

/* Returns the address of `size` bytes of a pool, or NULL. */
INTERNAL void *pool_take(int64_t size, int kind) {
    uint64_t wanted = ((uint64_t)(size > 0 ? size : 1) + POOL_UNIT - 1) / POOL_UNIT * POOL_UNIT;
    pthread_mutex_lock(&pool.lock);
    pool_block_t *b = pool.first, *rest;
    while (b && (b->kind != kind || b->used || b->size < wanted)) b = b->next;
    if (b && b->size > wanted && (rest = malloc(sizeof *rest))) {
        *rest = (pool_block_t){b->next, b->start + wanted, b->size - wanted, b->region, kind, 0};
        b->next = rest;
        b->size = wanted;
    }
    if (b) b->used = 1;
    pthread_mutex_unlock(&pool.lock);
    return b ? (void *)b->start : NULL;
}

static int are_one(const pool_block_t *a, const pool_block_t *b) {
    return a && b && !a->used && !b->used && a->kind == b->kind && a->region == b->region;
}

static void unite(pool_block_t *a) {
    pool_block_t *b = a->next;
    a->size += b->size;
    a->next = b->next;
    free(b);
}

/* The block at this address is free again. A stale one goes first: its pool has ended. */
INTERNAL void pool_give(uint64_t start) {
    pthread_mutex_lock(&pool.lock);
    pool_block_t **link = &pool.first, **found = NULL, *before = NULL, *previous = NULL;
    for (; *link; previous = *link, link = &(*link)->next)
        if ((*link)->start == start && (*link)->used && (!found || (*link)->kind == POOL_STALE)) {
            found = link;
            before = previous;
        }
    if (found && (*found)->kind == POOL_STALE) {
        pool_block_t *gone = *found;
        *found = gone->next;
        free(gone);
    } else if (found) {
        pool_block_t *b = *found;
        b->used = 0;
        if (are_one(b, b->next)) unite(b);
        if (are_one(before, b)) unite(before);
    }
    pthread_mutex_unlock(&pool.lock);
}

/* What torch calls for its pool of GPU memory. It passes sizes that it has rounded. */
__attribute__((visibility("default"))) void *pyshmem_pool_take(ptrdiff_t size, int device, void *stream);
void *pyshmem_pool_take(ptrdiff_t size, int device, void *stream) {
    (void)device, (void)stream;
    return pool_take(size, POOL_GPU);
}
__attribute__((visibility("default"))) void pyshmem_pool_give(void *start, ptrdiff_t size, int device, void *stream);
void pyshmem_pool_give(void *start, ptrdiff_t size, int device, void *stream) {
    (void)size, (void)device, (void)stream;
    pool_give((uint64_t)start);
}

/* This memory belongs to the pool of this kind from now on. Returns 0 if there is no memory to note it. */
INTERNAL int pool_add(uint64_t start, uint64_t size, int kind) {
    pool_block_t *b = malloc(sizeof *b), **link = &pool.first;
    if (!b) return 0;
    pthread_mutex_lock(&pool.lock);
    while (*link && (*link)->start < start) link = &(*link)->next;
    *b = (pool_block_t){*link, start, size / POOL_UNIT * POOL_UNIT, start, kind, 0};
    *link = b;
    pthread_mutex_unlock(&pool.lock);
    return 1;
}

/* No pool has memory any more. */
INTERNAL void pool_end(void) {
    pthread_mutex_lock(&pool.lock);
    for (pool_block_t **link = &pool.first; *link;) {
        pool_block_t *b = *link;
        b->kind = POOL_STALE;
        if (b->used) {
            link = &b->next;
            continue;
        }
        *link = b->next;
        free(b);
    }
    pthread_mutex_unlock(&pool.lock);
}

/* Returns (address, bytes) of the blocks of a kind that are used, sorted, for the caller to free; NULL if there is no
 * memory for them. */
INTERNAL uint64_t (*pool_blocks(int kind, size_t *count))[2] {
    size_t room = 0;
    *count = 0;
    pthread_mutex_lock(&pool.lock);
    for (pool_block_t *b = pool.first; b; b = b->next) room++;
    uint64_t (*found)[2] = malloc((room + 1) * sizeof *found);
    for (pool_block_t *b = found ? pool.first : NULL; b; b = b->next)
        if (b->used && b->kind == kind) found[*count][0] = b->start, found[(*count)++][1] = b->size;
    pthread_mutex_unlock(&pool.lock);
    return found;
}
