#include "link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "../base/copy.h"
#include "../base/host.h"
#include "../base/spin.h"

enum { QUEUE = 16 };     /* replies that a link expects at first */
enum { HELP_NS = 5000 }; /* of a wait, after which it executes requests of others */

/* Whether this thread had no memory for a request, of which nothing has been sent. */
static _Thread_local int refused;

INTERNAL int link_fail(link_t *l, int error) {
    if (l->conn.fd >= 0 && !far->trial) shutdown(l->conn.fd, SHUT_RDWR);
    l->error = error ? error : ECONNRESET;
    return -1;
}

/* For want of memory nothing more of a call is sent. The connection goes on. */
INTERNAL int link_refuse(void) {
    refused = 1;
    return -1;
}

/* Why a call on this link has failed. */
INTERNAL int link_error(link_t *l) {
    int error = refused ? ENOBUFS : l->error ? l->error : l->refused ? EBADR : 0;
    refused = l->refused = 0;
    return error ? error : EDEADLK; /* a handler that calls the PE of the call that it has interrupted */
}

/* Executes requests of others, and with `ends` does so no more: see helper in spin.h. */
static void let_help(int ends) {
    if (helper) helper(ends);
}

/* ---- replies ---- */

INTERNAL int link_expect(link_t *l, expected_t e) {
    if (l->count == l->room) {
        uint64_t room = l->room ? 2 * l->room : QUEUE;
        expected_t *queue = malloc(room * sizeof *queue);
        if (!queue) return link_refuse();
        for (uint64_t i = 0; i < l->count; i++) queue[i] = l->queue[(l->first + i) % l->room];
        free(l->queue);
        l->queue = queue, l->room = room, l->first = 0;
    }
    l->queue[(l->first + l->count++) % l->room] = e;
    return 0;
}

/* Ends the first expected reply, whose data have all come. */
static void link_fulfil(link_t *l) {
    expected_t *e = &l->queue[l->first];
    if (e->packed) {
        for (uint64_t i = 0; e->dest && i * e->item < e->nbytes; i++)
            copy_item(e->dest + i * e->step, e->packed + i * e->item, e->item);
        free(e->packed);
    }
    l->executed = e->seq;
    l->first = (l->first + 1) % l->room, l->count--;
}

/* Drops the replies to requests first to last, as their call ends before they have come. The link is locked. */
INTERNAL void link_abandon(link_t *l, uint64_t first, uint64_t last) {
    for (uint64_t i = 0; i < l->count; i++) {
        expected_t *e = &l->queue[(l->first + i) % l->room];
        if (e->seq < first || e->seq > last) continue;
        if (!e->packed && e->nbytes) { /* which may be under way */
            if (!(e->packed = malloc(e->nbytes))) {
                link_fail(l, ENOMEM);
                return;
            }
            if (!i && l->rest) l->into = e->packed + (e->nbytes - l->rest);
        }
        e->dest = NULL, e->value = NULL;
    }
}

/* Begins a reply, whose data follow at `data`, `here` bytes of them so far. Returns how many it has used, or -1. */
static int64_t link_begin_reply(link_t *l, const reply_t *reply, const char *data, uint64_t here) {
    expected_t *e = l->count ? &l->queue[l->first] : NULL;
    uint64_t nbytes = reply->nbytes;
    if (nbytes == MISALIGNED) l->refused = 1, nbytes = 0;
    if (!e || e->seq != reply->executed) {
        if (nbytes || reply->executed > l->sent) return link_fail(l, EPROTO);
        if (reply->executed > l->executed) l->executed = reply->executed;
        return 0;
    }
    if (nbytes != e->nbytes) return link_fail(l, EPROTO);
    if (e->value) copy_unaligned(e->value, (const char *)&reply->value, e->item);
    char *to = e->packed ? e->packed : e->dest;
    uint64_t now = here < e->nbytes ? here : e->nbytes;
    copy_unaligned(to, data, now);
    l->into = to + now, l->rest = e->nbytes - now;
    if (!l->rest) link_fulfil(l);
    return (int64_t)now;
}

/* Reads what has come. Returns 1 if anything has, 0 if not, -1 if the connection has ended. The link is locked. */
INTERNAL int link_read(link_t *l) {
    char *to = l->rest ? l->into : l->in + l->have;
    uint64_t room = l->rest ? l->rest : sizeof l->in - l->have;
    ssize_t k = l->conn.carrier->receive(&l->conn, to, room);
    if (k == 0) return link_fail(l, ECONNRESET);
    if (k < 0) return errno == EAGAIN || errno == EINTR ? 0 : link_fail(l, errno);
    l->progress = now_ns();
    if (l->waiting) pthread_cond_broadcast(&l->moved);
    if (l->rest) {
        l->into += k, l->rest -= (uint64_t)k;
        if (!l->rest) link_fulfil(l);
        return 1;
    }
    l->have += (uint64_t)k;
    uint64_t at = 0;
    reply_t reply;
    while (!l->rest && l->have - at >= sizeof reply) {
        memcpy(&reply, l->in + at, sizeof reply);
        /* a word in a reply is copied by one store, so all of its bytes must have come */
        if (reply.nbytes <= 8 && l->have - at < sizeof reply + reply.nbytes) break;
        at += sizeof reply;
        int64_t used = link_begin_reply(l, &reply, l->in + at, l->have - at);
        if (used < 0) return -1;
        at += (uint64_t)used;
    }
    memmove(l->in, l->in + at, l->have - at);
    l->have -= at;
    return 1;
}

