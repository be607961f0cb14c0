/* A libfabric made of software, whose provider keeps exactly what the one of that name promises, and breaks all else.
 *
 * Operations leave a PE late and in another order than they were made, but for orders that the program has asked for
 * and the provider promises. Data are read from the program's memory when they leave, are put into that of the target
 * in pieces, the last first, and completions come late and in another order again. Whoever breaks a rule of libfabric
 * ends with a line that names it.
 *
 * NIC_FOLDER: of the sockets.  NIC_SEED: of the chances.  NIC_LATE: an operation leaves up to so many microseconds
 * late. NIC_LATENCY: microseconds of each way.  NIC_RATE: GB/s of an endpoint; 0 is no limit.  NIC_REFUSES: the target
 * refuses this process's writes from this one on.  Build: software_nic.py. */
#define PYSHMEM_UNIT
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libfabric.h"

/* ---- profiles ---- */

/* order: of messages.  key: bytes.  hardware: data move without the target's calls.  words: 8 bytes arrive at once. */
typedef struct {
    const char *name;
    uint64_t order;
    int mr_mode;
    size_t key, inject, most, queue;
    int hardware, waits, words;
} profile_t;
enum { BASIC = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY };
static const profile_t profiles[] = {
    /* fi_cxi(7): no FI_ORDER_SAW, no virtual addresses, FI_MR_ENDPOINT; prov/cxi/include/cxip.h: sizes */
    {"cxi", FI_ORDER_SAS, FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY, 8, 192, (1ULL << 32) - 1, 512, 1, 1, 1},
    /* the same with keys of the program, of 32 bits */
    {"cxi;keys", FI_ORDER_SAS, FI_MR_ENDPOINT | FI_MR_ALLOCATED, 4, 192, (1ULL << 32) - 1, 512, 1, 1, 1},
    /* fi_verbs(7), fi_rxm(7) */
    {"verbs;ofi_rxm", FI_ORDER_SAS | FI_ORDER_SAW, BASIC | FI_MR_LOCAL, 4, 16320, 1 << 30, 384, 1, 1, 1},
    /* fi_efa(7): unordered datagrams; prov/efa/src/efa_prov_info.c: messages alone are in order, nothing is injected */
    {"efa", FI_ORDER_SAS, BASIC | FI_MR_LOCAL, 4, 0, 1 << 20, 64, 1, 0, 1},
    /* fi_tcp(7): the target's calls make progress; words may be torn */
    {"tcp;ofi_rxm", FI_ORDER_SAS | FI_ORDER_SAW, FI_MR_LOCAL, 8, 64, 1 << 24, 256, 0, 1, 0},
};
enum { PROFILES = sizeof profiles / sizeof *profiles };

/* ---- objects ---- */

enum { WRITES = 1, READS, SENDS, ANSWERS, BRINGS, COMPLETES };
enum { ENDPOINTS = 8, PEERS = 256, KEYS = 64 };

