/* Files of events of a timeline, which are mapped: what a PE has recorded outlives it. pyshmem.timelines.events reads
 * them.
 *
 * A file grows before its memory is used, so that a full disk loses events, which are counted, and does not end the
 * process. Nothing here knows Python. */
#pragma once
#include "../base/internal.h"
#include <stdint.h>

/* begin, end: nanoseconds of CLOCK_MONOTONIC; end is 0 until then. place: of a word, in bytes from its heap's start; of
 * a call of a team, its start, stride and size. value: written or waited for; of a request, its number. before: the
 * word when the wait began; with EVENT_SENT the requests of the call, as take_sent of carried.h writes them. */
typedef struct {
    int64_t begin, end;
    uint64_t nbytes, place;
    int64_t value, before;
    int32_t pe; /* in the world, -1 for none; of a request the PE that has sent it */
    uint32_t name, thread;
    uint8_t op, flags;
    uint16_t track;
} event_t;

/* What an event does: waits have WAITS and the number of the comparison. READS, WRITES: memory of the call with the
 * same begin, `nbytes` from `place` on, an address; ENDS: of a result that nobody has any more; PLAN: the call under
 * way is by this plan. 4 is of spans. */
enum { OP_NONE, OP_SET, OP_ADD, OP_MEET, OP_READS = 5, OP_WRITES, OP_ENDS, OP_PLAN, OP_WAITS = 16 };
enum {
    EVENT_FAR = 1,
    EVENT_FAILED = 2,
    EVENT_ON_GPU = 4,
    EVENT_WORD = 8,
    EVENT_BEFORE = 16,
    EVENT_SENT = 32,
};
enum { OF_HOST, OF_KERNELS, OF_PROXY = 0xFFFE, OF_SERVICE = 0xFFFF }; /* tracks */

enum { EVENTS_HEAD = 4096 }; /* bytes before the first event */

typedef struct {
    uint64_t taken, room; /* events that were asked for, and that there is space for */
    uint64_t error;       /* the errno for which there is no more space; 0: there are `most` */
    uint64_t closed;
} events_head_t;

typedef struct {
    events_head_t *head; /* NULL: nothing is recorded */
    event_t *events;
    uint64_t most;
    int descriptor, full;
} event_file_t;
INTERNAL event_t *events_next(event_file_t *f, uint32_t name);
INTERNAL int events_open(event_file_t *f, const char *path, uint64_t most);
INTERNAL void events_close(event_file_t *f);
