#include "carried.h"

INTERNAL _Thread_local sent_t sent = {NONE_SENT, 0, 0};

INTERNAL carried_t carried = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Takes the requests of a call into its event: the PE + 1, how many more than one, the number of the last. */
INTERNAL void carried_take_sent(event_t *e, sent_t s) {
    uint64_t more = s.last - s.first;
    if (s.pe < 0) return;
    e->before = (int64_t)((uint64_t)(s.pe + 1) << 48 | (more < 0xFFFF ? more : 0xFFFF) << 32 | (s.last & 0xFFFFFFFF));
    e->flags |= EVENT_SENT;
}

/* Records a request that has been executed. pe: that has sent it, or of the proxy that executes it. s: the requests
 * that it has sent itself. */
INTERNAL void carried_note(int track, int pe, uint32_t op, uint64_t nbytes, uint64_t number, int64_t begin, sent_t s) {
    if (!begin) return;
    int64_t end = now_ns();
    pthread_mutex_lock(&carried.lock);
    event_t *e = events_next(&carried.file, op);
    if (e) {
        e->track = (uint16_t)track, e->pe = pe, e->nbytes = nbytes, e->value = (int64_t)number, e->flags = EVENT_FAR;
        e->thread = track == OF_SERVICE ? (uint32_t)pe : 0;
        carried_take_sent(e, s);
        e->end = end, e->begin = begin;
    }
    pthread_mutex_unlock(&carried.lock);
}

/* Returns 0, or the errno. */
INTERNAL int carried_open(const char *path, uint64_t most) {
    pthread_mutex_lock(&carried.lock);
    int error = events_open(&carried.file, path, most);
    __atomic_store_n(&carried.on, !error, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&carried.lock);
    return error;
}

INTERNAL void carried_close(void) {
    pthread_mutex_lock(&carried.lock);
    __atomic_store_n(&carried.on, 0, __ATOMIC_RELAXED);
    events_close(&carried.file);
    pthread_mutex_unlock(&carried.lock);
}