typedef struct {
    uint32_t process, endpoint;
} name_t;
typedef struct {
    uint32_t kind, from, to;
    int32_t error;
    uint64_t number, address, key, nbytes;
} packet_t;
typedef struct mr mr_t;
typedef struct op {
    struct op *next;
    packet_t packet;
    int64_t due;
    int peer, error;
    void *context;
    char *data, *copy; /* of the program, or of this operation alone */
    mr_t *mr;
    struct queue *queue;
} op_t;
typedef struct queue {
    struct fid_cq cq;
    int fd;
    op_t *done, *last;
    struct endpoint *of;
} queue_t;
typedef struct arrival {
    struct arrival *next;
    packet_t packet;
    uint32_t process;
    char data[];
} arrival_t;
typedef struct endpoint {
    struct fid_ep ep;
    queue_t *queue;
    uint32_t number;
    int enabled;
    op_t *receives, *last_receive;
    arrival_t *came, *last_came;
    int64_t sent[PEERS], written[PEERS]; /* when the last one leaves, by peer */
} endpoint_t;
struct mr {
    struct fid_mr mr;
    char *data;
    uint64_t nbytes, access, key;
    endpoint_t *bound;
    int enabled, closed, uses;
};
typedef struct {
    name_t name;
    int fd, lost;
} peer_t;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const profile_t *profile;
    uint64_t order, chance, numbers, late, refuses, writes;
    double latency, rate;
    int64_t free_at;
    op_t *queued, *flying;
    endpoint_t *endpoints[ENDPOINTS];
    peer_t peers[PEERS];
    int n_peers, listener, started, n_objects;
    mr_t *mrs[KEYS];
} nic = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void wrong(const char *rule) {
    fprintf(stderr, "software NIC (%s), process %d: %s\n", nic.profile ? nic.profile->name : "", (int)getpid(), rule);
    abort();
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static uint64_t chance(uint64_t below) {
    nic.chance = nic.chance * 6364136223846793005ULL + 1442695040888963407ULL;
    return below ? (nic.chance >> 33) % below : 0;
}

static uint64_t setting(const char *name, uint64_t otherwise) {
    return getenv(name) ? strtoull(getenv(name), NULL, 0) : otherwise;
}

static void *fresh(size_t nbytes) {
    void *found = calloc(1, nbytes);
    if (!found) abort();
    return found;
}

/* ---- completions and departures, by one thread ---- */

static void schedule(op_t *o, int64_t due) {
    o->due = due, o->next = nic.queued, nic.queued = o;
    pthread_cond_broadcast(&nic.changed);
}

/* An operation is over, and its completion comes some time later. */
static void finish(op_t *o, int error) {
    if (o->mr) o->mr->uses--;
    o->mr = NULL;
    free(o->copy), o->copy = NULL;
    if (!o->queue) {
        free(o);
        return;
    }
    o->error = error, o->packet.kind = COMPLETES;
    schedule(o, now() + (int64_t)chance(nic.late * 1000));
}

static void complete(op_t *o) {
    queue_t *q = o->queue;
    uint64_t one = 1;
    o->next = NULL;
    if (q->last)
        q->last->next = o;
    else
        q->done = o;
    q->last = o;
    if (q->fd >= 0 && write(q->fd, &one, sizeof one) < 0) abort();
}

static int send_all(int fd, const void *data, uint64_t nbytes) {
    for (const char *at = data; nbytes;) {
        ssize_t k = send(fd, at, nbytes, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return -1;
        at += k, nbytes -= (uint64_t)k;
    }
    return 0;
}

static int receive_all(int fd, void *data, uint64_t nbytes) {
    for (char *at = data; nbytes;) {
        ssize_t k = recv(fd, at, nbytes, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return -1;
        at += k, nbytes -= (uint64_t)k;
    }
    return 0;
}

/* Sends an operation: only now are its data read. Called with the lock, which is released meanwhile. */
static void depart(op_t *o) {
    peer_t *p = &nic.peers[o->peer];
    uint32_t kind = o->packet.kind;
    uint64_t carried = kind == READS ? 0 : o->packet.nbytes;
    int lost = p->lost;
    int answered = kind == WRITES || kind == READS;
    if (answered) o->next = nic.flying, nic.flying = o;
    packet_t packet = o->packet;
    const char *data = o->copy ? o->copy : o->data;
    pthread_mutex_unlock(&nic.lock);
    lost = lost || send_all(p->fd, &packet, sizeof packet) || send_all(p->fd, data, carried);
    pthread_mutex_lock(&nic.lock);
    if (answered) {
        if (lost) p->lost = 1;
        return; /* it may be over by now */
    }
    finish(o, lost ? ECONNRESET : 0);
}

/* Fails what is under way to PEs that are gone. */
static void fail_lost(void) {
    for (op_t **at = &nic.flying, *o; (o = *at);) {
        if (!nic.peers[o->peer].lost) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        finish(o, ECONNRESET);
    }
}

static void *work(void *unused) {
    (void)unused;
    pthread_mutex_lock(&nic.lock);
    for (;;) {
        fail_lost();
        op_t **first = &nic.queued;
        for (op_t **at = &nic.queued; *at; at = &(*at)->next)
            if ((*at)->due <= (*first)->due) first = at; /* of two at one time the older one */
        op_t *o = *first;
        if (!o || o->due > now()) {
            int64_t until = o ? o->due : now() + 100000000;
            struct timespec t = {until / 1000000000, until % 1000000000};
            pthread_cond_timedwait(&nic.changed, &nic.lock, &t);
            continue;
        }
        *first = o->next;
        if (o->packet.kind == COMPLETES)
            complete(o);
        else
            depart(o);
    }
    return NULL;
}

/* ---- arrivals, by a thread for each process that sends here ---- */

static int peer_of(uint32_t process) {
    for (int i = 0; i < nic.n_peers; i++)
        if (nic.peers[i].name.process == process) return i;
    return -1;
}

static void answer(uint32_t process, const packet_t *to, uint32_t kind, int error, const char *data) {
    op_t *o = fresh(sizeof *o);
    o->peer = peer_of(process);
    o->packet = (packet_t){.kind = kind, .from = to->to, .to = to->from, .number = to->number, .error = error};
    if (kind == BRINGS) {
        o->packet.nbytes = to->nbytes, o->copy = malloc(to->nbytes);
        memcpy(o->copy, data, to->nbytes);
    }
    if (o->peer < 0) wrong("a request of a process whose address is not known here");
    schedule(o, now() + (int64_t)nic.latency + (int64_t)chance(nic.late * 100));
}

/* Puts data into the program's memory in pieces, the last first. */
static void put_in_pieces(char *to, const char *from, uint64_t nbytes) {
    uint64_t piece = nic.profile->words ? 8 : 1;
    if (nic.profile->words && !((uint64_t)to & 7) && nbytes % 8 == 0) {
        for (uint64_t i = nbytes / 8; i-- > 0;) {
            uint64_t word;
            memcpy(&word, from + 8 * i, 8);
            __atomic_store_n((uint64_t *)(to + 8 * i), word, __ATOMIC_RELEASE);
        }
        return;
    }
    for (uint64_t at = (nbytes - 1) / piece * piece + piece; at > 0;) {
        at -= piece;
        uint64_t size = nbytes - at < piece ? nbytes - at : piece;
        if (size == 8 || size == 4 || size == 2) /* a word that is aligned arrives at once */
            memcpy(to + at, from + at, size);
        else
            for (uint64_t i = size; i-- > 0;) __atomic_store_n(to + at + i, from[at + i], __ATOMIC_RELEASE);
    }
}

/* The memory of a request from outside, or NULL if it may not. */
static char *memory_at(const packet_t *p, uint64_t access) {
    for (int i = 0; i < KEYS; i++) {
        mr_t *m = nic.mrs[i];
        if (!m || m->closed || m->key != p->key || !(m->access & access)) continue;
        if (nic.profile->mr_mode & FI_MR_ENDPOINT && (!m->enabled || !m->bound || m->bound->number != p->to)) continue;
        char *at = nic.profile->mr_mode & FI_MR_VIRT_ADDR ? (char *)p->address : m->data + p->address;
        if (at >= m->data && p->nbytes <= m->nbytes && at <= m->data + m->nbytes - p->nbytes) return at;
    }
    return NULL;
}

static void arrive_message(endpoint_t *e, arrival_t *a) {
    op_t *o = e->receives;
    e->receives = o->next;
    if (!o->next) e->last_receive = NULL;
    if (a->packet.nbytes > o->packet.nbytes) wrong("a message is longer than the buffer that was posted for it");
    memcpy(o->data, a->data, a->packet.nbytes);
    finish(o, 0);
    free(a);
}

/* Takes what has come to an endpoint, in its order; messages wait for buffers. */
static void arrive(endpoint_t *e) {
    arrival_t **at = &e->came, *a;
    int blocked = 0;
    while ((a = *at)) {
        packet_t *p = &a->packet;
        if (p->kind == SENDS && (blocked || !e->receives)) {
            blocked = 1, at = &a->next;
            continue;
        }
        *at = a->next;
        if (p->kind == SENDS) {
            arrive_message(e, a);
            continue;
        }
        char *memory = memory_at(p, p->kind == WRITES ? FI_REMOTE_WRITE : FI_REMOTE_READ);
        if (memory && p->kind == WRITES) put_in_pieces(memory, a->data, p->nbytes);
        answer(a->process, p, memory && p->kind == READS ? BRINGS : ANSWERS, memory ? 0 : EACCES, memory);
        free(a);
    }
    for (e->last_came = e->came; e->last_came && e->last_came->next;) e->last_came = e->last_came->next;
}

static void over(const packet_t *p, const char *data) {
    for (op_t **at = &nic.flying, *o; (o = *at); at = &o->next)
        if (o->packet.number == p->number) {
            *at = o->next;
            if (p->kind == BRINGS) put_in_pieces(o->data, data, p->nbytes);
            finish(o, p->error);
            return;
        }
}

static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument;
    uint32_t process = 0;
    packet_t p;
    uint64_t one = 1;
    if (receive_all(fd, &process, sizeof process)) return NULL;
    while (!receive_all(fd, &p, sizeof p)) {
        uint64_t carried = p.kind == READS ? 0 : p.nbytes;
        arrival_t *a = fresh(sizeof *a + carried);
        a->packet = p, a->process = process;
        if (receive_all(fd, a->data, carried)) break;
        pthread_mutex_lock(&nic.lock);
        if (p.kind == ANSWERS || p.kind == BRINGS) {
            over(&p, a->data);
            free(a);
        } else if (nic.endpoints[p.to]) {
            endpoint_t *e = nic.endpoints[p.to];
            if (e->last_came)
                e->last_came->next = a;
            else
                e->came = a;
            e->last_came = a;
            if (nic.profile->hardware)
                arrive(e);
            else if (e->queue->fd >= 0 && write(e->queue->fd, &one, sizeof one) < 0)
                abort();
        }
        pthread_mutex_unlock(&nic.lock);
    }
    pthread_mutex_lock(&nic.lock);
    if (peer_of(process) >= 0) nic.peers[peer_of(process)].lost = 1;
    pthread_cond_broadcast(&nic.changed);
    pthread_mutex_unlock(&nic.lock);
    close(fd);
    return NULL;
}

static void begin_thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument)) abort();
    pthread_detach(thread);
}

