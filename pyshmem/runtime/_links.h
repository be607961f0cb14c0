/* Links to far PEs, which are on other nodes: this PE sends requests, and the service thread of the far PE executes
 * them (_service.h).
 *
 * A place is the address of memory on a far PE: (PE + 1) << FAR_SHIFT, plus the offset in that PE's part of the CPU
 * heap, or plus FAR_GPU and the offset in its part of the GPU heap. All other addresses here are of CPU memory. Each PE
 * has one connection to each far PE that it uses. The far PE executes the requests of a connection in order, so
 * requests to one PE are always ordered as by a fence. Every reply says how many requests have been executed, which
 * completes all of these. All functions but the Python methods are called without the GIL. They return NULL, or the
 * link that failed. */
#pragma once
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "_carried.h"
#include "_greeting.h"
#include "_near.h"
#include "_waits.h"

enum {
    FAR_SHIFT = 48,
    STAGE = 1 << 18,
    CHUNK = 8192,
    SPIN_NS = 50000,
    HELP_NS = 5000, /* of a wait, after which it executes requests of others */
    QUEUE = 16,
    PATIENCE_MS = 30000,
    SLICE_MS = 20 /* the longest sleep between two looks at signals */
};

enum { PUT = 1, GET, PUT_STRIDED, GET_STRIDED, UPDATE, FETCH, POST, FLUSH, BYE, HOLD }; /* operations of requests */

#define FAR_GPU (UINT64_C(1) << 47) /* of an offset: it is in the GPU heap */

/* offset, nbytes: the memory at the target. asks: whether the target acknowledges the request at once. PUT: nbytes
 * follow. PUT_STRIDED: nbytes of items follow, which are `value` bytes apart at the target; detail: bytes of
 * an item. GET_STRIDED likewise, but the items follow in the reply. UPDATE, FETCH: detail is operator * 16 + type.
 * POST: cond is the offset of the word that tells whether the target sleeps. */
typedef struct {
    uint16_t op, asks;
    uint32_t detail;
    uint64_t offset, nbytes, value, cond;
} request_t;
typedef struct {
    uint64_t executed, value, nbytes;
} reply_t;                    /* nbytes follow */
#define MISALIGNED UINT64_MAX /* instead of nbytes: the request was an atomic of a word that is not aligned */

/* An expected reply with data, or with a value of which `item` bytes are wanted, for which request number `seq` has
 * asked. dest, value: NULL if the call that waited has ended. */
typedef struct {
    uint64_t seq, nbytes;
    char *dest;
    uint64_t step, item;
    char *value, *packed;
} expected_t;

/* The bytes of a connection in messages of a fabric (_wires.h). on: whether they go this way. Counts of messages: sent,
 * freed: by this side, and those that the other one has taken; taken, told: of the other side, and what it knows of
 * these. first, last: have come; at: the bytes of the first that have been taken. */
typedef struct {
    int on;
    uint64_t sent, freed, taken, told, at;
    struct message *first, *last;
} wire_t;

typedef struct {
    pthread_mutex_t lock;
    int pe, error; /* error: the errno that ended the connection, or 0 */
    int fd;        /* of the connection, since the first request; or -1 */
    /* numbers of requests: the last one sent; the last that quiet completes, which are all but the messages of
     * barriers; the last for which a reply was asked; the last known to be executed */
    uint64_t sent, due, asked, executed;
    expected_t *queue;
    uint64_t first, count, room; /* the queue is a ring */
    char *into;                  /* where the rest of a reply goes */
    uint64_t rest, have;
    char in[CHUNK];
    struct sockaddr_storage address;
    socklen_t address_bytes;
    uint64_t fenced;         /* the last request before a fence */
    int64_t flying, reading; /* writes and reads by the fabric that are under way; reads alone */
    pthread_cond_t moved;
    int refused;        /* whether the target has refused a request since the last error */
    int reads, waiting; /* whether a thread that waits looks for replies; the threads that wait for it */
    int64_t progress;   /* when something last came */
    wire_t wire;
    char *held; /* requests that are not sent yet, see _held.h */
    uint64_t n_held, put_fences;
    int64_t put_at; /* when the last small put was made; put_fences: and after how many fences */
} link_t;

typedef struct {
    int my_pe, n_pes, spins;
    int wake, epoll; /* of the service */
    int holding;     /* whether a link may hold requests */
    uint64_t fences; /* how many there have been */
    int trial;       /* the self-test of a fabric: requests to HOLD are executed, and no connection is given up */
    char *base;
    uint64_t length; /* of this PE's part of the CPU heap, with the areas */
    int64_t limit;   /* of a wait without progress, in nanoseconds; 0: none */
    hello_t hello;
    uint64_t token[2];
    link_t **links, **open; /* by PE; those with a wire */
    int n_open;
    pthread_mutex_t lock;
    char **hosts;     /* by PE */
    PyObject *refuse; /* refuse(routine, pe, errno) raises the error of a failed request */
    struct service *service;
    struct far_gpu *gpu;             /* the GPU heap, or NULL; see _far_gpu.h */
    struct proxy *proxy;             /* of this process's kernels, or NULL; see _proxy.h */
    struct fabric *fabric, *opening; /* or NULL; see _fabric.h */
} far_t;
static far_t *far; /* of this process, between init and finalize; a pointer is enough for one job */

