/* What this PE does, counted in a page that `pyshmem top` maps while the job runs; see pyshmem.base.activity.
 *
 * Counts are plain increments of whatever thread makes a call: of two at once, one may be lost. The clock is read only
 * while somebody watches. Nothing here knows Python. */
#pragma once
#include <stdint.h>

#include "internal.h"

enum { WHERE_BYTES = 256 };

/* calls, bytes: that moved data or a word, to near and to far PEs. meetings: barriers and collectives. waits: those
 * that had to wait. waited: nanoseconds of them, while watched. since: when the present wait began, or the watching; 0:
 * none is known. used, size: bytes of the heaps in CPU memory and GPU memory. where: the call and the line of a long
 * wait. served, served_bytes: requests of far PEs, which another thread counts: so they have a line of the cache. */
typedef struct {
    uint64_t calls[2], bytes[2], meetings, waits, waited;
    int64_t since;
    uint64_t used[2], size[2], watched, ended, unused[2];
    uint64_t served, served_bytes, unused_too[6];
    char where[WHERE_BYTES];
} activity_t;

GLOBAL activity_t no_activity, *activity; /* no_activity: where nobody looks */

static inline void count_call(int far, uint64_t nbytes) {
    activity->calls[far]++;
    activity->bytes[far] += nbytes;
}
static inline void count_request(uint64_t nbytes) {
    activity->served++;
    activity->served_bytes += nbytes;
}
