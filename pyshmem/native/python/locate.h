/* Where arrays are: in which heap, whether they are live, and at which address of which route the memory of a peer is.
 * One call of Python's checks the arrays of an operation. */
#pragma once
#include "tensors.h"

/* A view describes a heap: (reader, torch.Tensor, base, starts, ends, device type, device, heap, deltas, near, far
 * deltas, far), see pyshmem.memory.heap. near is the route to the PEs with mapped heaps, far that to the others, see
 * pyshmem.transport. */
typedef struct {
    uint64_t base;
    PyObject *starts, *ends, *heap, *deltas, *near, *far_deltas, *far;
} view_t;
INTERNAL int find_view(PyObject *views, const operand_t *t, view_t *v);
INTERNAL int is_live(const view_t *v, uint64_t address, uint64_t nbytes);
INTERNAL int pair_of_one_kind(PyObject *views, PyObject *const *arrays, operand_t *dest, operand_t *source, view_t *v);
GLOBAL int wants_located;
typedef struct {
    uint64_t nbytes, data, place;
    int found, far, on_gpu;
} located_t;
GLOBAL _Thread_local located_t located;
