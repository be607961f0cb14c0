/* The requests of far PEs on this PE's part of the GPU heap, which the server's thread executes.
 *
 * All data pass through pinned memory, which the GPU reads and writes. Kernels move up to CHUNK bytes, so that no word
 * is torn, and perform the atomics, so that they are atomic with respect to those of kernels and near PEs; the copy
 * engine moves larger data. The work is enqueued on a stream of the server, and each request waits for it to complete:
 * what a reply acknowledges is in place. Meanwhile the server executes requests of other peers that need no GPU. */
#pragma once
#include "../gpu/launch.h"
#include "execute.h"

enum { PERFORM, MOVE, PLANS = MOVE + 4 }; /* kernels: MOVE + i moves words of 1 << i bytes */

/* length: of this PE's part, with the areas; it grows. attach(device) makes the GPU current, relax admits graph
 * captures, query says whether the stream is idle. staging: pinned memory, STAGE bytes for data, and 64 for the result
 * of an atomic. scratch: 32 bytes of GPU memory, for gpu_warm. */
typedef struct {
    char *base;
    uint64_t length;
    int is_hip;
    uint64_t attach, device, relax, copy, query, stream;
    char *staging;
    uint64_t scratch;
} gpu_memory_t;

INTERNAL int gpu_open(const gpu_memory_t *memory, const uint64_t *plans, int *code);
INTERNAL void gpu_extend(uint64_t length);
