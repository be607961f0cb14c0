/* The proxy thread, by which kernels on a GPU reach far PEs.
 *
 * A kernel writes a request into a ring in memory that the GPU and the CPU share (pyshmem.device.arch.gpu.requests),
 * and the proxy sends it like a call of the host (calls.h). So the requests of a process are executed in the order of
 * their tickets, and those to one PE in this order at the PE too. The data of a request lie in its slot: the proxy
 * needs no GPU. It is not the thread of the server, because it blocks: two servers that wait for each other would serve
 * nobody.
 *
 * A kernel cannot wake a thread. The proxy polls for a while after a request or a wake, and then less and less often.
 * The proxies of NVSHMEM and MSCCL++ are also rings with a host thread. */
#pragma once
#include "far.h"

/* as pyshmem.base.far has them: the slots of the ring, and the bytes of a slot's words and of its data */
enum { SLOTS = 32, SLOT_HEAD = 128, PIECE = 1 << 18 };
/* Numbers are those of requests, from 1, in words that only grow. ready: the kernel has written a request. done: its
 * reply is here. free: the slot may be used again; a kernel says so itself for a request with a reply. The other words
 * are as in request_t; result: what an atomic has found. */
typedef struct {
    uint64_t ready, done, free, op, detail, place, nbytes, value, cond, result;
} slot_t;

/* Words of the record of a wait that has timed out, as in pyshmem.base.kernel_timeouts. */
enum { RECORD_ROUTINE, RECORD_CLAIM, RECORD_PE, RECORD_OFFSET, RECORD_SEEN = 6, RECORD_MISSING = 8 };
enum { LOST = -2 }; /* the offset, if a request has failed: seen is the errno, missing the world PE */

typedef struct proxy proxy_t;

INTERNAL int proxy_open(char *ring, int64_t *record, int64_t code);
INTERNAL void proxy_wake(proxy_t *x);
INTERNAL void proxy_drain(void);
INTERNAL void proxy_stop(void);
