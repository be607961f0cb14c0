/* The proxy thread, by which kernels on a GPU reach far PEs.
 *
 * A kernel writes a request into a ring in memory that the GPU and the CPU share (pyshmem.device.arch.gpu.requests),
 * and the proxy sends it like a call of the host (_far.h). So the requests of a process are executed in the order of
 * their tickets, and those to one PE in this order at the PE too. The data of a request lie in its slot: the proxy
 * needs no GPU. It is not the service thread, because it blocks: two services that wait for each other would serve
 * nobody.
 *
 * A kernel cannot wake a thread. The proxy polls for a while after a request or a wake, and then less and less often.
 * The proxies of NVSHMEM and MSCCL++ are also rings with a host thread. */
#pragma once
#include <sys/prctl.h>

#include "_far_methods.h"
#include "_opening.h"

/* as in pyshmem.base.far: the slots of the ring, and the bytes of a slot's words and of its data */
enum { SLOTS = 32, SLOT_HEAD = 128, PIECE = 1 << 18 };
enum { MOST_ASKED = 16 }; /* gets at once: the data of the next ones travel while the kernel takes those of the first */
enum { BUSY_NS = 200000, SHORTEST_NAP_NS = 20000, LONGEST_NAP_NS = 2000000 };

/* Numbers are those of requests, from 1, in words that only grow. ready: the kernel has written a request. done: its
 * reply is here. free: the slot may be used again; a kernel says so itself for a request with a reply. The other words
 * are as in request_t; result: what an atomic has found. */
typedef struct {
    uint64_t ready, done, free, op, detail, place, nbytes, value, cond, result;
} slot_t;

/* Words of the record of a wait that has timed out, as in pyshmem.base.kernel_timeouts. */
enum { RECORD_ROUTINE, RECORD_CLAIM, RECORD_PE, RECORD_OFFSET, RECORD_SEEN = 6, RECORD_MISSING = 8 };
enum { LOST = -2 }; /* the offset, if a request has failed: seen is the errno, missing the world PE */

typedef struct proxy {
    pthread_t thread;
    char *ring;
    int64_t *record, code;    /* code: of a request, for the record */
    uint64_t executed, asked; /* requests; with the gets behind them whose data are on their way */
    struct {
        link_t *link;
        uint64_t number;
        int64_t begun;
    } gets[MOST_ASKED]; /* the number of each on its link; when it began, for a timeline */
    int64_t since;      /* the last progress of the first of them */
    int wake, leaving;
} proxy_t;

/* Sleeps for a hundredth of the time since something last came, so that what comes next is delayed by at most 1 % of
 * that time. A wake ends the sleep. Returns whether a wake has come. */
static int nap(int wake, int64_t idle_ns) {
    int64_t ns = idle_ns / 100;
    struct timespec length = {0, ns < SHORTEST_NAP_NS ? SHORTEST_NAP_NS : ns < LONGEST_NAP_NS ? ns : LONGEST_NAP_NS};
    uint64_t count;
    struct pollfd woken = {wake, POLLIN, 0};
    return ppoll(&woken, 1, &length, NULL) > 0 && read(wake, &count, sizeof count) > 0;
}

static slot_t *slot_of(proxy_t *x, uint64_t number) {
    return (slot_t *)(x->ring + number % SLOTS * (SLOT_HEAD + PIECE));
}

/* Whether a kernel could write such a request, to a PE that is far. */
static int is_sound(const slot_t *s) {
    uint64_t pe = (s->place >> FAR_SHIFT) - 1;
    if (s->op == FLUSH) return 1;
    if (!is_far(s->place) || pe >= (uint64_t)far->n_pes || !far->links[pe] || s->nbytes > PIECE) return 0;
    int strided = s->op == PUT_STRIDED || s->op == GET_STRIDED;
    return strided ? s->detail && s->nbytes % s->detail == 0 : s->op >= PUT && s->op <= FETCH;
}

static link_t *perform_request(slot_t *s) {
    char *data = (char *)s + SLOT_HEAD;
    if (far->fabric) far_fence(); /* requests are executed in the order of their tickets */
    switch (s->op) {
    case PUT: return far_put(s->place, data, s->nbytes);
    case PUT_STRIDED: return far_put_strided(s->place, data, s->value, s->detail, s->detail, s->nbytes / s->detail);
    case GET_STRIDED: return far_get_strided(data, s->place, s->detail, s->value, s->detail, s->nbytes / s->detail);
    case UPDATE: return far_atomic(s->place, (uint32_t)s->detail, s->value, s->cond, NULL, 0);
    case FETCH: return far_atomic(s->place, (uint32_t)s->detail, s->value, s->cond, &s->result, 1);
    default: return far_quiet();
    }
}

/* Fills the record, so that kernels stop waiting and the next host call raises the error. */
static void tell_failure(proxy_t *x, int64_t pe, int error) {
    if (__atomic_exchange_n(&x->record[RECORD_CLAIM], 1, __ATOMIC_ACQ_REL)) return;
    x->record[RECORD_PE] = far->my_pe, x->record[RECORD_OFFSET] = LOST;
    x->record[RECORD_SEEN] = error, x->record[RECORD_MISSING] = pe;
    __atomic_store_n(&x->record[RECORD_ROUTINE], x->code, __ATOMIC_RELEASE);
}

/* Ends a request, also one that has failed: the kernel must not wait for it until the time limit. */
static void end_request(proxy_t *x, slot_t *s, link_t *failed) {
    int replies = s->op == GET || s->op == GET_STRIDED || s->op == FETCH;
    if (failed) tell_failure(x, failed->pe, take_error(failed));
    __atomic_store_n(replies ? &s->done : &s->free, x->executed + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&x->executed, x->executed + 1, __ATOMIC_RELEASE);
}

