/* Calls of the GPU driver that launch prepared kernels. */
#pragma once
#include <stdint.h>

#include "../base/internal.h"

/* The arguments of a kernel launch before the stream and the parameters. EARLY: whether LAUNCHER is cuLaunchKernelEx,
 * which lets the kernel begin before its predecessor has ended; the kernel waits for it before it accesses memory. */
enum { LAUNCHER, KERNEL, GRID_X, GRID_Y, GRID_Z, THREADS, SHARED, EARLY, HEAD, MOST_WORDS = 128 };

/* hipGetLastError, or NULL. HIP 7 keeps the error of a thread until this call, and torch reports what it finds after
 * its next launch. */
GLOBAL int (*forget_error)(void);

INTERNAL int handled(int code);
INTERNAL int start_kernel(const uint64_t *head, uint64_t stream, uint64_t *words);
