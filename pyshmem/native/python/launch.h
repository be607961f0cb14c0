/* Calls of the GPU driver that enqueue copies and prepared launches of kernels. */
#pragma once
#include "../gpu/launch.h"
#include "locate.h"

/* The kinds of a kernel's arguments: in its code, or passed. WORDS: a tuple, whose words Python has packed. */
enum { CONSTANT, POINTER, INTEGER, FLOAT, DOUBLE, WORDS };

INTERNAL PyObject *enqueue_kernel(const uint64_t *head, uint64_t stream, uint64_t *words);