static void *listen_for_peers(void *unused) {
    (void)unused;
    for (;;) {
        int fd = accept4(nic.listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED) return NULL;
        if (fd >= 0) begin_thread(serve, (void *)(intptr_t)fd);
    }
}

/* By a descriptor of the folder, since a socket's name has at most 107 bytes. */
static struct sockaddr_un address_of(uint32_t process) {
    static int folder = -1;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (folder < 0) folder = open(getenv("NIC_FOLDER"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%u", folder, process);
    return a;
}

static void start(void) {
    if (nic.started) return;
    struct sockaddr_un own = address_of((uint32_t)getpid());
    nic.started = 1, nic.chance = setting("NIC_SEED", 1) * 2654435761u + (uint64_t)getpid();
    nic.late = setting("NIC_LATE", 200), nic.refuses = setting("NIC_REFUSES", UINT64_MAX);
    nic.latency = (double)setting("NIC_LATENCY", 0) * 1e3, nic.rate = (double)setting("NIC_RATE", 0);
    nic.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(own.sun_path);
    if (bind(nic.listener, (struct sockaddr *)&own, sizeof own) || listen(nic.listener, PEERS))
        wrong("NIC_FOLDER is no folder for sockets");
    begin_thread(listen_for_peers, NULL);
    begin_thread(work, NULL);
}

/* ---- calls ---- */

static mr_t *described(endpoint_t *e, void *description, const void *data, uint64_t nbytes) {
    mr_t *m = description;
    if (!(nic.profile->mr_mode & FI_MR_LOCAL)) return NULL;
    if (!m) wrong("FI_MR_LOCAL: memory without a descriptor");
    if (m->closed) wrong("the memory of a descriptor is not registered any more");
    if ((const char *)data < m->data || (const char *)data + nbytes > m->data + m->nbytes)
        wrong("a descriptor is of other memory");
    if (m->bound && m->bound != e) wrong("FI_MR_ENDPOINT: memory is bound to another endpoint");
    m->uses++;
    return m;
}

static op_t *begin(endpoint_t *e, int kind, const void *data, uint64_t nbytes, uint64_t peer, void *context) {
    if (!e->enabled) wrong("an endpoint is used before FI_ENABLE");
    if (peer >= (uint64_t)nic.n_peers) wrong("an address that was never inserted");
    op_t *o = fresh(sizeof *o);
    *o = (op_t){.peer = (int)peer, .context = context, .data = (char *)data, .queue = e->queue};
    o->packet = (packet_t){.kind = (uint32_t)kind,
                           .from = e->number,
                           .to = nic.peers[peer].name.endpoint,
                           .number = ++nic.numbers,
                           .nbytes = nbytes};
    return o;
}

static uint64_t count(const op_t *list, const queue_t *of) {
    uint64_t n = 0;
    for (; list; list = list->next) n += list->queue == of;
    return n;
}

static int is_full(const endpoint_t *e) {
    return count(nic.queued, e->queue) + count(nic.flying, e->queue) >= nic.profile->queue;
}

/* When an operation leaves: late by chance, but after those that it must not pass. */
static void leave(endpoint_t *e, op_t *o) {
    int64_t when = now() + (int64_t)chance(nic.late * 1000) + (int64_t)nic.latency;
    int message = o->packet.kind == SENDS;
    if (nic.rate > 0 && o->packet.kind != READS) {
        int64_t begins = nic.free_at > when ? nic.free_at : when;
        nic.free_at = begins + (int64_t)((double)o->packet.nbytes / nic.rate);
        when = nic.free_at;
    }
    if (message && nic.order & FI_ORDER_SAS && when <= e->sent[o->peer]) when = e->sent[o->peer] + 1;
    if (message && nic.order & FI_ORDER_SAW && when <= e->written[o->peer]) when = e->written[o->peer] + 1;
    int64_t *last = message ? e->sent : e->written;
    if (when > last[o->peer]) last[o->peer] = when;
    schedule(o, when);
}

static ssize_t move(struct fid_ep *ep, int kind, void *data, size_t nbytes, void *description, uint64_t peer,
                    uint64_t at, uint64_t key, void *context) {
    endpoint_t *e = (endpoint_t *)ep;
    if (nbytes > nic.profile->most) return -EMSGSIZE;
    pthread_mutex_lock(&nic.lock);
    if (is_full(e)) {
        pthread_mutex_unlock(&nic.lock);
        return -EAGAIN;
    }
    op_t *o = begin(e, kind, data, nbytes, peer, context);
    o->mr = described(e, description, data, nbytes);
    o->packet.address = at, o->packet.key = key;
    if (kind == WRITES && ++nic.writes >= nic.refuses) o->packet.key = ~key;
    leave(e, o);
    pthread_mutex_unlock(&nic.lock);
    return 0;
}

static ssize_t nic_write(struct fid_ep *ep, const void *data, size_t nbytes, void *description, uint64_t peer,
                         uint64_t at, uint64_t key, void *context) {
    return move(ep, WRITES, (void *)data, nbytes, description, peer, at, key, context);
}

static ssize_t nic_read(struct fid_ep *ep, void *data, size_t nbytes, void *description, uint64_t peer, uint64_t at,
                        uint64_t key, void *context) {
    return move(ep, READS, data, nbytes, description, peer, at, key, context);
}

static ssize_t nic_sendmsg(struct fid_ep *ep, const struct fi_msg *m, uint64_t flags) {
    endpoint_t *e = (endpoint_t *)ep;
    if (m->iov_count != 1) wrong("this provider sends one piece");
    pthread_mutex_lock(&nic.lock);
    if (is_full(e)) {
        pthread_mutex_unlock(&nic.lock);
        return -EAGAIN;
    }
    op_t *o = begin(e, SENDS, m->msg_iov->iov_base, m->msg_iov->iov_len, m->addr, m->context);
    o->mr = described(e, m->desc ? m->desc[0] : NULL, o->data, o->packet.nbytes);
    if (flags & FI_DELIVERY_COMPLETE) wrong("this provider answers no messages");
    leave(e, o);
    pthread_mutex_unlock(&nic.lock);
    return 0;
}

static ssize_t nic_inject(struct fid_ep *ep, const void *data, size_t nbytes, uint64_t peer) {
    endpoint_t *e = (endpoint_t *)ep;
    if (nbytes > nic.profile->inject) wrong("more is injected than inject_size");
    pthread_mutex_lock(&nic.lock);
    if (is_full(e)) {
        pthread_mutex_unlock(&nic.lock);
        return -EAGAIN;
    }
    op_t *o = begin(e, SENDS, NULL, nbytes, peer, NULL);
    o->copy = malloc(nbytes), o->queue = NULL;
    memcpy(o->copy, data, nbytes);
    leave(e, o);
    pthread_mutex_unlock(&nic.lock);
    return 0;
}

static ssize_t nic_recv(struct fid_ep *ep, void *data, size_t nbytes, void *description, uint64_t from, void *context) {
    endpoint_t *e = (endpoint_t *)ep;
    (void)from;
    pthread_mutex_lock(&nic.lock);
    op_t *o = fresh(sizeof *o);
    *o = (op_t){.context = context, .data = data, .queue = e->queue};
    o->packet.nbytes = nbytes, o->mr = described(e, description, data, nbytes);
    if (e->last_receive)
        e->last_receive->next = o;
    else
        e->receives = o;
    e->last_receive = o;
    if (nic.profile->hardware) arrive(e);
    pthread_mutex_unlock(&nic.lock);
    return 0;
}

static ssize_t nic_cq_read(struct fid_cq *cq, void *into, size_t most) {
    queue_t *q = (queue_t *)cq;
    struct fi_cq_entry *out = into;
    size_t n = 0;
    pthread_mutex_lock(&nic.lock);
    if (q->of && !nic.profile->hardware) arrive(q->of);
    while (n < most && q->done && !q->done->error) {
        op_t *o = q->done;
        out[n++].op_context = o->context;
        q->done = o->next;
        free(o);
    }
    if (!q->done) q->last = NULL;
    ssize_t failed = q->done && q->done->error ? -FI_EAVAIL : -EAGAIN;
    pthread_mutex_unlock(&nic.lock);
    return n ? (ssize_t)n : failed;
}

static ssize_t nic_cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *into, uint64_t flags) {
    queue_t *q = (queue_t *)cq;
    ssize_t n = 0;
    (void)flags;
    pthread_mutex_lock(&nic.lock);
    op_t *o = q->done;
    if (o && o->error) {
        *into = (struct fi_cq_err_entry){.op_context = o->context, .err = o->error};
        q->done = o->next, n = 1;
        if (!q->done) q->last = NULL;
        free(o);
    }
    pthread_mutex_unlock(&nic.lock);
    return n ? n : -EAGAIN;
}

/* ---- opening and closing ---- */

static int no_bind(struct fid *a, struct fid *b, uint64_t flags) {
    (void)a, (void)b, (void)flags;
    return 0;
}
static int no_control(struct fid *f, int command, void *argument) {
    (void)f, (void)command, (void)argument;
    return 0;
}
static int plain_close(struct fid *f) {
    nic.n_objects--;
    free(f);
    return 0;
}

#define FID_OPS(name, close_it, bind_it, control_it) \
    static __typeof__(*((struct fid *)0)->ops) name = {sizeof name, close_it, bind_it, control_it}
FID_OPS(plain_ops, plain_close, no_bind, no_control);

static int mr_close(struct fid *f) {
    mr_t *m = (mr_t *)f;
    pthread_mutex_lock(&nic.lock);
    if (m->uses) wrong("memory is released while an operation uses it");
    m->closed = 1;
    for (int i = 0; i < KEYS; i++)
        if (nic.mrs[i] == m) nic.mrs[i] = NULL;
    nic.n_objects--;
    pthread_mutex_unlock(&nic.lock);
    return 0; /* kept, so that a use of it is seen */
}
static int mr_bind(struct fid *f, struct fid *endpoint, uint64_t flags) {
    (void)flags;
    ((mr_t *)f)->bound = (endpoint_t *)endpoint;
    return 0;
}
static int mr_control(struct fid *f, int command, void *argument) {
    (void)argument;
    ((mr_t *)f)->enabled |= command == FI_ENABLE;
    return 0;
}
FID_OPS(mr_ops, mr_close, mr_bind, mr_control);

static int nic_reg(struct fid *domain, const void *data, size_t nbytes, uint64_t access, uint64_t offset, uint64_t key,
                   uint64_t flags, struct fid_mr **into, void *context) {
    (void)domain, (void)offset, (void)flags, (void)context;
    int given = !(nic.profile->mr_mode & FI_MR_PROV_KEY), place = 0;
    if (given && nic.profile->key < 8 && key >> 8 * nic.profile->key) return -EINVAL;
    pthread_mutex_lock(&nic.lock);
    uint64_t mask = nic.profile->key < 8 ? (UINT64_C(1) << 8 * nic.profile->key) - 1 : UINT64_MAX;
    if (!given) key = (++nic.numbers * 0x9E3779B97F4A7C15u) & mask;
    for (int i = 0; i < KEYS; i++)
        if (given && nic.mrs[i] && nic.mrs[i]->key == key && key && access & (FI_REMOTE_READ | FI_REMOTE_WRITE))
            wrong("two registrations have one key");
    while (place < KEYS && nic.mrs[place]) place++;
    if (place == KEYS) {
        pthread_mutex_unlock(&nic.lock);
        return -ENOMEM;
    }
    mr_t *m = nic.mrs[place] = fresh(sizeof *m);
    m->mr.fid.ops = &mr_ops, m->mr.mem_desc = m, m->mr.key = m->key = key;
    m->data = (char *)data, m->nbytes = nbytes, m->access = access, m->enabled = 0;
    nic.n_objects++;
    pthread_mutex_unlock(&nic.lock);
    *into = &m->mr;
    return 0;
}
static int nic_regattr(struct fid *domain, const struct fi_mr_attr *a, uint64_t flags, struct fid_mr **into) {
    if (a->iface) return -ENOSYS; /* no memory of GPUs */
    return nic_reg(domain, a->mr_iov->iov_base, a->mr_iov->iov_len, a->access, 0, a->requested_key, flags, into, NULL);
}

static int cq_close(struct fid *f) {
    queue_t *q = (queue_t *)f;
    if (q->of) wrong("a queue is closed before its endpoint");
    if (q->fd >= 0) close(q->fd);
    q->fd = -1;
    nic.n_objects--;
    return 0; /* completions may still come */
}
static int cq_control(struct fid *f, int command, void *argument) {
    if (command != FI_GETWAIT || ((queue_t *)f)->fd < 0) return -ENOSYS;
    *(int *)argument = ((queue_t *)f)->fd;
    return 0;
}
FID_OPS(cq_ops, cq_close, no_bind, cq_control);
static __typeof__(*((struct fid_cq *)0)->ops) cq_calls = {sizeof cq_calls, nic_cq_read, NULL, nic_cq_readerr};

static int nic_cq_open(struct fid_domain *domain, struct fi_cq_attr *a, struct fid_cq **into, void *context) {
    (void)domain, (void)context;
    if (a->wait_obj != FI_WAIT_NONE && !nic.profile->waits) return -ENOSYS;
    if (a->format != FI_CQ_FORMAT_CONTEXT) return -ENOSYS;
    queue_t *q = fresh(sizeof *q);
    q->cq.fid.ops = &cq_ops, q->cq.ops = &cq_calls;
    q->fd = a->wait_obj == FI_WAIT_NONE ? -1 : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    nic.n_objects++;
    *into = &q->cq;
    return 0;
}

static int nic_insert(struct fid_av *av, const void *names, size_t n, uint64_t *into, uint64_t flags, void *context) {
    (void)av, (void)flags, (void)context;
    for (size_t i = 0; i < n; i++) {
        if (nic.n_peers == PEERS) return (int)i;
        peer_t *p = &nic.peers[nic.n_peers];
        memcpy(&p->name, (const char *)names + i * sizeof p->name, sizeof p->name);
        struct sockaddr_un a = address_of(p->name.process);
        uint32_t own = (uint32_t)getpid();
        p->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(p->fd, (struct sockaddr *)&a, sizeof a) || send_all(p->fd, &own, sizeof own)) return (int)i;
        pthread_mutex_lock(&nic.lock);
        into[i] = (uint64_t)nic.n_peers++;
        pthread_mutex_unlock(&nic.lock);
    }
    return (int)n;
}
static __typeof__(*((struct fid_av *)0)->ops) av_calls = {sizeof av_calls, nic_insert};
static int nic_av_open(struct fid_domain *domain, struct fi_av_attr *a, struct fid_av **into, void *context) {
    struct fid_av *av = fresh(sizeof *av);
    (void)domain, (void)a, (void)context;
    av->fid.ops = &plain_ops, av->ops = &av_calls, nic.n_objects++;
    *into = av;
    return 0;
}