static int help(int ends), is_shy(void); /* of _helping.h */
static int fabric_settle(link_t *l);     /* of _fabric.h */
static int follows_writes(const link_t *l), uses_messages(void);
static ssize_t wire_send(link_t *l, const struct iovec *v, int n); /* of _wires.h; as sendmsg and recv */
static ssize_t wire_receive(link_t *l, char *into, uint64_t room);
static int wire_sleep(link_t *l);
static int link_write(link_t *l, const struct iovec *buffers, int n);

/* Sends what fits into the socket, and returns what sendmsg does. */
static ssize_t send_parts(int fd, struct iovec *v, int n) {
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
    return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A forked process may hold the connection too. */
static void end_connection(int *fd) {
    if (*fd >= 0) shutdown(*fd, SHUT_RDWR), close(*fd);
    *fd = -1;
}

/* A call of a thread of Python, which has released the GIL: while it waits, signal handlers run. raised: one has raised
 * an exception. refused: this thread had no memory for a request, of which nothing has been sent. */
static _Thread_local struct {
    PyThreadState *released;
    int64_t checked;
    int raised, refused;
} caller;

static void begin_call(void) {
    caller.released = PyEval_SaveThread();
    caller.checked = now_ns(), caller.raised = 0;
}

/* Runs signal handlers if it is time. They may make calls too. Returns whether one has raised an exception. */
static int check_signals(void) {
    int64_t now = now_ns();
    if (!caller.released || caller.raised || now - caller.checked < SLICE_MS * 1000000) return caller.raised;
    PyThreadState *released = caller.released;
    PyEval_RestoreThread(released);
    int raised = PyErr_CheckSignals() != 0;
    caller.released = PyEval_SaveThread();
    caller.checked = now_ns(), caller.raised = raised;
    return raised;
}

static inline int is_far(uint64_t place) { return place >> FAR_SHIFT != 0 && place >> 63 == 0; }
static inline link_t *link_to(uint64_t place) { return far->links[(place >> FAR_SHIFT) - 1]; }
static inline uint64_t offset_of(uint64_t place) { return place & ((UINT64_C(1) << FAR_SHIFT) - 1); }

/* Copies from a buffer, in which a word may lie at any address. */
static void copy_bytes(char *to, const char *from, uint64_t nbytes) {
    uint64_t word;
    if (nbytes <= 8) from = memcpy(&word, from, nbytes);
    copy_item(to, from, nbytes);
}

static int link_fail(link_t *l, int error) {
    if (l->fd >= 0 && !far->trial) shutdown(l->fd, SHUT_RDWR);
    l->error = error ? error : ECONNRESET;
    return -1;
}

/* For want of memory nothing more of a call is sent. The connection goes on. */
static int refuse_call(void) {
    caller.refused = 1;
    return -1;
}

/* Why a call on this link has failed. */
static int take_error(link_t *l) {
    int error = caller.refused ? ENOBUFS : l->error ? l->error : l->refused ? EBADR : 0;
    caller.refused = l->refused = 0;
    return error ? error : EDEADLK; /* a handler that calls the PE of the call that it has interrupted */
}

/* ---- replies ---- */

static int expect(link_t *l, expected_t e) {
    if (l->count == l->room) {
        uint64_t room = l->room ? 2 * l->room : QUEUE;
        expected_t *queue = malloc(room * sizeof *queue);
        if (!queue) return refuse_call();
        for (uint64_t i = 0; i < l->count; i++) queue[i] = l->queue[(l->first + i) % l->room];
        free(l->queue);
        l->queue = queue, l->room = room, l->first = 0;
    }
    l->queue[(l->first + l->count++) % l->room] = e;
    return 0;
}

/* Ends the first expected reply, whose data have all come. */
static void fulfil(link_t *l) {
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
static void abandon(link_t *l, uint64_t first, uint64_t last) {
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
static int64_t begin_reply(link_t *l, const reply_t *reply, const char *data, uint64_t here) {
    expected_t *e = l->count ? &l->queue[l->first] : NULL;
    uint64_t nbytes = reply->nbytes;
    if (nbytes == MISALIGNED) l->refused = 1, nbytes = 0;
    if (!e || e->seq != reply->executed) {
        if (nbytes || reply->executed > l->sent) return link_fail(l, EPROTO);
        if (reply->executed > l->executed) l->executed = reply->executed;
        return 0;
    }
    if (nbytes != e->nbytes) return link_fail(l, EPROTO);
    if (e->value) copy_bytes(e->value, (const char *)&reply->value, e->item);
    char *to = e->packed ? e->packed : e->dest;
    uint64_t now = here < e->nbytes ? here : e->nbytes;
    copy_bytes(to, data, now);
    l->into = to + now, l->rest = e->nbytes - now;
    if (!l->rest) fulfil(l);
    return (int64_t)now;
}

/* Reads what has come. Returns 1 if anything has, 0 if not, -1 if the connection has ended. The link is locked. */
static int link_read(link_t *l) {
    char *to = l->rest ? l->into : l->in + l->have;
    uint64_t room = l->rest ? l->rest : sizeof l->in - l->have;
    ssize_t k = l->wire.on ? wire_receive(l, to, room) : recv(l->fd, to, room, MSG_DONTWAIT);
    if (k == 0) return link_fail(l, ECONNRESET);
    if (k < 0) return errno == EAGAIN || errno == EINTR ? 0 : link_fail(l, errno);
    l->progress = now_ns();
    if (l->waiting) pthread_cond_broadcast(&l->moved);
    if (l->rest) {
        l->into += k, l->rest -= (uint64_t)k;
        if (!l->rest) fulfil(l);
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
        int64_t used = begin_reply(l, &reply, l->in + at, l->have - at);
        if (used < 0) return -1;
        at += (uint64_t)used;
    }
    memmove(l->in, l->in + at, l->have - at);
    l->have -= at;
    return 1;
}

#define TRIAL_NS INT64_C(10000000000) /* the limit of waits in the self-test of a fabric */
static int64_t wait_limit(void) { return far->trial ? TRIAL_NS : far->limit; }

/* Whether nothing has moved within the limit, since `since`. Then the link has failed. */
static int is_late(link_t *l, int64_t since) {
    int64_t limit = wait_limit();
    if (l->progress > since) since = l->progress;
    return limit && now_ns() - since > limit ? link_fail(l, ETIMEDOUT) : 0;
}

/* Sleeps until the connection can be read, or written if `events` has POLLOUT, but not for long. Returns -1 if it has
 * ended, which with TCP link_read finds. */
static int link_sleep(link_t *l, short events) {
    struct pollfd p = {l->fd, events, 0};
    if (l->wire.on) return wire_sleep(l);
    poll(&p, 1, SLICE_MS);
    return 0;
}

/* As link_sleep, with the link locked: a handler that calls this PE is refused (EDEADLK). Returns -1 for a failure,
 * also an exception, after which the link is of no use: a part of a request may have been sent. */
static int link_poll(link_t *l, short events, int64_t since) {
    if (link_sleep(l, events)) return link_fail(l, ECONNRESET);
    if (check_signals()) return link_fail(l, EINTR);
    return is_late(l, since);
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
    if (waited > SPIN_NS || is_shy()) {
        help(1);
        ended = link_sleep(l, POLLIN);
    } else if (waited > HELP_NS)
        help(0);
    else if (far->spins <= CROWDED)
        sched_yield();
    else
        CPU_RELAX();
    pthread_mutex_lock(&l->lock);
    l->reads = 0;
    return ended ? link_fail(l, ECONNRESET) : 0;
}

/* Waits until request number `last` has been executed and its reply has come. The link is not locked. Returns 0, or -1
 * for a failure; if that is an exception of a handler, the replies to requests first to last are dropped. begun: since
 * when the link may have been silent. */
static int link_await_since(link_t *l, uint64_t first, uint64_t last, int64_t begun) {
    int failed = pthread_mutex_lock(&l->lock);
    if (failed) return -1;
    if (l->executed < last && l->n_held) failed = link_write(l, NULL, 0);
    while (!failed && l->executed < last) {
        failed = l->error || link_rest(l, begun) || is_late(l, begun);
        if (failed || l->executed >= last || now_ns() - begun < SLICE_MS * 1000000) continue;
        pthread_mutex_unlock(&l->lock);
        help(1);
        int raised = check_signals();
        pthread_mutex_lock(&l->lock);
        if (raised) abandon(l, first, last), failed = 1;
    }
    failed = failed || l->refused;
    if (l->waiting) pthread_cond_broadcast(&l->moved); /* one of them looks for replies from now on */
    pthread_mutex_unlock(&l->lock);
    help(1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* later loads are not older than the reply */
    return failed ? -1 : 0;
}

static int link_await(link_t *l, uint64_t first, uint64_t last) { return link_await_since(l, first, last, now_ns()); }

/* ---- requests ---- */

/* Sends what is held, and up to three buffers. If the wire is full, replies are read meanwhile: the target does not
 * read requests while it cannot reply. */
static int link_write(link_t *l, const struct iovec *buffers, int n) {
    int64_t since = now_ns();
    struct iovec all[4] = {{l->held, l->n_held}}, *v = l->n_held ? all : all + 1;
    for (int i = 0; i < n; i++) all[1 + i] = buffers[i];
    n += l->n_held != 0, l->n_held = 0;
    while (n) {
        ssize_t k = l->wire.on ? wire_send(l, v, n) : send_parts(l->fd, v, n);
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
