/* The service thread, which executes the requests of far PEs: its wires, as the connections of peers are called here,
 * and its rounds over them (_serving.h).
 *
 * It sleeps in epoll. It never takes the GIL and never blocks on one wire. A call that waits executes requests in its
 * place (_helping.h): who holds `seat` does. */
#pragma once
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "_report.h"
#include "_serving.h"

static void watch(service_t *s, peer_t *p, int op) {
    struct epoll_event e = {.events = (p->writing ? EPOLLOUT : EPOLLIN) | EPOLLRDHUP, .data.ptr = p};
    epoll_ctl(s->epoll, op, p->fd, &e);
}

/* A clock for strangers. It hardly goes on while this process stands still, and hears none of them. */
static int64_t attended(service_t *s) {
    int64_t now = now_ns(), passed = now - s->looked;
    s->looked = now;
    return s->attended += passed < LOOK_NS ? passed : LOOK_NS;
}

/* Begins a wire with a stranger. */
static void begin_wire(service_t *s, peer_t *p, int fd) {
    memset(p, 0, offsetof(peer_t, in));
    p->fd = fd, p->pe = -1, p->since = attended(s);
    pthread_mutex_lock(&s->lock);
    p->next = s->peers, s->peers = p;
    pthread_mutex_unlock(&s->lock);
    s->strangers++;
    set_options(fd);
    watch(s, p, EPOLL_CTL_ADD);
}

/* Ends a wire. A forked process may hold it too: only shutdown ends it for the other side, and only DEL for epoll. The
 * memory is freed later, because a round of the service may still name it. */
static void dismiss(service_t *s, peer_t *p) {
    pthread_mutex_lock(&s->lock);
    for (peer_t **at = &s->peers; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, p->fd, NULL);
    end_connection(&p->fd);
    pthread_mutex_unlock(&s->lock);
    s->strangers -= p->pe < 0;
    if (p->pe >= 0 && s->by_pe[p->pe] == p) s->by_pe[p->pe] = NULL;
    empty_wire(far->fabric, TARGET, &p->wire);
    p->gone = 1, p->after = s->gone, s->gone = p;
}

static void free_gone(service_t *s) {
    for (peer_t *p; (p = s->gone);) {
        s->gone = p->after;
        free(p);
    }
}

/* Lets connections wait at the listener, or admits them again. */
static void pause_admission(service_t *s, int pause) {
    struct epoll_event listening = {.events = pause ? 0 : EPOLLIN, .data.ptr = &s->listener};
    s->paused = pause ? now_ns() : 0;
    epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listener, &listening);
}

/* Ends connections that have not greeted for too long, and the oldest one if there are too many. */
static void expel(service_t *s) {
    peer_t *oldest = NULL;
    int64_t now = attended(s);
    for (peer_t *p = s->peers, *next; p; p = next) {
        next = p->next;
        if (p->pe >= 0 || p == s->serving) continue;
        if (now - p->since > GREETING_NS)
            dismiss(s, p);
        else
            oldest = p; /* the newest is the first of the list */
    }
    if (oldest && s->strangers > far->n_pes + STRANGERS) dismiss(s, oldest);
}

/* Accepts a connection. Without memory or descriptors for it, it waits at the listener. */
static void admit(service_t *s) {
    peer_t *p = malloc(sizeof *p);
    int fd = p ? accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
    int error = !p ? ENOMEM : fd < 0 ? errno : 0;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) pause_admission(s, 1);
    if (error) {
        free(p);
        return;
    }
    begin_wire(s, p, fd);
    if (s->strangers > far->n_pes + STRANGERS) expel(s);
}

/* A PE has ended without a goodbye. The launcher ends the job if it notices; otherwise this PE ends itself, because it
 * could wait for that PE forever. */
static void lose(service_t *s, const peer_t *p) {
    for (int ms = 0; ms < GRACE_MS && !__atomic_load_n(&s->leaving, __ATOMIC_ACQUIRE); ms += 10) usleep(10000);
    if (__atomic_load_n(&s->leaving, __ATOMIC_ACQUIRE)) return;
    char why[400];
    snprintf(why, sizeof why, "lost PE %d on %s, whose connection has ended", p->pe, far->hosts[p->pe]);
    if (!told.who[0]) snprintf(told.who, sizeof told.who, "PE %d", far->my_pe);
    report_end(1, why);
    end_pe();
}

/* Serves a wire on which something has happened, or whose requests have waited for the GPU. */
static void attend(service_t *s, peer_t *p) {
    int writing = p->writing;
    peer_t *outer = s->serving;
    s->serving = p, p->waits = 0;
    int ended = serve(s, p) < 0;
    s->serving = outer;
    if (ended) {
        if (p->pe >= 0 && !p->left) lose(s, p);
        dismiss(s, p);
    } else if (p->writing != writing && !p->wire.on)
        watch(s, p, EPOLL_CTL_MOD);
}

/* ---- messages of the fabric ---- */

static wire_t *wire_of_peer(uint32_t pe) {
    service_t *s = far->service;
    peer_t *p = s->by_pe[pe];
    if (p && !p->heard) p->heard = 1, p->beside = s->heard, s->heard = p;
    return p ? &p->wire : NULL;
}

static void lose_wire(uint32_t pe) {
    peer_t *p = far->service->by_pe[pe];
    if (p) shutdown(p->fd, SHUT_RDWR);
}

/* Serves the wires on which messages have come. */
static void attend_senders(service_t *s) {
    for (peer_t *p; (p = s->heard);) {
        s->heard = p->beside, p->heard = 0;
        if (p == s->serving) p->waits = s->waits = 1;
        if (!p->gone && p != s->serving) attend(s, p);
    }
}

