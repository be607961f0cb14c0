/* Puts and gets by remote memory access of a fabric, through libfabric, which is loaded when the program runs.
 *
 * All writes are delivery-complete: a completion says that the data are in place, which the self-test at init verifies.
 * A write or a read waits for the requests before the last fence, and for the writes before it: providers may let a
 * write pass another one. A request to a PE waits for this PE's writes to it, unless it goes by a message of the fabric
 * and the provider keeps messages behind writes (FI_ORDER_SAW). */
#pragma once
#include "fabric.h"
#include "link.h"

INTERNAL int rma_takes(uint64_t place, uint64_t nbytes);
INTERNAL region_t *region_at(fabric_t *f, uint64_t offset);
INTERNAL region_t *region_of(fabric_t *f, const char *data, uint64_t nbytes);
INTERNAL link_t *rma_put(uint64_t place, const char *source, uint64_t nbytes);
INTERNAL link_t *rma_put_before(uint64_t place, const char *source, uint64_t nbytes);
INTERNAL link_t *rma_get(char *dest, uint64_t place, uint64_t nbytes, int wait);
INTERNAL int rma_settle(link_t *l);
INTERNAL link_t *rma_quiet(void);
INTERNAL void rma_fence(void);
INTERNAL void rma_close(fabric_t *f);
