#include "server.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../base/report.h"
#include "../base/spin.h"
#include "batch.h"
#include "carrier_tcp.h"
#include "fabric.h"
#include "greeting.h"

enum { GRACE_MS = 1000 };
/* connections without a greeting beside those of the job's PEs; how long none is accepted for want of memory or
 * descriptors; how much of the time between two looks at them counts */
enum { UNAUTHENTICATED = 64, PAUSE_NS = 100000000, LOOK_NS = 600000000 };

static void server_watch(server_t *s, session_t *p, int op) {
    struct epoll_event e = {.events = (p->writing ? EPOLLOUT : EPOLLIN) | EPOLLRDHUP, .data.ptr = p};
    epoll_ctl(s->epoll, op, p->conn.fd, &e);
}

/* A clock for strangers. It hardly goes on while this process stands still, and hears none of them. */
static int64_t server_clock(server_t *s) {
    int64_t now = now_ns(), passed = now - s->looked;
    s->looked = now;
    return s->attended += passed < LOOK_NS ? passed : LOOK_NS;
}

/* Begins a wire with a stranger. */
static void server_begin_session(server_t *s, session_t *p, int fd) {
    memset(p, 0, offsetof(session_t, in));
    p->conn = (connection_t){.carrier = &tcp_carrier, .pe = -1, .end = TARGET, .fd = fd}, p->since = server_clock(s);
    pthread_mutex_lock(&s->lock);
    p->next = s->sessions, s->sessions = p;
    pthread_mutex_unlock(&s->lock);
    s->unauthenticated++;
    tcp_set_options(fd);
    server_watch(s, p, EPOLL_CTL_ADD);
}

/* Ends a wire. A forked process may hold it too: only shutdown ends it for the other side, and only DEL for epoll. The
 * memory is freed later, because a round of the service may still name it. */
INTERNAL void server_dismiss(server_t *s, session_t *p) {
    pthread_mutex_lock(&s->lock);
    for (session_t **at = &s->sessions; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, p->conn.fd, NULL);
    p->conn.carrier->close(&p->conn);
    pthread_mutex_unlock(&s->lock);
    s->unauthenticated -= p->conn.pe < 0;
    if (p->conn.pe >= 0 && far->incoming[p->conn.pe] == &p->conn) far->incoming[p->conn.pe] = NULL;
    p->ended = 1, p->next_free = s->ended, s->ended = p;
}

INTERNAL void server_free_ended(server_t *s) {
    for (session_t *p; (p = s->ended);) {
        s->ended = p->next_free;
        free(p);
    }
}

/* Lets connections wait at the listener, or admits them again. */
static void server_pause(server_t *s, int pause) {
    struct epoll_event listening = {.events = pause ? 0 : EPOLLIN, .data.ptr = &s->listener};
    s->paused = pause ? now_ns() : 0;
    epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listener, &listening);
}

/* Ends connections that have not greeted for too long, and the oldest one if there are too many. */
static void server_expel(server_t *s) {
    session_t *oldest = NULL;
    int64_t now = server_clock(s);
    for (session_t *p = s->sessions, *next; p; p = next) {
        next = p->next;
        if (p->conn.pe >= 0 || p == s->serving) continue;
        if (now - p->since > GREETING_NS)
            server_dismiss(s, p);
        else
            oldest = p; /* the newest is the first of the list */
    }
    if (oldest && s->unauthenticated > far->n_pes + UNAUTHENTICATED) server_dismiss(s, oldest);
}

/* Accepts a connection. Without memory or descriptors for it, it waits at the listener. */
static void server_admit(server_t *s) {
    session_t *p = malloc(sizeof *p);
    int fd = p ? accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
    int error = !p ? ENOMEM : fd < 0 ? errno : 0;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) server_pause(s, 1);
    if (error) {
        free(p);
        return;
    }
    server_begin_session(s, p, fd);
    if (s->unauthenticated > far->n_pes + UNAUTHENTICATED) server_expel(s);
}

