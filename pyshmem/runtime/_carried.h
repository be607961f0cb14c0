/* Requests to other nodes in a timeline: the numbers of those that a call sends, and what the service and the proxy
 * have executed. A request is known by the PE that sends it, the PE that executes it and its number on their link.
 *
 * Threads without the GIL record here, into a file of its own, one at a time. Without a timeline each only looks at
 * carried.on. */
#pragma once
#include <pthread.h>

#include "_event_files.h"
#include "_spins.h" /* now_ns */

enum { NONE_SENT = -1, SENT_TO_SEVERAL = -2 };

/* The requests that this thread has sent since `pe` was NONE_SENT, by numbers. */
typedef struct {
    int pe;
    uint64_t first, last;
} sent_t;
static _Thread_local sent_t sent = {NONE_SENT, 0, 0};

static struct {
    int on;
    pthread_mutex_t lock;
    event_file_t file;
} carried = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline int is_carried(void) { return __atomic_load_n(&carried.on, __ATOMIC_RELAXED); }

static inline void note_sent(int pe, uint64_t first, uint64_t last) {
    if (!is_carried()) return;
    if (sent.pe == NONE_SENT)
        sent = (sent_t){pe, first, last};
    else if (sent.pe == pe)
        sent.last = last;
    else
        sent.pe = SENT_TO_SEVERAL;
}

/* Takes the requests of a call into its event: the PE + 1, how many more than one, the number of the last. */
static void take_sent(event_t *e, sent_t s) {
    uint64_t more = s.last - s.first;
    if (s.pe < 0) return;
    e->before = (int64_t)((uint64_t)(s.pe + 1) << 48 | (more < 0xFFFF ? more : 0xFFFF) << 32 | (s.last & 0xFFFFFFFF));
    e->flags |= EVENT_SENT;
}

/* When a request begins; 0 without a timeline. */
static inline int64_t begin_carried(void) { return is_carried() ? now_ns() : 0; }

/* Records a request that has been executed. pe: that has sent it, or of the proxy that executes it. s: the requests
 * that it has sent itself. */
static void note_carried(int track, int pe, uint32_t op, uint64_t nbytes, uint64_t number, int64_t begin, sent_t s) {
    if (!begin) return;
    int64_t end = now_ns();
    pthread_mutex_lock(&carried.lock);
    event_t *e = next_event(&carried.file, op);
    if (e) {
        e->track = (uint16_t)track, e->pe = pe, e->nbytes = nbytes, e->value = (int64_t)number, e->flags = EVENT_FAR;
        e->thread = track == OF_SERVICE ? (uint32_t)pe : 0;
        take_sent(e, s);
        e->end = end, e->begin = begin;
    }
    pthread_mutex_unlock(&carried.lock);
}

/* Returns 0, or the errno. */
static int open_carried(const char *path, uint64_t most) {
    pthread_mutex_lock(&carried.lock);
    int error = open_event_file(&carried.file, path, most);
    __atomic_store_n(&carried.on, !error, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&carried.lock);
    return error;
}

static void close_carried(void) {
    pthread_mutex_lock(&carried.lock);
    __atomic_store_n(&carried.on, 0, __ATOMIC_RELAXED);
    close_event_file(&carried.file);
    pthread_mutex_unlock(&carried.lock);
}
