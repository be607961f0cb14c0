/* The endpoints of a fabric, what is under way at them, and progress.
 *
 * Each PE has two endpoints: one that far PEs write to, read from and send requests to, which the service serves, and
 * one from which this PE writes, reads and sends requests, and at which replies arrive. A fabric with hardware for it
 * needs nothing else of the target of writes and reads; for others the target's service makes progress, woken by the
 * descriptor of the completion queue. */
#pragma once
#include <sys/epoll.h>

#include "_held.h"

#include "_libfabric.h"

/* BOUNCE: the most bytes of data that pass through memory which is registered already. MESSAGE: the most bytes of
 * requests or replies in a message, such as those of a put_signal. SENDS, RECEIVES: messages of an endpoint. */
enum { BOUNCE = 8192, BOUNCES = 64, NAME = 256, FABRIC_SLICE_MS = 1, ARMED_NS = 100000000, MOST_AT_ONCE = 1 << 30 };
enum { MESSAGE = CHUNK + 2 * sizeof(request_t), SENDS = 64, RECEIVES = 128 };
enum { TARGET, ORIGIN };             /* the endpoints */
enum { FLIGHT, OUTGOING, INCOMING }; /* what a completion is of */

/* A write or a read under way. context belongs to the provider. bounce: its memory, or NULL; dest: where the data of a
 * read go then. mr: to be closed at the end, or NULL. */
typedef struct flight {
    struct fi_context2 context;
    int kind;
    struct flight *next;
    link_t *link;
    char *bounce, *dest;
    uint64_t nbytes;
    struct fid_mr *mr;
    int reads;
} flight_t;

/* A message, of which what follows pe travels. pass: what no other process can know. taken: the low bits of the number
 * of messages of the other side that the sender has taken. */
typedef struct message {
    struct fi_context2 context;
    int kind;
    struct message *next;
    uint64_t pe; /* that it goes to */
    uint64_t pass;
    uint32_t from;
    uint16_t taken, nbytes;
    char data[MESSAGE];
} message_t;
enum { HEAD_BYTES = offsetof(message_t, data) - offsetof(message_t, pass) };

/* address: of the PE's TARGET; replies: of its ORIGIN. pass, expected: of messages to it and from it. */
typedef struct {
    uint64_t address, replies;
    uint64_t key, base;
    uint64_t pass[2], expected[2];
} remote_t;

/* A part of the GPU heap, of `nbytes` from `offset`, which grows by such parts. mr: as accessed by far PEs, and by this
 * one, if that is another registration. keys, bases: of the same part of each PE. */
typedef struct {
    uint64_t offset, nbytes;
    struct fid_mr *mr[2];
    uint64_t *keys, *bases;
} region_t;

typedef struct fabric {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq[2];
    struct fid_ep *ep[2];
    struct fid_mr *heap, *bounces, *letters[2];
    int fd[2];
    remote_t *remotes;    /* by PE */
    pthread_mutex_t lock; /* of ORIGIN's completion queue and of the lists */
    char *bounce;         /* their memory */
    char *idle[BOUNCES];
    message_t *messages[2], *unused[2]; /* the memory of all; those that can be sent */
    int n_idle, armed; /* armed: the service looks every FABRIC_SLICE_MS, until nothing flies for ARMED_NS */
    int messaging;     /* whether requests go by messages */
    int full;          /* a message of the service did not fit into the provider's queue */
    int64_t active;
    flight_t *spare;
    int64_t flying; /* writes and reads under way; each link counts its own too */
    uint64_t least; /* bytes of a put or a get that goes by the fabric; words of fewer may be torn by a provider */
    uint64_t gpu;   /* the address of this PE's GPU heap */
    int hmem;       /* whether the provider takes GPU memory */
    region_t *regions, next; /* those that all PEs have registered; that of this PE which others may not have */
    int n_regions;
    uint64_t order; /* what the provider promises: FI_ORDER_SAS, FI_ORDER_SAW */
} fabric_t;

static void deliver(fabric_t *f, int side, message_t *m); /* of _wires.h */
static void lose_message(int side, const message_t *m, int error);

/* ---- progress ---- */

static void land(fabric_t *f, flight_t *a) {
    if (a->bounce && a->reads && a->dest) copy_bytes(a->dest, a->bounce, a->nbytes);
    if (a->bounce) f->idle[f->n_idle++] = a->bounce;
    if (a->mr) a->mr->fid.ops->close(&a->mr->fid);
    if (a->reads) __atomic_sub_fetch(&a->link->reading, 1, __ATOMIC_RELEASE);
    __atomic_sub_fetch(&a->link->flying, 1, __ATOMIC_RELEASE);
    __atomic_sub_fetch(&f->flying, 1, __ATOMIC_RELEASE);
    a->next = f->spare, f->spare = a;
}

