/* Requests to far PEs, and small puts that follow each other at once: they are held, to be sent by one message.
 *
 * A put is held if another one to the same PE has just been made, with no fence in between. What is held leaves with
 * the next request of another kind to this PE, when the buffer is full, when a call of this PE waits, and otherwise by
 * the service within about HELD_MS. */
#pragma once
#include "_links.h"

/* SMALL: the most bytes of a put that is held. SOON_NS: since the previous one, within which a put follows it. */
enum { HELD_BYTES = 4096, SMALL = 256, SOON_NS = 10000, HELD_MS = 1 };

/* Lets the service send what is held, if no call does. */
static void leave_held_to_service(void) {
    uint64_t one = 1;
    if (!__atomic_exchange_n(&far->holding, 1, __ATOMIC_SEQ_CST) && write(far->wake, &one, sizeof one) < 0)
        far->holding = 0;
}

/* Holds a small put, or sends it. The link is locked. */
static int hold(link_t *l, struct iovec v[2]) {
    uint64_t fences = __atomic_load_n(&far->fences, __ATOMIC_RELAXED), nbytes = v[0].iov_len + v[1].iov_len;
    int follows = now_ns() - l->put_at < SOON_NS && l->put_fences == fences;
    int failed = 0, room = HELD_BYTES - l->n_held >= nbytes;
    if (follows && room && (l->held || (l->held = malloc(HELD_BYTES)))) {
        memcpy(l->held + l->n_held, v[0].iov_base, v[0].iov_len);
        memcpy(l->held + l->n_held + v[0].iov_len, v[1].iov_base, v[1].iov_len);
        l->n_held += nbytes;
        leave_held_to_service();
    } else
        failed = link_write(l, v, 2);
    l->put_at = now_ns(), l->put_fences = fences;
    return failed;
}

/* Sends a request with its data. The link is locked. */
static int request(link_t *l, request_t *r, const void *data, uint64_t nbytes) {
    struct iovec v[2] = {{r, sizeof *r}, {(void *)data, nbytes}};
    /* The first request after a reply asks for the next one, so that a single put needs no second request to be
     * completed. */
    if (r->op != GET && r->op != GET_STRIDED && r->op != FETCH) r->asks = r->op == FLUSH || l->asked <= l->executed;
    l->sent++;
    note_sent(l->pe, l->sent, l->sent);
    if (r->op != FLUSH) l->due = l->sent;
    if (r->asks || r->op == GET || r->op == GET_STRIDED || r->op == FETCH) l->asked = l->sent;
    return r->op == PUT && nbytes <= SMALL ? hold(l, v) : link_write(l, v, nbytes ? 2 : 1);
}

/* Sends what is held for a PE, as far as the wire takes it now. The link is locked. */
static void send_held(link_t *l) {
    while (l->n_held && !l->error) {
        struct iovec v = {l->held, l->n_held};
        ssize_t k = l->wire.on ? wire_send(l, &v, 1) : send_parts(l->fd, &v, 1);
        if (k < 0 && errno != EAGAIN && errno != EINTR) link_fail(l, errno);
        if (k < 0) return;
        l->n_held -= (uint64_t)k;
        memmove(l->held, l->held + k, l->n_held);
    }
}

/* Sends what is held for all PEs. Does not wait: what cannot be sent now is left to the service. */
static void send_all_held(void) {
    int left = 0;
    if (!__atomic_load_n(&far->holding, __ATOMIC_RELAXED) || !__atomic_exchange_n(&far->holding, 0, __ATOMIC_SEQ_CST))
        return;
    pthread_mutex_lock(&far->lock);
    int n = far->n_open;
    pthread_mutex_unlock(&far->lock);
    for (int i = 0; i < n; i++) {
        link_t *l = far->open[i];
        if (pthread_mutex_trylock(&l->lock)) {
            left = 1;
            continue;
        }
        send_held(l);
        left |= l->n_held && !l->error;
        pthread_mutex_unlock(&l->lock);
    }
    if (left) leave_held_to_service();
}
