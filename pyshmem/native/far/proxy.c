#include "proxy.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../base/spin.h"
#include "../base/thread.h"
#include "../trace/carried.h"
#include "batch.h"
#include "calls.h"

enum { MOST_ASKED = 16 }; /* gets at once: the data of the next ones travel while the kernel takes those of the first */
enum { BUSY_NS = 200000, SHORTEST_NAP_NS = 20000, LONGEST_NAP_NS = 2000000 };

struct proxy {
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
};

/* Sleeps for a hundredth of the time since something last came, so that what comes next is delayed by at most 1 % of
 * that time. A wake ends the sleep. Returns whether a wake has come. */
static int proxy_sleep(int wake, int64_t idle_ns) {
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
static int slot_is_sound(const slot_t *s) {
    uint64_t pe = (s->place >> FAR_SHIFT) - 1;
    if (s->op == FLUSH) return 1;
    if (!is_far(s->place) || pe >= (uint64_t)far->n_pes || !far->links[pe] || s->nbytes > PIECE) return 0;
    int strided = s->op == PUT_STRIDED || s->op == GET_STRIDED;
    return strided ? s->detail && s->nbytes % s->detail == 0 : s->op >= PUT && s->op <= FETCH;
}

static link_t *proxy_perform(slot_t *s) {
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
static void proxy_record_failure(proxy_t *x, int64_t pe, int error) {
    if (__atomic_exchange_n(&x->record[RECORD_CLAIM], 1, __ATOMIC_ACQ_REL)) return;
    x->record[RECORD_PE] = far->my_pe, x->record[RECORD_OFFSET] = LOST;
    x->record[RECORD_SEEN] = error, x->record[RECORD_MISSING] = pe;
    __atomic_store_n(&x->record[RECORD_ROUTINE], x->code, __ATOMIC_RELEASE);
}

/* Ends a request, also one that has failed: the kernel must not wait for it until the time limit. */
static void proxy_end(proxy_t *x, slot_t *s, link_t *failed) {
    int replies = s->op == GET || s->op == GET_STRIDED || s->op == FETCH;
    if (failed) proxy_record_failure(x, failed->conn.pe, link_error(failed));
    __atomic_store_n(replies ? &s->done : &s->free, x->executed + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&x->executed, x->executed + 1, __ATOMIC_RELEASE);
}

/* Records a request that has been executed, before its slot is used again. requests: what the proxy has sent for it. */
static void proxy_note(const proxy_t *x, const slot_t *s, int64_t begun, sent_t requests) {
    int pe = s->op == FLUSH ? -1 : (int)(s->place >> FAR_SHIFT) - 1;
    carried_note(OF_PROXY, pe, (uint32_t)s->op, s->nbytes, x->executed + 1, begun, requests);
}

static void proxy_execute(proxy_t *x, slot_t *s) {
    int sound = slot_is_sound(s);
    if (!sound) proxy_record_failure(x, (int64_t)(s->place >> FAR_SHIFT) - 1, EINVAL);
    x->asked++;
    sent.pe = NONE_SENT;
    int64_t begun = carried_begin();
    link_t *failed = sound ? proxy_perform(s) : NULL;
    if (sound) proxy_note(x, s, begun, sent);
    proxy_end(x, s, failed);
}

/* Asks for the data of a get. The next gets may be asked for before these have come. */
static void proxy_begin_get(proxy_t *x, slot_t *s) {
    uint64_t at = x->asked++ % MOST_ASKED;
    x->gets[at].link = link_to(s->place), x->gets[at].number = 0, x->gets[at].begun = carried_begin();
    if (x->asked == x->executed + 1) x->since = now_ns();
    far_ask((char *)s + SLOT_HEAD, s->place, s->nbytes,
            &x->gets[at].number); /* a failure is recorded in the link, and end_get finds it */
}

/* Ends the first get under way if its data have come. Returns whether they have. */
static int proxy_end_get(proxy_t *x) {
    uint64_t at = x->executed % MOST_ASKED;
    link_t *l = x->gets[at].link;
    int here = far_poll(l, x->gets[at].number, x->since);
    if (!here) return 0;
    uint64_t number = x->gets[at].number;
    proxy_note(x, slot_of(x, x->executed), x->gets[at].begun, (sent_t){l->conn.pe, number, number});
    proxy_end(x, slot_of(x, x->executed), here < 0 ? l : NULL);
    return 1;
}

/* Polls for a while, and then less and less often. Returns whether a wake has come. */
static int proxy_rest(proxy_t *x, int64_t since) {
    int64_t idle = now_ns() - since;
    batch_flush_all();
    if (idle > BUSY_NS) return proxy_sleep(x->wake, idle);
    far_pause();
    return 0;
}

static void *proxy_run(void *arg) {
    proxy_t *x = arg;
    int64_t since = now_ns();
    while (!__atomic_load_n(&x->leaving, __ATOMIC_ACQUIRE)) {
        uint64_t waiting = x->asked - x->executed;
        slot_t *s = slot_of(x, x->asked);
        int ready = __atomic_load_n(&s->ready, __ATOMIC_ACQUIRE) == x->asked + 1;
        if (ready && s->op == GET && slot_is_sound(s) && waiting < MOST_ASKED)
            proxy_begin_get(x, s);
        else if (waiting ? !proxy_end_get(x) : !ready) {
            if (proxy_rest(x, since)) since = now_ns();
            continue;
        } else if (!waiting)
            proxy_execute(x, s);
        since = now_ns();
    }
    return NULL;
}

INTERNAL void proxy_wake(proxy_t *x) {
    uint64_t one = 1;
    if (write(x->wake, &one, sizeof one) < 0) return; /* full: it wakes anyway */
}

/* Waits until all requests of kernels that have ended have been sent and, where they have replies, answered. */
INTERNAL void proxy_drain(void) {
    proxy_t *x = far->proxy;
    while (x) {
        uint64_t number = __atomic_load_n(&x->executed, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&slot_of(x, number)->ready, __ATOMIC_ACQUIRE) != number + 1) return;
        proxy_wake(x);
        usleep(20);
    }
}

INTERNAL void proxy_stop(void) {
    proxy_t *x = far->proxy;
    if (!x) return;
    __atomic_store_n(&x->leaving, 1, __ATOMIC_RELEASE);
    proxy_wake(x);
    pthread_join(x->thread, NULL);
    close(x->wake);
    free(x);
    far->proxy = NULL;
}

/* Starts the proxy for the ring, whose words are 0. Returns an errno. */
INTERNAL int proxy_open(char *ring, int64_t *record, int64_t code) {
    proxy_t *x = calloc(1, sizeof *x);
    if (!x) return ENOMEM;
    x->ring = ring, x->record = record, x->code = code;
    x->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = x->wake < 0 ? errno : start_thread(&x->thread, proxy_run, x);
    if (!error) {
        far->proxy = x;
        return 0;
    }
    if (x->wake >= 0) close(x->wake);
    free(x);
    return error;
}