/* A PE has ended without a goodbye. The launcher ends the job if it notices; otherwise this PE ends itself, because it
 * could wait for that PE forever. */
static void server_peer_lost(server_t *s, const session_t *p) {
    for (int ms = 0; ms < GRACE_MS && !__atomic_load_n(&s->leaving, __ATOMIC_ACQUIRE); ms += 10) usleep(10000);
    if (__atomic_load_n(&s->leaving, __ATOMIC_ACQUIRE)) return;
    char why[400];
    snprintf(why, sizeof why, "lost PE %d on %s, whose connection has ended", p->conn.pe, far->hosts[p->conn.pe]);
    if (!cause.who[0]) snprintf(cause.who, sizeof cause.who, "PE %d", far->my_pe);
    report_end(1, why);
    end_process();
}

/* Serves a wire on which something has happened, or whose requests have waited for the GPU. */
static void server_attend(server_t *s, session_t *p) {
    int writing = p->writing;
    session_t *outer = s->serving;
    s->serving = p, p->waits = 0;
    int stranger = p->conn.pe < 0, ended = session_serve(p) < 0;
    s->serving = outer;
    s->unauthenticated -= stranger && p->conn.pe >= 0;
    if (ended) {
        if (p->conn.pe >= 0 && !p->left) server_peer_lost(s, p);
        server_dismiss(s, p);
    } else if (p->writing != writing && p->conn.carrier->reports)
        server_watch(s, p, EPOLL_CTL_MOD);
}

/* ---- messages of the fabric ---- */

/* Serves the connections of which messages have come. */
static void server_attend_ready(server_t *s) {
    for (connection_t *at; (at = far->ready);) {
        session_t *p = (session_t *)at;
        far->ready = at->messages.next_ready, at->messages.ready = 0;
        if (p == s->serving) p->waits = far->sessions_wait = 1;
        if (!p->ended && p != s->serving) server_attend(s, p);
    }
}

/* Reads what comes by TCP of a PE whose requests are messages: its goodbye, or the end. */
static void server_read_bye(server_t *s, session_t *p) {
    request_t r;
    ssize_t k = recv(p->conn.fd, &r, sizeof r, MSG_DONTWAIT | MSG_PEEK);
    if (k == sizeof r) k = recv(p->conn.fd, &r, sizeof r, MSG_DONTWAIT);
    if (k == sizeof r && r.op != BYE) session_refuse(p);
    if (k == sizeof r) p->left = 1;
    if (k > 0 || (k < 0 && (errno == EAGAIN || errno == EINTR))) return;
    if (!p->left) server_peer_lost(s, p);
    server_dismiss(s, p);
}

/* The service's part: progress for far PEs, and for writes of this PE that no call waits for. */
INTERNAL void server_progress(server_t *s) {
    fabric_t *f = __atomic_load_n(&far->fabric, __ATOMIC_ACQUIRE);
    if (!f) return;
    int full = f->full;
    f->full = 0;
    for (session_t *p = full ? s->sessions : NULL; p; p = p->next) /* also of a peer that is gone, next is valid */
        if (!p->ended && !p->conn.carrier->reports && p != s->serving) server_attend(s, p);
    while (fabric_progress(f, TARGET)) server_attend_ready(s);
    if (!__atomic_load_n(&f->armed, __ATOMIC_ACQUIRE) || !__atomic_load_n(&f->pending, __ATOMIC_ACQUIRE)) return;
    f->active = now_ns();
    if (pthread_mutex_trylock(&f->lock)) return;
    while (fabric_progress(f, ORIGIN)) {}
    pthread_mutex_unlock(&f->lock);
}

