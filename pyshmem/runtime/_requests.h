/* Execution of the requests of far PEs on this PE's part of the heaps. It uses the same atomics and stores as near PEs,
 * so near and far PEs may use one word. */
#pragma once
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "_far.h"

enum { IN_BYTES = 2 * CHUNK, OUT_BYTES = 2 * CHUNK, BUDGET = 1 << 20, GRACE_MS = 1000 };
/* connections without a greeting beside those of the job's PEs; how long none is accepted for want of memory or
 * descriptors; how much of the time between two looks at them counts */
enum { STRANGERS = 64, PAUSE_NS = 100000000, LOOK_NS = 600000000 };
enum { NAP_NS = 200000 }; /* of a call that waits and sleeps */

/* The connection from a far PE. have, at: the requests that have come. into, rest: the payload that is coming. out:
 * replies that wait; tail: data that follow them. executed: the number of requests. on_gpu, tail_on_gpu: whether into
 * and tail are in GPU memory. begun, op, nbytes: of the request under way, for a timeline. */
typedef struct peer {
    struct peer *next, *after; /* after: in the list of those to free */
    int fd;
    /* pe: -1 before its greeting. left: it has said goodbye. gone: it is to be freed. waits: for the GPU */
    int pe, writing, asks, left, on_gpu, tail_on_gpu, gone, waits;
    hello_t hello;
    uint64_t nonce[2], challenged; /* challenged: whether the nonce has been sent */
    int64_t since;                 /* by the clock of attended */
    wire_t wire;                   /* on, if its requests have come by messages of the fabric */
    struct peer *beside;           /* in the list of those of which messages have come */
    int heard;                     /* whether it is in that list */
    uint64_t executed, have, rest, out_at, out_end, tail_left;
    int64_t begun;
    uint64_t op, nbytes;
    char *into;
    const char *tail;
    char in[IN_BYTES] __attribute__((aligned(8))), out[OUT_BYTES] __attribute__((aligned(8)));
} peer_t;

typedef struct service {
    pthread_t thread;
    int outer;                      /* in which the service sleeps: it reports `epoll` and `wake` */
    pthread_mutex_t seat;           /* of who executes requests */
    int helped;                     /* whether a call that waits executes them, and the service need not be woken */
    int rest;                       /* how long the service sleeps */
    int nap;                        /* a timer that goes on when it is read: each nap would set another one */
    int64_t shy_until, shy_for;     /* until when, and how long calls that wait sleep meanwhile */
    int64_t held_since;             /* since when this PE holds requests (_held.h), as the service knows; or 0 */
    int listener, epoll, strangers; /* of connections. strangers: those without a greeting */
    int64_t looked, attended;       /* when it last looked at strangers; the time so far in which it did */
    int64_t paused;       /* since when it does not accept connections, for want of memory or descriptors; or 0 */
    pthread_mutex_t lock; /* of the list of peers, for a fork */
    int wake, stopped;
    int gpu_busy, waits;            /* a request waits for the GPU; others wait until it has been executed */
    peer_t *serving, *gone;         /* the peer whose request is being executed; those to free */
    int leaving;                    /* this PE is about to end, and connections may end */
    peer_t *peers, **by_pe, *heard; /* all; of each far PE; those of which messages have come */
} service_t;

/* ---- execution of one request ---- */

/* What _far_gpu.h defines. The functions return the driver's code. */
static int is_within_gpu(uint64_t offset, uint64_t nbytes);
static int gpu_copy(void *to, const void *from, uint64_t nbytes);
static int gpu_hold(peer_t *p, const char **from, uint64_t *nbytes);
static void warm_gpu(void);
static int execute_on_gpu(peer_t *p, const request_t *r, const char *payload);
static char *gpu_address(uint64_t offset), *gpu_staging(void);
static void stop_proxy(void); /* of _proxy.h */

/* Whether the bytes are in this PE's part of the GPU heap or, for other offsets, of the CPU heap. */
static int is_within(uint64_t offset, uint64_t nbytes) {
    if (offset & FAR_GPU && offset >> FAR_SHIFT == 0) return is_within_gpu(offset, nbytes);
    return offset <= far->length && nbytes <= far->length - offset;
}

/* Whether a request touches nothing but this PE's part of the heap. */
static int is_valid(const request_t *r) {
    uint64_t item = r->detail, type = r->detail % 16;
    switch (r->op) {
    case PUT:
    case GET: return is_within(r->offset, r->nbytes) && !r->detail;
    case PUT_STRIDED:
    case GET_STRIDED:
        return item && r->nbytes && r->nbytes <= CHUNK && r->nbytes % item == 0 && r->value < FAR_GPU &&
               is_within(r->offset, (r->nbytes / item - 1) * r->value + item);
    case UPDATE:
    case FETCH: return type < TYPES && r->detail / 16 < OP_COUNT && is_within(r->offset, appliers[type].item);
    case POST:
        return !((r->offset | r->cond) & FAR_GPU) && is_within(r->offset, 8) && is_within(r->cond, 8) &&
               r->offset % 8 == 0 && r->cond % 8 == 0;
    case HOLD: return far->trial && r->value <= 100 && r->offset % 8 == 0 && is_within(r->offset, 8);
    default: return (r->op == FLUSH || r->op == BYE) && !r->offset;
    }
}

