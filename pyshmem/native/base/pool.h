/* The memory of pools: parts of symmetric heaps, from which torch allocates while its locks are held, so without the
 * GIL. The same calls give the same addresses on all PEs: the first gap that is large enough is taken. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "internal.h"

enum { POOL_CPU, POOL_GPU, POOL_STALE };

INTERNAL void *pool_take(int64_t size, int kind);
INTERNAL void pool_give(uint64_t start);
INTERNAL int pool_add(uint64_t start, uint64_t size, int kind);
INTERNAL void pool_end(void);
INTERNAL uint64_t (*pool_blocks(int kind, size_t *count))[2];
