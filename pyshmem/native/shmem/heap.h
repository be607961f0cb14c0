/* The symmetric heap in CPU memory of a job without Python, as pyshmem.memory.cpu_heap has it: a range that the PEs of
 * the host share, with a part of fixed size for each, and areas of teams beside each heap. */
#pragma once
#include "stages.h"

enum { AREAS_BYTES = 1 << 20, NOTE_BYTES = 1024 };

/* base: of this PE's heap; system: of its areas. stride: the distance to the next PE's. */
typedef struct {
    uint64_t base, size, stride, system, alignment;
    void *mapping;
    uint64_t mapped;
} shared_heap_t;

/* Maps the heaps of `size` bytes. reserves: whether their memory is allocated now, as that of a size that the user has
 * chosen; the default is half of what the machine has, and is allocated as it is used. Collective. Returns 0, or a
 * number of errno, alike on all PEs. */
INTERNAL int64_t map_heap(shared_heap_t *h, table_t *table, int64_t me, int64_t n, uint64_t size, int reserves);
INTERNAL void unmap_heap(shared_heap_t *h);
/* Bytes that this process may still allocate, within the limits of the machine and of its control group. */
INTERNAL uint64_t available_memory(void);