static int ep_close(struct fid *f) {
    endpoint_t *e = (endpoint_t *)f;
    pthread_mutex_lock(&nic.lock);
    nic.endpoints[e->number] = NULL, e->enabled = 0;
    for (op_t *o; (o = e->receives); free(o)) {
        if (o->mr) o->mr->uses--;
        e->receives = o->next;
    }
    for (int list = 0; list < 2; list++) /* what is under way is forgotten */
        for (op_t **at = list ? &nic.flying : &nic.queued, *o; (o = *at);)
            if (o->queue == e->queue) {
                if (o->mr) o->mr->uses--;
                *at = o->next;
                free(o->copy), free(o);
            } else
                at = &o->next;
    e->queue->of = NULL;
    nic.n_objects--;
    pthread_mutex_unlock(&nic.lock);
    return 0;
}
static int ep_bind(struct fid *f, struct fid *other, uint64_t flags) {
    endpoint_t *e = (endpoint_t *)f;
    if (flags & FI_TRANSMIT) e->queue = (queue_t *)other, e->queue->of = e;
    return 0;
}
static int ep_control(struct fid *f, int command, void *argument) {
    endpoint_t *e = (endpoint_t *)f;
    (void)argument;
    if (command == FI_ENABLE) e->enabled = e->queue != NULL;
    return e->enabled ? 0 : -EINVAL;
}
FID_OPS(ep_ops, ep_close, ep_bind, ep_control);
static int nic_getname(struct fid *f, void *into, size_t *room) {
    name_t name = {(uint32_t)getpid(), ((endpoint_t *)f)->number};
    if (*room < sizeof name) return -FI_EAVAIL;
    memcpy(into, &name, sizeof name);
    *room = sizeof name;
    return 0;
}
static __typeof__(*((struct fid_ep *)0)->cm) cm_calls = {sizeof cm_calls, NULL, nic_getname};
static __typeof__(*((struct fid_ep *)0)->msg) msg_calls = {
    .size = sizeof msg_calls, .recv = nic_recv, .sendmsg = nic_sendmsg, .inject = nic_inject};
