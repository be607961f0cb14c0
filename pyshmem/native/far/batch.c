#include "batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/spin.h"
#include "../trace/carried.h"

/* SMALL: the most bytes of a put that is held. SOON_NS: since the previous one, within which a put follows it. */
enum { BATCH_BYTES = 4096, SMALL = 256, SOON_NS = 10000 };

/* Lets the server send what is held, if no call does. */
static void batch_leave_to_server(void) {
    uint64_t one = 1;
    if (!__atomic_exchange_n(&far->holding, 1, __ATOMIC_SEQ_CST) && write(far->wake, &one, sizeof one) < 0)
        far->holding = 0;
}

/* Holds a small put, or sends it. The link is locked. */
static int batch_put(link_t *l, struct iovec v[2]) {
    uint64_t fences = __atomic_load_n(&far->fences, __ATOMIC_RELAXED), nbytes = v[0].iov_len + v[1].iov_len;
    int follows = now_ns() - l->put_at < SOON_NS && l->put_fences == fences;
    int failed = 0, room = BATCH_BYTES - l->batch_bytes >= nbytes;
    if (follows && room && (l->batch || (l->batch = malloc(BATCH_BYTES)))) {
        memcpy(l->batch + l->batch_bytes, v[0].iov_base, v[0].iov_len);
        memcpy(l->batch + l->batch_bytes + v[0].iov_len, v[1].iov_base, v[1].iov_len);
        l->batch_bytes += nbytes;
        batch_leave_to_server();
    } else
        failed = link_write(l, v, 2);
    l->put_at = now_ns(), l->put_fences = fences;
    return failed;
}

/* Sends a request with its data. The link is locked. */
INTERNAL int link_send(link_t *l, request_t *r, const void *data, uint64_t nbytes) {
    struct iovec v[2] = {{r, sizeof *r}, {(void *)data, nbytes}};
    /* The first request after a reply asks for the next one, so that a single put needs no second request to be
     * completed. */
    if (r->op != GET && r->op != GET_STRIDED && r->op != FETCH) r->asks = r->op == FLUSH || l->asked <= l->executed;
    l->sent++;
    carried_note_sent(l->conn.pe, l->sent, l->sent);
    if (r->op != FLUSH) l->due = l->sent;
    if (r->asks || r->op == GET || r->op == GET_STRIDED || r->op == FETCH) l->asked = l->sent;
    return r->op == PUT && nbytes <= SMALL ? batch_put(l, v) : link_write(l, v, nbytes ? 2 : 1);
}

/* Sends what is held for a PE, as far as the connection takes it now. The link is locked. */
static void batch_flush(link_t *l) {
    while (l->batch_bytes && !l->error) {
        struct iovec v = {l->batch, l->batch_bytes};
        ssize_t k = l->conn.carrier->send(&l->conn, &v, 1);
        if (k < 0 && errno != EAGAIN && errno != EINTR) link_fail(l, errno);
        if (k < 0) return;
        l->batch_bytes -= (uint64_t)k;
        memmove(l->batch, l->batch + k, l->batch_bytes);
    }
}

/* Sends what is held for all PEs. Does not wait: what cannot be sent now is left to the server. */
INTERNAL void batch_flush_all(void) {
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
        batch_flush(l);
        left |= l->batch_bytes && !l->error;
        pthread_mutex_unlock(&l->lock);
    }
    if (left) batch_leave_to_server();
}