/* Whether a word is where no atomic can be performed. The program is wrong, but not this PE: it replies. */
static int is_misaligned(const request_t *r) {
    return (r->op == UPDATE || r->op == FETCH) && r->offset % appliers[r->detail % 16].item;
}

static void begin_served(peer_t *p, const request_t *r) {
    p->begun = begin_carried(), p->op = r->op, p->nbytes = r->nbytes;
}

/* Records the request under way, which has been executed. */
static void end_served(peer_t *p) {
    if (p->op != BYE && p->op != HOLD)
        note_carried(OF_SERVICE, p->pe, (uint32_t)p->op, p->nbytes, p->executed, p->begun, (sent_t){.pe = NONE_SENT});
    p->begun = 0;
}

static void store_epoch(const request_t *r) {
    uint64_t *word = (uint64_t *)(far->base + r->offset);
    /* either this thread sees that the PE sleeps, or the PE sees the word */ __atomic_store_n(word, r->value,
                                                                                               __ATOMIC_SEQ_CST);
    if (__atomic_load_n((uint64_t *)(far->base + r->cond), __ATOMIC_SEQ_CST))
        syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void reply(peer_t *p, uint64_t value, uint64_t nbytes) {
    reply_t r = {p->executed, value, nbytes};
    memcpy(p->out + p->out_end, &r, sizeof r);
    p->out_end += sizeof r;
}

/* Appends bytes of the heap to a reply. A word is read by one load. */
static void reply_bytes(peer_t *p, const char *at, uint64_t nbytes) {
    uint64_t word;
    if (nbytes <= 8) {
        copy_item((char *)&word, at, nbytes);
        at = (char *)&word;
    }
    memcpy(p->out + p->out_end, at, nbytes);
    p->out_end += nbytes;
}

/* Ends this PE, without locks that another thread may hold, such as those of stdio. */
static void end_pe(void) { _exit(1); }

/* Ends this PE if the code of the GPU driver is an error. */
static void gpu_result(const peer_t *p, int code) {
    if (!code) return;
    dprintf(2, "PE %d: the GPU driver returned error %d for a request from PE %d\n", far->my_pe, code, p->pe);
    end_pe();
}

/* Executes a request whose payload is complete. A reply of at most CHUNK bytes fits into `out`. */
static void execute(peer_t *p, const request_t *r, const char *payload) {
    char *at = far->base + r->offset;
    uint64_t old, item = r->detail;
    /* a PE that sees what this request stores also sees what earlier requests have stored */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (is_misaligned(r)) {
        p->executed++;
        reply(p, 0, MISALIGNED);
        return;
    }
    if (r->offset & FAR_GPU) {
        gpu_result(p, execute_on_gpu(p, r, payload));
        return;
    }
    p->executed++;
    switch (r->op) {
    case PUT: copy_bytes(at, payload, r->nbytes); break;
    case PUT_STRIDED:
        for (uint64_t i = 0; i * item < r->nbytes; i++) copy_bytes(at + i * r->value, payload + i * item, item);
        break;
    case GET:
        reply(p, 0, r->nbytes);
        if (r->nbytes > CHUNK)
            p->tail = at, p->tail_left = r->nbytes, p->tail_on_gpu = 0;
        else
            reply_bytes(p, at, r->nbytes);
        return;
    case GET_STRIDED:
        reply(p, 0, r->nbytes);
        for (uint64_t i = 0; i * item < r->nbytes; i++, p->out_end += item)
            memcpy(p->out + p->out_end, at + i * r->value, item);
        return;
    case UPDATE:
    case FETCH:
        old = appliers[item % 16].apply((uint32_t)item / 16, at, r->value, r->cond);
        if (r->op == FETCH) {
            reply(p, old, 0);
            return;
        }
        break;
    case POST: store_epoch(r); break;
    case HOLD:
        usleep((useconds_t)r->value * 1000);
        reply(p, *(volatile uint64_t *)at, 0);
        return;
    case BYE: p->left = 1; break;
    }
    if (r->asks) reply(p, 0, 0);
}

/* Stores a part of a long payload. */
static void store_part(peer_t *p, const char *data, uint64_t nbytes) {
    char *to = p->on_gpu ? gpu_staging() : p->into;
    if (data != to) memcpy(to, data, nbytes);
    if (p->on_gpu) gpu_result(p, gpu_copy(p->into, to, nbytes));
    p->into += nbytes, p->rest -= nbytes;
    if (p->rest) return;
    request_t end = {.op = FLUSH, .asks = (uint16_t)p->asks};
    execute(p, &end, NULL);
    end_served(p);
}