static __typeof__(*((struct fid_ep *)0)->rma) rma_calls = {
    .size = sizeof rma_calls, .read = nic_read, .write = nic_write};
static int nic_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **into, void *context) {
    endpoint_t *e = fresh(sizeof *e);
    (void)domain, (void)context;
    nic.order = info->tx_attr->msg_order;
    while (e->number < ENDPOINTS && nic.endpoints[e->number]) e->number++;
    if (e->number == ENDPOINTS) return -ENOSPC;
    nic.endpoints[e->number] = e;
    e->ep.fid.ops = &ep_ops, e->ep.cm = &cm_calls, e->ep.msg = &msg_calls, e->ep.rma = &rma_calls;
    nic.n_objects++;
    *into = &e->ep;
    return 0;
}

static int domain_close(struct fid *f) {
    if (nic.n_objects > 2) wrong("a domain is closed before what was opened in it");
    return plain_close(f);
}
FID_OPS(domain_ops, domain_close, no_bind, no_control);
static __typeof__(*((struct fid_domain *)0)->ops) domain_calls = {sizeof domain_calls, nic_av_open, nic_cq_open,
                                                                  nic_endpoint};
static __typeof__(*((struct fid_domain *)0)->mr) domain_memory = {sizeof domain_memory, nic_reg, NULL, nic_regattr};
static int nic_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **into, void *context) {
    struct fid_domain *d = fresh(sizeof *d);
    (void)fabric, (void)info, (void)context;
    d->fid.ops = &domain_ops, d->ops = &domain_calls, d->mr = &domain_memory;
    nic.n_objects++;
    start();
    *into = d;
    return 0;
}
static int nic_trywait(struct fid_fabric *fabric, struct fid **fids, int n) {
    (void)fabric;
    int code = 0;
    pthread_mutex_lock(&nic.lock);
    for (int i = 0; i < n; i++) {
        queue_t *q = (queue_t *)fids[i];
        uint64_t told;
        int idle = !q->done && (nic.profile->hardware || !q->of || !q->of->came);
        if (!idle) code = -EAGAIN;
        if (idle && q->fd >= 0 && read(q->fd, &told, sizeof told) < 0 && errno != EAGAIN) abort();
    }
    pthread_mutex_unlock(&nic.lock);
    return code;
}
static __typeof__(*((struct fid_fabric *)0)->ops) fabric_calls = {
    .size = sizeof fabric_calls, .domain = nic_domain, .trywait = nic_trywait};