/* Reads what comes by TCP of a PE whose requests are messages: its goodbye, or the end. */
static void take_goodbye(service_t *s, peer_t *p) {
    request_t r;
    ssize_t k = recv(p->fd, &r, sizeof r, MSG_DONTWAIT | MSG_PEEK);
    if (k == sizeof r) k = recv(p->fd, &r, sizeof r, MSG_DONTWAIT);
    if (k == sizeof r && r.op != BYE) refuse_request(p);
    if (k == sizeof r) p->left = 1;
    if (k > 0 || (k < 0 && (errno == EAGAIN || errno == EINTR))) return;
    if (!p->left) lose(s, p);
    dismiss(s, p);
}

/* The service's part: progress for far PEs, and for writes of this PE that no call waits for. */
static void fabric_serve(service_t *s) {
    fabric_t *f = __atomic_load_n(&far->fabric, __ATOMIC_ACQUIRE);
    if (!f) return;
    int full = f->full;
    f->full = 0;
    for (peer_t *p = full ? s->peers : NULL; p; p = p->next) /* also of a peer that is gone, next is valid */
        if (!p->gone && p->wire.on && p != s->serving) attend(s, p);
    while (take_completions(f, TARGET)) attend_senders(s);
    if (!__atomic_load_n(&f->armed, __ATOMIC_ACQUIRE) || !__atomic_load_n(&f->flying, __ATOMIC_ACQUIRE)) return;
    f->active = now_ns();
    if (pthread_mutex_trylock(&f->lock)) return;
    while (take_completions(f, ORIGIN)) {}
    pthread_mutex_unlock(&f->lock);
}

/* How long the service may sleep after it, as rest_of says. */
static int fabric_rest(void) {
    fabric_t *f = __atomic_load_n(&far->fabric, __ATOMIC_ACQUIRE);
    if (!f) return -1;
    if (!may_sleep(f, TARGET)) return 0;
    int most = f->full || (f->fd[TARGET] < 0 && !is_auto(f)) ? FABRIC_SLICE_MS : -1;
    if (!__atomic_load_n(&f->armed, __ATOMIC_ACQUIRE)) return most;
    if (__atomic_load_n(&f->flying, __ATOMIC_ACQUIRE) || now_ns() - f->active < ARMED_NS) return FABRIC_SLICE_MS;
    __atomic_store_n(&f->armed, 0, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&f->flying, __ATOMIC_SEQ_CST)) return most;
    __atomic_store_n(&f->armed, 1, __ATOMIC_SEQ_CST);
    return FABRIC_SLICE_MS;
}

/* Attends to all wires on which something has happened. */
static void go_round(service_t *s) {
    struct epoll_event events[64];
    int n = epoll_wait(s->epoll, events, 64, 0);
    for (int i = 0; i < n; i++) {
        peer_t *p = events[i].data.ptr;
        if ((void *)p == (void *)&s->listener)
            admit(s);
        else if ((void *)p == (void *)far->fabric)
            continue; /* fabric_serve does what there is */
        else if (!p->gone && p->wire.on)
            take_goodbye(s, p);
        else if (!p->gone && p != s->serving)
            attend(s, p);
    }
    if (s->strangers) expel(s);
    if (s->paused && now_ns() - s->paused > PAUSE_NS) pause_admission(s, 0);
}

/* Sends what this PE has held for HELD_MS, see _held.h. Returns how long the service may sleep after it. */
static int held_rest(service_t *s) {
    int64_t now = now_ns();
    if (s->held_since && now - s->held_since >= HELD_MS * 1000000) send_all_held(), s->held_since = 0;
    int holds = __atomic_load_n(&far->holding, __ATOMIC_ACQUIRE);
    s->held_since = !holds ? 0 : s->held_since ? s->held_since : now;
    return holds ? HELD_MS : -1;
}

static int sooner(int a, int b) { return a < 0 || (b >= 0 && b < a) ? b : a; }

/* How long the service may sleep, in milliseconds; -1: until something happens. What it does for the fabric first may
 * leave requests that wait. */
static int rest_of(service_t *s) {
    fabric_serve(s);
    int rest = sooner(fabric_rest(), held_rest(s));
    return sooner(rest, s->waits ? 0 : s->paused ? 100 : s->strangers ? 500 : -1);
}

/* Executes the requests that have come. Called with the seat. */
static void execute_round(service_t *s) {
    go_round(s);
    if (s->waits) {
        s->waits = 0;
        for (peer_t *p = s->peers; p; p = p->next) /* also of a peer that is gone, next is valid */
            if (!p->gone && p->waits) attend(s, p);
    }
    attend_senders(s);
    free_gone(s);
}

static void *run_service(void *arg) {
    service_t *s = arg;
    uint64_t count;
    struct epoll_event events[2];
    pthread_mutex_lock(&s->seat);
    for (;;) {
        s->rest = rest_of(s);
        pthread_mutex_unlock(&s->seat);
        int woken = 0, n = epoll_wait(s->outer, events, 2, s->rest);
        for (int i = 0; i < n; i++) woken |= events[i].data.ptr == &s->wake;
        pthread_mutex_lock(&s->seat);
        if (woken) {
            if (read(s->wake, &count, sizeof count) < 0 || __atomic_load_n(&s->stopped, __ATOMIC_ACQUIRE)) break;
            warm_gpu();
        }
        execute_round(s);
    }
    pthread_mutex_unlock(&s->seat);
    return NULL;
}
