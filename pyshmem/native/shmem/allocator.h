/* The symmetric allocator: first-fit, deterministic and coalescing, as pyshmem.memory.allocator. All PEs make the same
 * calls and so get the same offsets without communication. */
#pragma once
#include <stdint.h>

#include "../base/internal.h"

enum { CACHE_LINE = 64 };

INTERNAL void open_allocator(uint64_t size);
INTERNAL void close_allocator(void);
/* Returns the offset, or -1 if no hole is large enough. alignment: of the offset, a power of two. */
INTERNAL int64_t take_bytes(uint64_t nbytes, uint64_t alignment);
/* These return whether there is an allocation that begins at `offset`, and give_more also whether there is room. */
INTERNAL int give_bytes_back(uint64_t offset);
INTERNAL int resize_bytes(uint64_t offset, uint64_t nbytes);
/* The bytes of the allocation that begins at `offset`, or 0. */
INTERNAL uint64_t bytes_taken(uint64_t offset);
INTERNAL uint64_t bytes_in_use(void);
