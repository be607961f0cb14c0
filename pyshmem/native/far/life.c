#include "life.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "../base/spin.h"
#include "../base/thread.h"
#include "calls.h"
#include "carrier_tcp.h"
#include "fabric_open.h"
#include "greeting.h"
#include "help.h"
#include "proxy.h"
#include "server.h"

enum { TIMER_NS = 200000 }; /* of a call that waits and sleeps */

static void server_free(server_t *s) {
    int fds[] = {s->listener, s->epoll, s->wake, s->outer, s->timer};
    for (int i = 0; i < 5; i++)
        if (fds[i] >= 0) close(fds[i]);
    free(s);
}

/* Starts the service, which owns the listener if it is a socket. Returns an errno. */
static int server_start(int listener) {
    server_t *s = calloc(1, sizeof *s);
    if (!s) return ENOMEM;
    s->listener = listener, s->epoll = epoll_create1(EPOLL_CLOEXEC), s->wake = eventfd(0, EFD_CLOEXEC),
    s->outer = epoll_create1(EPOLL_CLOEXEC), s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    pthread_mutex_init(&s->executing, NULL);
    struct itimerspec times = {{0, TIMER_NS}, {0, TIMER_NS}};
    struct epoll_event listening = {.events = EPOLLIN, .data.ptr = &s->listener},
                       waking = {.events = EPOLLIN, .data.ptr = &s->wake}, coming = {.events = EPOLLIN, .data.ptr = s};
    int failed = s->epoll < 0 || s->wake < 0 || timerfd_settime(s->timer, 0, &times, NULL) ||
                 pthread_mutex_init(&s->lock, NULL) || epoll_ctl(s->outer, EPOLL_CTL_ADD, s->wake, &waking) ||
                 epoll_ctl(s->outer, EPOLL_CTL_ADD, s->epoll, &coming) ||
                 epoll_ctl(s->epoll, EPOLL_CTL_ADD, listener, &listening);
    int error = failed ? errno : 0;
    far->server = s, far->wake = s->wake, far->epoll = s->epoll;
    if (!error) error = start_thread(&s->thread, server_run, s);
    helper = error ? NULL : help;
    if (!error) return 0;
    far->server = NULL;
    server_free(s);
    return error;
}

static void server_stop_thread(server_t *s) {
    uint64_t one = 1;
    if (__atomic_exchange_n(&s->stopped, 1, __ATOMIC_ACQ_REL)) return;
    if (write(s->wake, &one, sizeof one) == sizeof one) pthread_join(s->thread, NULL);
}

static void server_stop(server_t *s) {
    helper = NULL;
    server_stop_thread(s);
    while (s->sessions) server_dismiss(s, s->sessions);
    server_free_ended(s);
    server_free(s);
}

/* A signal handler that calls the PE of a call that it has interrupted is refused: errorcheck. */
static void link_init_locks(link_t *l) {
    pthread_mutexattr_t kind;
    pthread_condattr_t clock;
    pthread_mutexattr_init(&kind), pthread_condattr_init(&clock);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, &kind), pthread_cond_init(&l->moved, &clock);
    l->reads = l->waiting = 0;
}

/* After fork: the child has no service. It closes its copies of the parent's descriptors, and its calls to far PEs are
 * refused (ECHILD). The lock keeps the list of peers whole meanwhile. */
static void before_fork(void) {
    if (far && far->server) pthread_mutex_lock(&far->server->lock);
}
static void after_fork_in_parent(void) {
    if (far && far->server) pthread_mutex_unlock(&far->server->lock);
}
static void after_fork_in_child(void) {
    server_t *s = far ? far->server : NULL;
    if (!s) return;
    int mine[] = {s->listener, s->epoll, s->wake, s->outer, s->timer};
    for (int i = 0; i < 5; i++)
        if (mine[i] >= 0) close(mine[i]);
    for (session_t *p = s->sessions; p; p = p->next)
        if (p->conn.fd >= 0) close(p->conn.fd);
    helper = NULL;
    far->server = NULL, far->proxy = NULL, far->fabric = NULL; /* their threads are the parent's */
    far->carrier = &tcp_carrier;
    for (int pe = 0; pe < far->n_pes; pe++) {
        link_t *l = far->links[pe];
        if (!l) continue;
        if (l->conn.fd >= 0) close(l->conn.fd);
        l->conn.fd = -1, l->error = ECHILD, l->pending = 0, l->conn.carrier = &tcp_carrier;
        link_init_locks(l); /* another thread may have held them */
    }
    pthread_mutex_init(&far->lock, NULL);
}

static link_t *link_new(int pe, const void *address, size_t length) {
    link_t *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->conn = (connection_t){.carrier = &tcp_carrier, .pe = pe, .end = ORIGIN, .fd = -1},
    l->address_bytes = (socklen_t)length;
    memcpy(&l->address, address, length);
    link_init_locks(l);
    return l;
}

static void link_free(link_t *l) {
    for (; l->count; l->first = (l->first + 1) % l->room, l->count--) free(l->queue[l->first].packed);
    free(l->queue), free(l->batch);
    free(l);
}

INTERNAL void far_free(far_t *f) {
    for (int pe = 0; pe < f->n_pes; pe++) {
        if (f->links && f->links[pe]) link_free(f->links[pe]);
        if (f->hosts) free(f->hosts[pe]);
    }
    free(f->links), free(f->open), free(f->incoming), free(f->hosts), free(f->gpu), free(f);
}

/* Makes the state of a PE that has far PEs, without any of them. NULL: there is no memory. */
INTERNAL far_t *far_new(int my_pe, int n_pes, uint64_t job, const void *token) {
    size_t n = (size_t)n_pes;
    far_t *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->my_pe = my_pe, f->n_pes = n_pes, f->carrier = &tcp_carrier, f->hello = greeting_hello(job, my_pe, n_pes);
    memcpy(f->token, token, TOKEN);
    pthread_mutex_init(&f->lock, NULL);
    f->links = calloc(n, sizeof *f->links), f->open = calloc(n, sizeof(link_t *));
    f->incoming = calloc(n, sizeof *f->incoming), f->hosts = calloc(n, sizeof *f->hosts);
    if (f->links && f->open && f->incoming && f->hosts) return f;
    far_free(f);
    return NULL;
}

/* Adds a PE. address: a sockaddr, or NULL for a near PE. Returns 0 without memory, or for a wrong address. */
INTERNAL int far_add(far_t *f, int pe, const char *host_name, const void *address, size_t length) {
    if (length > sizeof(struct sockaddr_storage) || !(f->hosts[pe] = strdup(host_name))) return 0;
    return !address || (f->links[pe] = link_new(pe, address, length)) != NULL;
}

/* Starts the server, which owns the listener, a socket, if it can be started. Returns an errno. */
INTERNAL int far_start(far_t *f, int listener) {
    static int forks;
    far = f;
    int error = server_start(listener);
    if (!error && !forks)
        error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child), forks = !error;
    if (error) far = NULL;
    return error;
}

/* From now on connections may end. */
INTERNAL void far_allow_ends(void) {
    if (far && far->server) __atomic_store_n(&far->server->leaving, 1, __ATOMIC_RELEASE);
}

/* Ends the server and the connections. Every PE has completed its requests. */
INTERNAL void far_stop(void) {
    far_t *f = far;
    if (f->server) { /* none in a process that was forked */
        far_allow_ends();
        proxy_stop();
        for (int pe = 0; pe < f->n_pes; pe++)
            if (f->links[pe]) link_say_bye(f->links[pe]);
        server_stop(f->server);
        fabric_close(f->fabric), fabric_close(f->opening);
    }
}
