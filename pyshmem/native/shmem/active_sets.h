/* The deprecated collectives over PE_start, logPE_stride, PE_size. A set of all PEs makes the calls of the world's
 * team, but for GPU memory. In others each member reads the data that it needs from the others, between two barriers:
 * after the first every source is ready, after the second all reads are complete.
 *
 * The barrier uses three words of the caller's pSync, which are 0 (SHMEM_SYNC_VALUE) before and after: the arrival
 * counter on the first PE, the release flag of each PE, and the length of its contribution to collect. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "../base/internal.h"

/* PEs start + i * stride of the world for i less than size; me: this PE's i. */
typedef struct {
    const char *routine;
    int64_t start, stride, size, me;
    long *arrived, *released, *length;
} set_t;

INTERNAL set_t active_set(const char *routine, int start, int log_stride, int size, long *psync);
INTERNAL void sync_set(const set_t *set);
INTERNAL void meet(const set_t *set);
INTERNAL void set_broadcast(set_t set, void *dest, const void *source, uint64_t nbytes, int root);
INTERNAL void set_collect(set_t set, void *dest, const void *source, uint64_t nbytes);
INTERNAL void set_alltoalls(set_t set, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, uint64_t nelems,
                            uint64_t item);
INTERNAL void set_reduce(set_t set, int operator, int kind, void *dest, const void *source, int nreduce);
