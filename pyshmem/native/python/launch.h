/* Calls of the GPU driver that enqueue copies and prepared launches of kernels. */
#pragma once
#include "../gpu/launch.h"
#include "locate.h"

INTERNAL PyObject *enqueue_kernel(const uint64_t *head, uint64_t stream, uint64_t *words);