/* ---- the library ---- */

struct fi_info *fi_dupinfo(const struct fi_info *from) {
    struct fi_info *info = fresh(sizeof *info);
    if (from) *info = *from;
    info->next = NULL;
    info->tx_attr = fresh(sizeof *info->tx_attr), info->rx_attr = fresh(sizeof *info->rx_attr);
    info->ep_attr = fresh(sizeof *info->ep_attr), info->domain_attr = fresh(sizeof *info->domain_attr);
    info->fabric_attr = fresh(sizeof *info->fabric_attr);
    return info;
}

void fi_freeinfo(struct fi_info *info) {
    for (struct fi_info *next; info; info = next) {
        next = info->next;
        free(info->fabric_attr->prov_name);
        free(info->tx_attr), free(info->rx_attr), free(info->ep_attr), free(info->domain_attr), free(info->fabric_attr);
        free(info);
    }
}

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
               struct fi_info **found) {
    (void)version, (void)node, (void)service, (void)flags;
    *found = NULL;
    for (const profile_t *p = profiles; p < profiles + PROFILES; p++) {
        const char *name = hints->fabric_attr->prov_name;
        uint64_t order = hints->tx_attr->msg_order | hints->rx_attr->msg_order;
        if ((name && strcmp(name, p->name)) || hints->caps & FI_HMEM || order & ~p->order ||
            p->mr_mode & ~hints->domain_attr->mr_mode)
            continue;
        struct fi_info *info = fi_dupinfo(NULL);
        info->caps = hints->caps, info->fabric_attr->prov_name = strdup(p->name);
        info->ep_attr->type = FI_EP_RDM, info->ep_attr->max_msg_size = p->most;
        info->tx_attr->msg_order = info->rx_attr->msg_order = order;
        info->tx_attr->inject_size = p->inject, info->tx_attr->size = info->rx_attr->size = p->queue;
        info->domain_attr->mr_mode = p->mr_mode, info->domain_attr->mr_key_size = p->key;
        info->domain_attr->threading = FI_THREAD_SAFE;
        info->domain_attr->data_progress = p->hardware && !strncmp(p->name, "verbs", 5) ? FI_PROGRESS_AUTO : 2;
        info->next = *found, *found = info;
    }
    return *found ? 0 : -ENODATA;
}

static int fabric_close(struct fid *f) {
    nic.n_objects--;
    free(f);
    return 0;
}
FID_OPS(fabric_ops, fabric_close, no_bind, no_control);
int fi_fabric(struct fi_fabric_attr *attributes, struct fid_fabric **into, void *context) {
    struct fid_fabric *f = fresh(sizeof *f);
    (void)context;
    for (const profile_t *p = profiles; p < profiles + PROFILES; p++)
        if (!strcmp(p->name, attributes->prov_name)) nic.profile = p;
    f->fid.ops = &fabric_ops, f->ops = &fabric_calls, nic.n_objects++;
    *into = f;
    return 0;
}

uint32_t fi_version(void) { return FI_VERSION_1_14; }
const char *fi_strerror(int code) { return strerror(code); }