/* How long the service may sleep after it, as rest_of says. */
static int server_fabric_rest(void) {
    fabric_t *f = __atomic_load_n(&far->fabric, __ATOMIC_ACQUIRE);
    if (!f) return -1;
    if (!fabric_may_sleep(f, TARGET)) return 0;
    int most = f->full || (f->fd[TARGET] < 0 && !fabric_is_auto(f)) ? FABRIC_SLICE_MS : -1;
    if (!__atomic_load_n(&f->armed, __ATOMIC_ACQUIRE)) return most;
    if (__atomic_load_n(&f->pending, __ATOMIC_ACQUIRE) || now_ns() - f->active < ARMED_NS) return FABRIC_SLICE_MS;
    __atomic_store_n(&f->armed, 0, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&f->pending, __ATOMIC_SEQ_CST)) return most;
    __atomic_store_n(&f->armed, 1, __ATOMIC_SEQ_CST);
    return FABRIC_SLICE_MS;
}

/* Attends to all wires on which something has happened. */
INTERNAL void server_round(server_t *s) {
    struct epoll_event events[64];
    int n = epoll_wait(s->epoll, events, 64, 0);
    for (int i = 0; i < n; i++) {
        session_t *p = events[i].data.ptr;
        if ((void *)p == (void *)&s->listener)
            server_admit(s);
        else if ((void *)p == (void *)far->fabric)
            continue; /* fabric_serve does what there is */
        else if (!p->ended && !p->conn.carrier->reports)
            server_read_bye(s, p);
        else if (!p->ended && p != s->serving)
            server_attend(s, p);
    }
    if (s->unauthenticated) server_expel(s);
    if (s->paused && now_ns() - s->paused > PAUSE_NS) server_pause(s, 0);
}

/* Sends what this PE has held for HELD_MS, see batch.h. Returns how long the service may sleep after it. */
static int server_batch_rest(server_t *s) {
    int64_t now = now_ns();
    if (s->batch_since && now - s->batch_since >= HELD_MS * 1000000) batch_flush_all(), s->batch_since = 0;
    int holds = __atomic_load_n(&far->holding, __ATOMIC_ACQUIRE);
    s->batch_since = !holds ? 0 : s->batch_since ? s->batch_since : now;
    return holds ? HELD_MS : -1;
}

static int sooner(int a, int b) { return a < 0 || (b >= 0 && b < a) ? b : a; }

/* How long the service may sleep, in milliseconds; -1: until something happens. What it does for the fabric first may
 * leave requests that wait. */
INTERNAL int server_rest(server_t *s) {
    server_progress(s);
    int rest = sooner(server_fabric_rest(), server_batch_rest(s));
    return sooner(rest, far->sessions_wait ? 0 : s->paused ? 100 : s->unauthenticated ? 500 : -1);
}

/* Executes the requests that have come. Called with the seat. */
INTERNAL void server_execute(server_t *s) {
    server_round(s);
    if (far->sessions_wait) {
        far->sessions_wait = 0;
        for (session_t *p = s->sessions; p; p = p->next) /* also of a peer that is gone, next is valid */
            if (!p->ended && p->waits) server_attend(s, p);
    }
    server_attend_ready(s);
    server_free_ended(s);
}

INTERNAL void *server_run(void *arg) {
    server_t *s = arg;
    uint64_t count;
    struct epoll_event events[2];
    pthread_mutex_lock(&s->executing);
    for (;;) {
        s->rest = server_rest(s);
        pthread_mutex_unlock(&s->executing);
        int woken = 0, n = epoll_wait(s->outer, events, 2, s->rest);
        for (int i = 0; i < n; i++) woken |= events[i].data.ptr == &s->wake;
        pthread_mutex_lock(&s->executing);
        if (woken) {
            if (read(s->wake, &count, sizeof count) < 0 || __atomic_load_n(&s->stopped, __ATOMIC_ACQUIRE)) break;
            gpu_executor_t *g = __atomic_load_n(&far->gpu, __ATOMIC_ACQUIRE);
            if (g) g->warm();
        }
        server_execute(s);
    }
    pthread_mutex_unlock(&s->executing);
    return NULL;
}