/* Records a request that has been executed, before its slot is used again. requests: what the proxy has sent for it. */
static void note_proxied(const proxy_t *x, const slot_t *s, int64_t begun, sent_t requests) {
    int pe = s->op == FLUSH ? -1 : (int)(s->place >> FAR_SHIFT) - 1;
    note_carried(OF_PROXY, pe, (uint32_t)s->op, s->nbytes, x->executed + 1, begun, requests);
}

static void execute_request(proxy_t *x, slot_t *s) {
    int sound = is_sound(s);
    if (!sound) tell_failure(x, (int64_t)(s->place >> FAR_SHIFT) - 1, EINVAL);
    x->asked++;
    sent.pe = NONE_SENT;
    int64_t begun = begin_carried();
    link_t *failed = sound ? perform_request(s) : NULL;
    if (sound) note_proxied(x, s, begun, sent);
    end_request(x, s, failed);
}

/* Asks for the data of a get. The next gets may be asked for before these have come. */
static void ask_for_get(proxy_t *x, slot_t *s) {
    uint64_t at = x->asked++ % MOST_ASKED;
    x->gets[at].link = link_to(s->place), x->gets[at].number = 0, x->gets[at].begun = begin_carried();
    if (x->asked == x->executed + 1) x->since = now_ns();
    far_ask((char *)s + SLOT_HEAD, s->place, s->nbytes,
            &x->gets[at].number); /* a failure is recorded in the link, and end_get finds it */
}

/* Ends the first get under way if its data have come. Returns whether they have. */
static int end_get(proxy_t *x) {
    uint64_t at = x->executed % MOST_ASKED;
    link_t *l = x->gets[at].link;
    int here = look_for(l, x->gets[at].number, x->since);
    if (!here) return 0;
    uint64_t number = x->gets[at].number;
    note_proxied(x, slot_of(x, x->executed), x->gets[at].begun, (sent_t){l->pe, number, number});
    end_request(x, slot_of(x, x->executed), here < 0 ? l : NULL);
    return 1;
}

/* Polls for a while, and then less and less often. Returns whether a wake has come. */
static int rest(proxy_t *x, int64_t since) {
    int64_t idle = now_ns() - since;
    send_all_held();
    if (idle > BUSY_NS) return nap(x->wake, idle);
    if (far->spins <= CROWDED)
        sched_yield();
    else
        CPU_RELAX();
    return 0;
}

static void *run_proxy(void *arg) {
    proxy_t *x = arg;
    int64_t since = now_ns();
    while (!__atomic_load_n(&x->leaving, __ATOMIC_ACQUIRE)) {
        uint64_t waiting = x->asked - x->executed;
        slot_t *s = slot_of(x, x->asked);
        int ready = __atomic_load_n(&s->ready, __ATOMIC_ACQUIRE) == x->asked + 1;
        if (ready && s->op == GET && is_sound(s) && waiting < MOST_ASKED)
            ask_for_get(x, s);
        else if (waiting ? !end_get(x) : !ready) {
            if (rest(x, since)) since = now_ns();
            continue;
        } else if (!waiting)
            execute_request(x, s);
        since = now_ns();
    }
    return NULL;
}

static void wake_proxy(proxy_t *x) {
    uint64_t one = 1;
    if (write(x->wake, &one, sizeof one) < 0) return; /* full: it wakes anyway */
}

/* Waits until all requests of kernels that have ended have been sent and, where they have replies, answered. */
static void drain_proxy(void) {
    proxy_t *x = far->proxy;
    while (x) {
        uint64_t number = __atomic_load_n(&x->executed, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&slot_of(x, number)->ready, __ATOMIC_ACQUIRE) != number + 1) return;
        wake_proxy(x);
        usleep(20);
    }
}

static void stop_proxy(void) {
    proxy_t *x = far->proxy;
    if (!x) return;
    __atomic_store_n(&x->leaving, 1, __ATOMIC_RELEASE);
    wake_proxy(x);
    pthread_join(x->thread, NULL);
    close(x->wake);
    free(x);
    far->proxy = NULL;
}

/* proxy_open(ring, record, code): starts the proxy for the ring, whose words are 0. */
static PyObject *py_proxy_open(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t number[3];
    if (!words_of("proxy_open", args, n, 3, number)) return NULL;
    if (far->proxy) return PyErr_SetString(PyExc_RuntimeError, "a proxy runs already"), NULL;
    proxy_t *x = calloc(1, sizeof *x);
    if (!x) return PyErr_NoMemory();
    x->ring = (char *)number[0], x->record = (int64_t *)number[1], x->code = (int64_t)number[2];
    x->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    errno = x->wake < 0 ? errno : start_thread(&x->thread, run_proxy, x);
    if (errno) {
        if (x->wake >= 0) close(x->wake);
        free(x);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    far->proxy = x;
    Py_RETURN_NONE;
}

/* proxy_wake(): a kernel is about to be launched. proxy_drain(): the kernels have ended. proxy_stop(): their requests
 * are executed, and no more come. None does anything without a proxy. */
static PyObject *py_proxy_wake(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (far && far->proxy) wake_proxy(far->proxy);
    Py_RETURN_NONE;
}
static PyObject *py_proxy_drain(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (!far || !far->proxy) Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS
    drain_proxy();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
static PyObject *py_proxy_stop(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (!far || !far->proxy) Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS
    stop_proxy();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef proxy_methods[] = {METHOD(proxy_open), METHOD_NO_ARGUMENTS(proxy_wake),
                                      METHOD_NO_ARGUMENTS(proxy_drain), METHOD_NO_ARGUMENTS(proxy_stop), LAST_METHOD};
