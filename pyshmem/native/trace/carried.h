/* Requests to other nodes in a timeline: the numbers of those that a call sends, and what the service and the proxy
 * have executed. A request is known by the PE that sends it, the PE that executes it and its number on their link.
 *
 * Threads without the GIL record here, into a file of its own, one at a time. Without a timeline each only looks at
 * carried.on. */
#pragma once
#include "../base/spin.h" /* now_ns */
#include "file.h"
#include <pthread.h>

enum { NONE_SENT = -1, SENT_TO_SEVERAL = -2 };

/* The requests that this thread has sent since `pe` was NONE_SENT, by numbers. */
typedef struct {
    int pe;
    uint64_t first, last;
} sent_t;
GLOBAL _Thread_local sent_t sent;
typedef struct {
    int on;
    pthread_mutex_t lock;
    event_file_t file;
} carried_t;
GLOBAL carried_t carried;

static inline int carried_is_on(void) { return __atomic_load_n(&carried.on, __ATOMIC_RELAXED); }

static inline void carried_note_sent(int pe, uint64_t first, uint64_t last) {
    if (!carried_is_on()) return;
    if (sent.pe == NONE_SENT)
        sent = (sent_t){pe, first, last};
    else if (sent.pe == pe)
        sent.last = last;
    else
        sent.pe = SENT_TO_SEVERAL;
}
INTERNAL void carried_take_sent(event_t *e, sent_t s);

/* When a request begins; 0 without a timeline. */
static inline int64_t carried_begin(void) { return carried_is_on() ? now_ns() : 0; }
INTERNAL void carried_note(int track, int pe, uint32_t op, uint64_t nbytes, uint64_t number, int64_t begin, sent_t s);
INTERNAL int carried_open(const char *path, uint64_t most);
INTERNAL void carried_close(void);
