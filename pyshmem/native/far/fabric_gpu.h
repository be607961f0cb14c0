/* Registration of GPU heaps with a fabric, part by part, so that puts and gets of far PEs go to them without a stop in
 * CPU memory. libfabric takes a dma-buf of the memory where the driver offers one. */
#pragma once
#include "fabric.h"

enum { PARTS = 8192 }; /* the most of a heap, which grows by 64 MiB or more */

INTERNAL int region_prepare(fabric_t *f, uint64_t heap, const region_t *part, uint64_t iface, uint64_t device);
INTERNAL void region_admit(fabric_t *f);