static void take_completion(fabric_t *f, int side, void *context, int error) {
    message_t *m = context;
    flight_t *a = context;
    if (m->kind == INCOMING) {
        if (error) m->nbytes = 0, m->from = UINT32_MAX;
        deliver(f, side, m);
    } else if (m->kind == OUTGOING) {
        if (error) lose_message(side, m, error);
        if (side == ORIGIN) __atomic_sub_fetch(&f->flying, 1, __ATOMIC_RELEASE);
        m->next = f->unused[side], f->unused[side] = m;
    } else {
        if (error) __atomic_store_n(&a->link->error, error, __ATOMIC_RELEASE), a->dest = NULL;
        land(f, a);
    }
}

/* Takes completions, those of ORIGIN with the lock. Returns how many. */
static int take_completions(fabric_t *f, int side) {
    struct fi_cq_entry done[16];
    ssize_t n = f->cq[side]->ops->read(f->cq[side], done, 16);
    for (ssize_t i = 0; i < n; i++) take_completion(f, side, done[i].op_context, 0);
    if (n != -FI_EAVAIL) return n > 0 ? (int)n : 0;
    struct fi_cq_err_entry failed = {0};
    if (f->cq[side]->ops->readerr(f->cq[side], &failed, 0) != 1 || !failed.op_context) return 0;
    take_completion(f, side, failed.op_context, failed.err ? failed.err : EIO);
    return 1;
}

/* Whether a thread may sleep until the queue's descriptor can be read. */
static int may_sleep(fabric_t *f, int side) {
    struct fid *queue = &f->cq[side]->fid;
    return f->fd[side] < 0 || f->fabric->ops->trywait(f->fabric, &queue, 1) == 0;
}

/* Whether the provider makes progress itself. */
static int is_auto(const fabric_t *f) { return f->info->domain_attr->data_progress == FI_PROGRESS_AUTO; }

/* Lets the service go on with what is under way, unless the provider does so itself. */
static void leave_to_service(fabric_t *f) {
    uint64_t one = 1;
    if (is_auto(f) || __atomic_load_n(&f->armed, __ATOMIC_SEQ_CST)) return;
    f->armed = 1;
    if (write(far->wake, &one, sizeof one) < 0) f->armed = 0;
}

/* Waits for the writes and reads of this PE to and from another one. Returns -1 for a failure; if that is an exception,
 * no reads are under way any more. */
static int fabric_wait(fabric_t *f, link_t *l) {
    int64_t since = now_ns();
    while (__atomic_load_n(&l->flying, __ATOMIC_ACQUIRE) > 0) {
        pthread_mutex_lock(&f->lock);
        int came = take_completions(f, ORIGIN);
        int sleeps = !came && f->fd[ORIGIN] >= 0 && now_ns() - since > SPIN_NS && may_sleep(f, ORIGIN);
        pthread_mutex_unlock(&f->lock);
        if (came) since = now_ns();
        if (sleeps) poll(&(struct pollfd){f->fd[ORIGIN], POLLIN, 0}, 1, FABRIC_SLICE_MS);
        if (!came && !sleeps && far->spins <= CROWDED) sched_yield();
        if (check_signals() && !__atomic_load_n(&l->reading, __ATOMIC_ACQUIRE)) return -1;
        int64_t limit = wait_limit();
        if (limit && now_ns() - since > limit) l->error = ETIMEDOUT;
        if (l->error == ETIMEDOUT) return -1;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return l->error || caller.raised ? -1 : 0;
}

/* Waits for the writes and reads of this PE to and from another one. */
static int fabric_settle(link_t *l) {
    return __atomic_load_n(&l->flying, __ATOMIC_ACQUIRE) > 0 ? fabric_wait(far->fabric, l) : 0;
}

/* Waits for all of them. Returns a link that has failed, or NULL. */
static link_t *fabric_quiet(void) {
    fabric_t *f = far->fabric;
    link_t *failed = NULL;
    for (int pe = 0; f && f->flying && pe < far->n_pes && !failed; pe++)
        if (far->links[pe] && fabric_settle(far->links[pe])) failed = far->links[pe];
    return failed;
}
