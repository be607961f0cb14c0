/* The service thread, which executes the requests of far PEs (_requests.h).
 *
 * It sleeps in epoll, or polls MPI when MPI carries everything. It never takes the GIL and never blocks on one wire:
 * while a reply does not fit into a wire, the requests of that wire wait. */
#pragma once
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "_requests.h"

/* Sends what waits. Returns 1 if all has been sent, 0 if the wire is full, -1 if it has ended. */
static int flush_out(peer_t *p) {
    while (p->out_at < p->out_end || p->tail_left) {
        const char *tail = p->tail;
        uint64_t most = p->tail_left;
        if (p->tail_on_gpu && most && gpu_result(p, gpu_hold(p, &tail, &most))) return -1;
        struct iovec v[2] = {{p->out + p->out_at, p->out_end - p->out_at}, {(void *)tail, most}};
        ssize_t k = wire_send(&p->wire, v, 2);
        if (k < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
        uint64_t head = (uint64_t)k < v[0].iov_len ? (uint64_t)k : v[0].iov_len;
        p->out_at += head, p->tail += (uint64_t)k - head, p->tail_left -= (uint64_t)k - head;
    }
    p->out_at = p->out_end = 0;
    return 1;
}

/* Checks the greeting, and welcomes the PE. The comparison takes the same time for every token. */
static int greet(service_t *s, peer_t *p) {
    hello_t h;
    if (p->have < sizeof h) return 0;
    memcpy(&h, p->in, sizeof h);
    unsigned wrong = 0;
    for (int i = 0; i < TOKEN; i++) wrong |= (unsigned)(h.token[i] ^ far->hello.token[i]);
    if (memcmp(h.magic, MAGIC, sizeof MAGIC) || wrong || h.job != far->hello.job || h.n_pes != far->n_pes || h.pe < 0 ||
        h.pe >= far->n_pes)
        return -1;
    p->pe = h.pe;
    p->executed = 1;
    s->strangers--;
    reply(p, (uint64_t)far->my_pe, 0);
    p->have -= sizeof h;
    memmove(p->in, p->in + sizeof h, p->have);
    return 1;
}

/* Executes the requests in the buffer. Returns -1 for one that is invalid or fails. */
static int execute_all(peer_t *p) {
    uint64_t at = 0;
    request_t r;
    while (!p->rest && p->have - at >= sizeof r) {
        memcpy(&r, p->in + at, sizeof r);
        if (!is_valid(&r)) {
            fprintf(stderr, "PE %d: invalid request from PE %d\n", far->my_pe, p->pe);
            return -1;
        }
        if (p->tail_left || OUT_BYTES - p->out_end < sizeof(reply_t) + CHUNK) {
            int sent = flush_out(p);
            if (sent < 0) return -1;
            if (!sent) break;
        }
        const char *payload = p->in + at + sizeof r;
        if ((r.op == PUT || r.op == GET) && r.detail == BY_MPI) {
            begin_move(p, &r);
            at += sizeof r;
            continue;
        }
        uint64_t here = p->have - at - sizeof r, data = r.op == PUT || r.op == PUT_STRIDED ? r.nbytes : 0;
        if (data > CHUNK) {
            uint64_t now = here < data ? here : data;
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
            p->on_gpu = (r.offset & FAR_GPU) != 0;
            p->into = p->on_gpu ? gpu_address(r.offset) : far->base + r.offset;
            p->rest = data, p->asks = r.asks;
            if (store_part(p, payload, now)) return -1;
            at += sizeof r + now;
        } else {
            if (here < data) break;
            if (execute(p, &r, payload)) return -1;
            at += sizeof r + data;
        }
    }
    p->have -= at;
    memmove(p->in, p->in + at, p->have);
    return 0;
}

/* Serves a wire that can be read or written. Returns -1 if it has ended. */
static int serve(service_t *s, peer_t *p) {
    uint64_t budget = BUDGET; /* so that no PE keeps the others waiting */
    for (;;) {
        int sent = flush_out(p);
        if (sent <= 0) {
            p->writing = 1;
            return sent;
        }
        p->writing = 0;
        if (p->have && p->pe >= 0 && execute_all(p)) return -1;
        if (p->tail_left || p->out_end) continue;
        if (!budget || p->moves) return 1;
        uint64_t room = p->rest ? p->rest : IN_BYTES - p->have;
        char *into = !p->rest ? p->in + p->have : p->on_gpu ? gpu_staging() : p->into;
        if (p->rest && p->on_gpu && room > STAGE) room = STAGE;
        ssize_t k = wire_take(&p->wire, into, room < budget ? room : budget);
        if (k == 0) return -1;
        if (k < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
        budget -= (uint64_t)k;
        if (p->rest) {
            if (store_part(p, into, (uint64_t)k)) return -1;
        } else {
            p->have += (uint64_t)k;
            if (p->pe < 0 && greet(s, p) < 0) return -1;
        }
    }
}

static void watch(service_t *s, peer_t *p, int op) {
    if (p->wire.fd < 0) return;
    struct epoll_event e = {.events = (p->writing ? EPOLLOUT : EPOLLIN) | EPOLLRDHUP, .data.ptr = p};
    epoll_ctl(s->epoll, op, p->wire.fd, &e);
}

static peer_t *new_peer(service_t *s, int fd, int pe) {
    peer_t *p = malloc(sizeof *p);
    if (!p) return NULL;
    memset(p, 0, offsetof(peer_t, in));
    p->wire.fd = fd, p->pe = pe, p->since = now_ns();
    p->next = s->peers, s->peers = p;
    return p;
}

static void admit(service_t *s) {
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    peer_t *p = fd < 0 ? NULL : new_peer(s, fd, -1);
    if (!p) {
        if (fd >= 0) close(fd);
        return;
    }
    s->strangers++;
    set_options(fd);
    watch(s, p, EPOLL_CTL_ADD);
}

static void dismiss(service_t *s, peer_t *p) {
    for (peer_t **at = &s->peers; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    s->strangers -= p->pe < 0, s->moving -= p->moves != 0;
    if (s->room_of == p) s->room_of = NULL;
    if (s->by_pe) s->by_pe[p->pe] = NULL;
    wire_close(&p->wire);
    free(p);
}

/* Ends this PE. When MPI carries everything, no connection ends with it, and a launcher may notice nothing but a
 * signal. */
static void end_pe(void) {
    fflush(NULL);
    if (far->polls) kill(getpid(), SIGKILL);
    _exit(1);
}

/* A PE has ended without a goodbye. The launcher ends the job if it notices; otherwise this PE ends itself, because it
 * could wait for that PE forever. */
static void lose(service_t *s, const peer_t *p) {
    for (int ms = 0; ms < GRACE_MS && !__atomic_load_n(&s->leaving, __ATOMIC_ACQUIRE); ms += 10) usleep(10000);
    if (__atomic_load_n(&s->leaving, __ATOMIC_ACQUIRE)) return;
    fprintf(stderr, "PE %d: lost PE %d on %s, whose connection has ended\n", far->my_pe, p->pe, far->hosts[p->pe]);
    end_pe();
}

/* Ends connections that have not shown the token for too long. */
static void expel(service_t *s) {
    for (peer_t *p = s->peers, *next; p; p = next) {
        next = p->next;
        if (p->pe < 0 && now_ns() - p->since > GREETING_NS) dismiss(s, p);
    }
}

/* Serves a wire on which something has happened, or whose messages may move. Returns whether it still exists. */
static int attend(service_t *s, peer_t *p, uint32_t events) {
    int writing = p->writing;
    int ended = p->moves && events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)
                    ? -1
                    : move(s, p); /* its end is not read while data go as messages */
    if (ended < 0 || serve(s, p) < 0) {
        if (p->pe >= 0 && !p->left) lose(s, p);
        dismiss(s, p);
        return 0;
    }
    if (p->writing != writing) watch(s, p, EPOLL_CTL_MOD);
    return 1;
}

static void *run_service(void *arg) {
    service_t *s = arg;
    struct epoll_event events[64];
    for (;;) {
        int n = epoll_wait(s->epoll, events, 64, s->moving ? 0 : s->strangers ? 500 : -1);
        for (int i = 0; i < n; i++) {
            peer_t *p = events[i].data.ptr;
            if ((void *)p == (void *)&s->wake) return NULL;
            if ((void *)p == (void *)&s->listener)
                admit(s);
            else
                attend(s, p, events[i].events);
        }
        for (peer_t *p = s->moving ? s->peers : NULL, *next; p; p = next) {
            next = p->next;
            if (p->moves) attend(s, p, 0);
        }
        if (s->moving && far->spins <= CROWDED) sched_yield();
        if (s->strangers) expel(s);
    }
}

/* ---- life ---- */

/* Starts a thread that gets no signals, which are for the program's threads. Returns an errno. */
static int start_thread(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int start_service(int listener) {
    service_t *s = calloc(1, sizeof *s);
    if (!s) return ENOMEM;
    far->service = s;
    s->listener = listener, s->epoll = -1;
    s->wake = eventfd(0, EFD_CLOEXEC);
    if (far->polls) {
        s->by_pe = calloc((size_t)far->n_pes, sizeof *s->by_pe), s->spare = malloc(sizeof *s->spare);
        return s->by_pe && s->spare && s->wake >= 0 ? start_thread(&s->thread, run_polling_service, s) : ENOMEM;
    }
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event listening = {.events = EPOLLIN, .data.ptr = &s->listener},
                       waking = {.events = EPOLLIN, .data.ptr = &s->wake};
    if (s->epoll < 0 || s->wake < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, listener, &listening) ||
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->wake, &waking))
        return errno;
    return start_thread(&s->thread, run_service, s);
}

static void stop_thread(service_t *s) {
    uint64_t one = 1;
    if (__atomic_exchange_n(&s->stopped, 1, __ATOMIC_ACQ_REL)) return;
    if (write(s->wake, &one, sizeof one) == sizeof one) pthread_join(s->thread, NULL);
}

static void stop_service(service_t *s) {
    stop_thread(s);
    while (s->peers) dismiss(s, s->peers);
    if (s->listener >= 0) close(s->listener), close(s->epoll);
    close(s->wake);
    free(s->by_pe), free(s->spare), free(s);
}

/* far_open(my_pe, n_pes, base, length, timeout, spins, job, token, listener, refuse, addresses, hosts, naps): starts
 * the service. listener: a socket, or -1 when MPI carries everything. addresses: by PE, a sockaddr as bytes, or None
 * for near PEs. hosts: by PE, as bytes. naps: whether a service that polls sleeps meanwhile. */
static PyObject *py_far_open(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t number[7];
    double timeout;
    char *token, *text;
    Py_ssize_t length;
    int64_t listener, naps;
    if (!arity("far_open", n, 13) || !to_i64(args[12], &naps) || !to_f64(args[4], &timeout) ||
        !to_i64(args[8], &listener) || PyBytes_AsStringAndSize(args[7], &token, &length))
        return NULL;
    for (int i = 0; i < 7; i++)
        if (i != 4 && !to_u64(args[i], &number[i])) return NULL;
    far_t *f = calloc(1, sizeof *f);
    if (far || !f || length != TOKEN) {
        free(f);
        PyErr_SetString(PyExc_RuntimeError, "a service runs already, or a token has a wrong size");
        return NULL;
    }
    f->my_pe = (int)number[0], f->n_pes = (int)number[1], f->base = (char *)number[2], f->length = number[3],
    f->spins = (int)number[5];
    f->limit = (int64_t)(timeout * 1e9), f->polls = listener < 0, f->naps = naps != 0;
    f->hello = (hello_t){.job = number[6], .pe = f->my_pe, .n_pes = f->n_pes};
    memcpy(f->hello.magic, MAGIC, sizeof MAGIC);
    memcpy(f->hello.token, token, TOKEN);
    pthread_mutex_init(&f->lock, NULL);
    f->links = calloc(number[1], sizeof *f->links), f->open = calloc(number[1], sizeof *f->open),
    f->hosts = calloc(number[1], sizeof *f->hosts);
    for (int pe = 0; pe < f->n_pes; pe++) {
        f->hosts[pe] = strdup(PyBytes_AsString(PyTuple_GetItem(args[11], pe)));
        PyObject *address = PyTuple_GetItem(args[10], pe);
        if (address == Py_None) continue;
        link_t *l = f->links[pe] = calloc(1, sizeof *l);
        if (!l || PyBytes_AsStringAndSize(address, &text, &length)) return l ? NULL : PyErr_NoMemory();
        l->pe = pe, l->wire.fd = -1, l->address_bytes = (socklen_t)length;
        memcpy(&l->address, text, (size_t)length);
        pthread_mutex_init(&l->lock, NULL);
    }
    Py_INCREF(args[9]);
    f->refuse = args[9];
    far = f;
    errno = start_service((int)listener);
    if (errno) {
        far = NULL;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

/* From now on connections may end. */
static void allow_ends(void) { __atomic_store_n(&far->service->leaving, 1, __ATOMIC_RELEASE); }

static void link_free(link_t *l) {
    request_t bye = {.op = BYE};
    if (l->wire.fd >= 0 && !l->error) link_write(l, &(struct iovec){&bye, sizeof bye}, 1);
    wire_close(&l->wire);
    for (; l->count; l->first = (l->first + 1) % l->room, l->count--) free(l->queue[l->first].packed);
    free(l->queue);
    free(l);
}

/* far_close(): every PE has completed its requests. */
static PyObject *py_far_close(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (!far) Py_RETURN_NONE;
    allow_ends();
    Py_BEGIN_ALLOW_THREADS
    stop_proxy();
    for (int pe = 0; pe < far->n_pes; pe++) {
        if (far->links[pe]) link_free(far->links[pe]);
        free(far->hosts[pe]);
    }
    stop_service(far->service);
    Py_END_ALLOW_THREADS
    Py_DECREF(far->refuse);
    free(far->links), free(far->open), free(far->hosts), free(far->gpu), free(far);
    far = NULL;
    Py_RETURN_NONE;
}

static PyMethodDef service_methods[] = {METHOD(far_open), METHOD_NO_ARGUMENTS(far_close), LAST_METHOD};