/* Whether nothing has moved within the limit, since `since`. Then the link has failed. */
INTERNAL int link_is_late(link_t *l, int64_t since) {
    if (l->progress > since) since = l->progress;
    return far_is_late(since) ? link_fail(l, ETIMEDOUT) : 0;
}

/* Sleeps until the connection can be read, or written if `events` has POLLOUT, with the link locked: a handler that
 * calls this PE is refused (EDEADLK). Returns -1 for a failure, also an exception, after which the link is of no use: a
 * part of a request may have been sent. */
INTERNAL int link_poll(link_t *l, short events, int64_t since) {
    if (l->conn.carrier->sleep(&l->conn, events)) return link_fail(l, ECONNRESET);
    if (caller_interrupted()) return link_fail(l, EINTR);
    return link_is_late(l, since);
}

/* Waits for a moment for replies. The link is locked, but not meanwhile. One thread looks for the replies to all, and
 * the others wait for it. Returns -1 for a failure. */
static int link_rest(link_t *l, int64_t begun) {
    if (l->reads) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        int64_t ns = until.tv_nsec + SLICE_MS * 1000000;
        until.tv_sec += ns / 1000000000, until.tv_nsec = ns % 1000000000;
        l->waiting++;
        pthread_cond_timedwait(&l->moved, &l->lock, &until);
        l->waiting--;
        return 0;
    }
    int read = link_read(l);
    int ended = 0;
    if (read) return read < 0 ? -1 : 0;
    l->reads = 1;
    pthread_mutex_unlock(&l->lock);
    int64_t since = l->progress > begun ? l->progress : begun;
    int64_t waited = now_ns() - since;
    if (waited > SPIN_NS || far_backs_off()) {
        let_help(1);
        ended = l->conn.carrier->sleep(&l->conn, POLLIN);
    } else if (waited > HELP_NS)
        let_help(0);
    else
        far_pause();
    pthread_mutex_lock(&l->lock);
    l->reads = 0;
    return ended ? link_fail(l, ECONNRESET) : 0;
}

/* Waits until request number `last` has been executed and its reply has come. The link is not locked. Returns 0, or -1
 * for a failure; if that is an exception of a handler, the replies to requests first to last are dropped. begun: since
 * when the link may have been silent. */
INTERNAL int link_await_since(link_t *l, uint64_t first, uint64_t last, int64_t begun) {
    int failed = pthread_mutex_lock(&l->lock);
    if (failed) return -1;
    if (l->executed < last && l->batch_bytes) failed = link_write(l, NULL, 0);
    while (!failed && l->executed < last) {
        failed = l->error || link_rest(l, begun) || link_is_late(l, begun);
        if (failed || l->executed >= last || now_ns() - begun < SLICE_MS * 1000000) continue;
        pthread_mutex_unlock(&l->lock);
        let_help(1);
        int raised = caller_interrupted();
        pthread_mutex_lock(&l->lock);
        if (raised) link_abandon(l, first, last), failed = 1;
    }
    failed = failed || l->refused;
    if (l->waiting) pthread_cond_broadcast(&l->moved); /* one of them looks for replies from now on */
    pthread_mutex_unlock(&l->lock);
    let_help(1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* later loads are not older than the reply */
    return failed ? -1 : 0;
}

INTERNAL int link_await(link_t *l, uint64_t first, uint64_t last) { return link_await_since(l, first, last, now_ns()); }

/* ---- requests ---- */

/* Sends what is held, and up to three buffers. If the connection is full, replies are read meanwhile: the target does
 * not read requests while it cannot reply. */
INTERNAL int link_write(link_t *l, const struct iovec *buffers, int n) {
    int64_t since = now_ns();
    struct iovec all[4] = {{l->batch, l->batch_bytes}}, *v = l->batch_bytes ? all : all + 1;
    for (int i = 0; i < n; i++) all[1 + i] = buffers[i];
    n += l->batch_bytes != 0, l->batch_bytes = 0;
    while (n) {
        ssize_t k = l->conn.carrier->send(&l->conn, v, n);
        if (k < 0 && errno != EAGAIN && errno != EINTR) return link_fail(l, errno);
        if (k < 0) {
            int read = link_read(l);
            if (read < 0 || (!read && link_poll(l, POLLIN | POLLOUT, since))) return -1;
            continue;
        }
        since = now_ns();
        for (; n && (size_t)k >= v->iov_len; v++, n--) k -= (ssize_t)v->iov_len;
        if (n) v->iov_base = (char *)v->iov_base + k, v->iov_len -= (size_t)k;
    }
    return 0;
}
