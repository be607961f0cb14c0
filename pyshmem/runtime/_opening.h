/* Start and end of the service thread and of the links, and what a forked process keeps of them. */
#pragma once
#include "_fabric_opening.h"
#include "_helping.h"

/* Starts a thread that gets no signals, which are for the program's threads. Returns an errno. */
static int start_thread(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void free_service(service_t *s) {
    int fds[] = {s->listener, s->epoll, s->wake, s->outer, s->nap};
    for (int i = 0; i < 5; i++)
        if (fds[i] >= 0) close(fds[i]);
    free(s->by_pe), free(s);
}

/* Starts the service, which owns the listener if it is a socket. Returns an errno. */
static int start_service(int listener) {
    service_t *s = calloc(1, sizeof *s);
    if (!s) return ENOMEM;
    s->listener = listener, s->epoll = epoll_create1(EPOLL_CLOEXEC), s->wake = eventfd(0, EFD_CLOEXEC),
    s->outer = epoll_create1(EPOLL_CLOEXEC), s->nap = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    pthread_mutex_init(&s->seat, NULL);
    struct itimerspec naps = {{0, NAP_NS}, {0, NAP_NS}};
    struct epoll_event listening = {.events = EPOLLIN, .data.ptr = &s->listener},
                       waking = {.events = EPOLLIN, .data.ptr = &s->wake}, coming = {.events = EPOLLIN, .data.ptr = s};
    int failed = !(s->by_pe = calloc((size_t)far->n_pes, sizeof *s->by_pe)) || s->epoll < 0 || s->wake < 0 ||
                 timerfd_settime(s->nap, 0, &naps, NULL) || pthread_mutex_init(&s->lock, NULL) ||
                 epoll_ctl(s->outer, EPOLL_CTL_ADD, s->wake, &waking) ||
                 epoll_ctl(s->outer, EPOLL_CTL_ADD, s->epoll, &coming) ||
                 epoll_ctl(s->epoll, EPOLL_CTL_ADD, listener, &listening);
    int error = failed ? errno : 0;
    far->service = s, far->wake = s->wake, far->epoll = s->epoll;
    if (!error) error = start_thread(&s->thread, run_service, s);
    helper = error ? NULL : help;
    if (!error) return 0;
    far->service = NULL;
    free_service(s);
    return error;
}

static void stop_thread(service_t *s) {
    uint64_t one = 1;
    if (__atomic_exchange_n(&s->stopped, 1, __ATOMIC_ACQ_REL)) return;
    if (write(s->wake, &one, sizeof one) == sizeof one) pthread_join(s->thread, NULL);
}

static void stop_service(service_t *s) {
    helper = NULL;
    stop_thread(s);
    while (s->peers) dismiss(s, s->peers);
    free_gone(s);
    free_service(s);
}

/* A signal handler that calls the PE of a call that it has interrupted is refused: errorcheck. */
static void init_locks(link_t *l) {
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
    if (far && far->service) pthread_mutex_lock(&far->service->lock);
}
static void after_fork_in_parent(void) {
    if (far && far->service) pthread_mutex_unlock(&far->service->lock);
}
static void after_fork_in_child(void) {
    service_t *s = far ? far->service : NULL;
    if (!s) return;
    int mine[] = {s->listener, s->epoll, s->wake, s->outer, s->nap};
    for (int i = 0; i < 5; i++)
        if (mine[i] >= 0) close(mine[i]);
    for (peer_t *p = s->peers; p; p = p->next)
        if (p->fd >= 0) close(p->fd);
    helper = NULL;
    far->service = NULL, far->proxy = NULL, far->fabric = NULL; /* their threads are the parent's */
    for (int pe = 0; pe < far->n_pes; pe++) {
        link_t *l = far->links[pe];
        if (!l) continue;
        if (l->fd >= 0) close(l->fd);
        l->fd = -1, l->error = ECHILD, l->flying = 0, l->wire.on = 0;
        init_locks(l); /* another thread may have held them */
    }
    pthread_mutex_init(&far->lock, NULL);
}

static link_t *new_link(int pe, const char *address, Py_ssize_t length) {
    link_t *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->pe = pe, l->fd = -1, l->address_bytes = (socklen_t)length;
    memcpy(&l->address, address, (size_t)length);
    init_locks(l);
    return l;
}

static void link_free(link_t *l) {
    for (; l->count; l->first = (l->first + 1) % l->room, l->count--) free(l->queue[l->first].packed);
    free(l->queue), free(l->held);
    free(l);
}

static void free_far(far_t *f) {
    for (int pe = 0; pe < f->n_pes; pe++) {
        if (f->links && f->links[pe]) link_free(f->links[pe]);
        if (f->hosts) free(f->hosts[pe]);
    }
    Py_XDECREF(f->refuse);
    free(f->links), free(f->open), free(f->hosts), free(f->gpu), free(f);
}

/* Fills the tables of PEs. Returns -1 for an exception. */
static int name_pes(far_t *f, PyObject *addresses, PyObject *hosts) {
    size_t n = (size_t)f->n_pes;
    f->links = calloc(n, sizeof *f->links), f->open = calloc(n, sizeof *f->open),
    f->hosts = calloc(n, sizeof *f->hosts);
    for (int pe = 0; pe < f->n_pes; pe++) {
        PyObject *address = PyTuple_GetItem(addresses, pe), *host = PyTuple_GetItem(hosts, pe);
        char *name = host ? PyBytes_AsString(host) : NULL, *text = NULL;
        Py_ssize_t length = 0;
        if (!address || !name || (address != Py_None && PyBytes_AsStringAndSize(address, &text, &length))) return -1;
        if (!f->links || !f->open || !f->hosts || length > (Py_ssize_t)sizeof(struct sockaddr_storage) ||
            !(f->hosts[pe] = strdup(name)) || (text && !(f->links[pe] = new_link(pe, text, length)))) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

/* far_open(my_pe, n_pes, base, length, timeout, spins, job, token, listener, refuse, addresses, hosts): starts
 * the service. listener: a socket. addresses: by PE, a sockaddr as bytes, or None
 * for near PEs. hosts: by PE, as bytes. */
static PyObject *py_far_open(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    static int forks;
    uint64_t number[7];
    double timeout;
    char *token;
    Py_ssize_t length;
    int64_t listener;
    if (!arity("far_open", n, 12) || !to_f64(args[4], &timeout) || !to_i64(args[8], &listener) ||
        PyBytes_AsStringAndSize(args[7], &token, &length))
        return NULL;
    for (int i = 0; i < 7; i++)
        if (i != 4 && !to_u64(args[i], &number[i])) return NULL;
    far_t *f = calloc(1, sizeof *f);
    if (!f) return PyErr_NoMemory();
    if (far || length != TOKEN) {
        free(f);
        PyErr_SetString(PyExc_RuntimeError, "a service runs already, or a token has a wrong size");
        return NULL;
    }
    f->my_pe = (int)number[0], f->n_pes = (int)number[1], f->base = (char *)number[2], f->length = number[3],
    f->spins = (int)number[5];
    f->limit = (int64_t)(timeout * 1e9);
    f->hello = (hello_t){.job = number[6], .pe = f->my_pe, .n_pes = f->n_pes};
    memcpy(f->hello.magic, MAGIC, sizeof MAGIC);
    memcpy(f->token, token, TOKEN);
    pthread_mutex_init(&f->lock, NULL);
    Py_INCREF(args[9]);
    f->refuse = args[9];
    if (name_pes(f, args[10], args[11])) {
        free_far(f);
        return NULL;
    }
    far = f;
    int error = start_service((int)listener);
    if (!error && !forks)
        error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child), forks = !error;
    if (!error) Py_RETURN_NONE;
    far = NULL;
    free_far(f);
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* From now on connections may end. */
static void allow_ends(void) {
    if (far && far->service) __atomic_store_n(&far->service->leaving, 1, __ATOMIC_RELEASE);
}

/* far_leave(): the program has ended without finalize, and other PEs may end before this one does. */
static PyObject *py_far_leave(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    allow_ends();
    Py_RETURN_NONE;
}

/* far_close(): every PE has completed its requests. */
static PyObject *py_far_close(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    far_t *f = far;
    if (!f) Py_RETURN_NONE;
    PyThreadState *released = PyEval_SaveThread();
    if (f->service) { /* none in a process that was forked */
        allow_ends();
        stop_proxy();
        for (int pe = 0; pe < f->n_pes; pe++)
            if (f->links[pe]) say_goodbye(f->links[pe]);
        stop_service(f->service);
        close_fabric(f->fabric), close_fabric(f->opening);
    }
    PyEval_RestoreThread(released);
    far = NULL;
    free_far(f);
    Py_RETURN_NONE;
}

static PyMethodDef service_methods[] = {METHOD(far_open), METHOD_NO_ARGUMENTS(far_leave),
                                        METHOD_NO_ARGUMENTS(far_close), LAST_METHOD};
