/* Copies between the parts of partitioned tensors in CPU memory: products of lists of runs, a list for each axis. */
#pragma once
#include <stdint.h>

#include "internal.h"

/* `number` runs of indices, each a step after the one before; the first is at `to` in one part and at `from` in the
 * other. `length`: indices of a run, of the last axis bytes. All others but `number` are bytes. */
typedef struct {
    int64_t to, from, to_step, from_step, number, length;
} run_t;

/* The head of an axis in a plan: its runs follow. to, from: bytes from one index to the next. */
typedef struct {
    int64_t to, from, n_runs;
} axis_t;

INTERNAL void copy_blocks(char *to, const char *from, const axis_t *axis, int64_t axes, int past);
