#include "carrier_fabric.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "carrier_tcp.h"
#include "greeting.h"
#include "link.h"

enum { WINDOW = 32 }; /* messages to an end that it has not taken: fewer than half of the numbers of 8 bits */
enum { SENDS = 64, RECEIVES = 128 }; /* messages of an endpoint */

/* Head and data are what is sent. */
typedef struct message {
    operation_t operation;
    struct message *next;
    int pe; /* that it goes to */
    message_head_t head;
    char data[MESSAGE];
} message_t;
_Static_assert(offsetof(message_t, data) == offsetof(message_t, head) + sizeof(message_head_t), "no gap in a message");

static void *message_descriptor(fabric_t *f, int end) {
    return f->message_memory[end] ? f->message_memory[end]->mem_desc : NULL;
}

static void message_free(fabric_t *f, int end, message_t *m) { m->next = f->unused[end], f->unused[end] = m; }

static void message_came(fabric_t *f, int end, operation_t *o, int error);
static void message_post(fabric_t *f, int end, message_t *m) {
    struct fid_ep *e = f->ep[end];
    m->operation.complete = message_came;
    if (e->msg->recv(e, &m->head, sizeof m->head + MESSAGE, message_descriptor(f, end), FI_ADDR_UNSPEC, m))
        message_free(f, end, m); /* the provider has no room for it */
}

/* The connection that a message belongs to, or NULL: of a PE that has not greeted, or of no PE. */
static connection_t *connection_of(const fabric_t *f, int end, const message_t *m) {
    uint32_t pe = m->head.from;
    int known = f->messaging && pe < (uint32_t)far->n_pes && far->links[pe] &&
                m->head.pass == f->remotes[pe].expected[end] && m->head.nbytes <= MESSAGE;
    return !known ? NULL : end == ORIGIN ? &far->links[pe]->conn : far->incoming[pe];
}

/* How many messages come before it that have not been taken. */
static uint8_t distance_of(const messages_t *all, const message_t *m) { return (uint8_t)(m->head.number - all->taken); }

/* The message that is to be taken next, or NULL if it has not come. */
static message_t *next_message(const messages_t *all) {
    return all->first && !distance_of(all, all->first) ? all->first : NULL;
}

/* Notes for the server that messages have come. */
static void note_ready(connection_t *c) {
    if (c->messages.ready) return;
    c->messages.ready = 1, c->messages.next_ready = far->ready, far->ready = c;
}

/* Adds a message to its connection. Called with the lock for ORIGIN, and by the server for TARGET. */
static void message_came(fabric_t *f, int end, operation_t *o, int error) {
    message_t *m = (message_t *)o;
    connection_t *c = error ? NULL : connection_of(f, end, m);
    messages_t *all = c ? &c->messages : NULL;
    uint8_t freed = c ? (uint8_t)(m->head.taken - all->freed) : 0;
    if (c && freed <= WINDOW) all->freed += freed; /* otherwise a later message has told more */
    if (c) c->carrier = &fabric_carrier;
    if (c && end == TARGET) note_ready(c);
    if (!c || !m->head.nbytes) {
        message_post(f, end, m);
        return;
    }
    message_t **at = &all->first;
    while (*at && distance_of(all, *at) < distance_of(all, m)) at = &(*at)->next;
    m->next = *at, *at = m;
}

static void message_lost(int end, int pe, int error) {
    if (end == ORIGIN)
        __atomic_store_n(&far->links[pe]->error, error, __ATOMIC_RELEASE);
    else if (far->incoming[pe])
        shutdown(far->incoming[pe]->fd, SHUT_RDWR);
}

static void message_sent(fabric_t *f, int end, operation_t *o, int error) {
    message_t *m = (message_t *)o;
    if (error) message_lost(end, m->pe, error);
    if (end == ORIGIN) __atomic_sub_fetch(&f->pending, 1, __ATOMIC_RELEASE);
    message_free(f, end, m);
}

/* The message belongs to the provider until its completion, which says that it needs no progress of this PE any more.
 */
static ssize_t message_submit(fabric_t *f, int end, message_t *m, uint64_t nbytes, uint64_t address) {
    struct iovec v = {&m->head, nbytes};
    void *description = message_descriptor(f, end);
    struct fi_msg msg = {.msg_iov = &v, .desc = &description, .iov_count = 1, .addr = address, .context = m};
    return f->ep[end]->msg->sendmsg(f->ep[end], &msg, FI_TRANSMIT_COMPLETE);
}

static uint64_t gather(char *data, const struct iovec *v, int n) {
    uint64_t nbytes = 0;
    for (int i = 0; i < n; i++) {
        uint64_t now = v[i].iov_len < MESSAGE - nbytes ? v[i].iov_len : MESSAGE - nbytes;
        memcpy(data + nbytes, v[i].iov_base, now);
        nbytes += now;
    }
    return nbytes;
}

/* Sends one message with what fits into it. Called as message_came is. */
static ssize_t message_send(fabric_t *f, connection_t *c, const struct iovec *v, int n) {
    int end = c->end;
    messages_t *all = &c->messages;
    message_t *m = f->unused[end];
    const remote_t *r = &f->remotes[c->pe];
    uint64_t address = end == ORIGIN ? r->address : r->replies;
    if (!m) fabric_progress(f, end), m = f->unused[end];
    errno = EAGAIN;
    if (!m || (n && all->sent - all->freed >= WINDOW)) return -1;
    uint64_t nbytes = gather(m->data, v, n), whole = sizeof m->head + nbytes;
    m->operation.complete = message_sent, m->pe = c->pe;
    m->head = (message_head_t){.pass = r->pass[end],
                               .from = (uint32_t)far->my_pe,
                               .number = (uint8_t)all->sent,
                               .taken = (uint8_t)all->taken,
                               .nbytes = (uint16_t)nbytes};
    f->unused[end] = m->next;
    int injects = whole <= f->info->tx_attr->inject_size && (end == TARGET || fabric_is_auto(f));
    ssize_t code = injects ? f->ep[end]->msg->inject(f->ep[end], &m->head, whole, address)
                           : message_submit(f, end, m, whole, address);
    if (injects || code) message_free(f, end, m);
    if (code) {
        f->full |= end == TARGET;
        errno = (int)-code;
        return -1;
    }
    if (!injects && end == ORIGIN) __atomic_add_fetch(&f->pending, 1, __ATOMIC_SEQ_CST), fabric_leave_to_server(f);
    all->told = all->taken, all->sent += n > 0;
    return (ssize_t)nbytes;
}

/* Takes bytes that have come. Called as message_came is. */
static ssize_t message_receive(fabric_t *f, connection_t *c, char *into, uint64_t room) {
    messages_t *all = &c->messages;
    message_t *m = next_message(all);
    if (m) {
        uint64_t now = m->head.nbytes - all->at < room ? m->head.nbytes - all->at : room;
        memcpy(into, m->data + all->at, now);
        room = now, all->at += now;
        if (all->at == m->head.nbytes) {
            all->at = 0, all->first = m->next, all->taken++;
            message_post(f, c->end, m);
        }
    }
    if (all->taken - all->told >= WINDOW / 2) message_send(f, c, NULL, 0);
    errno = EAGAIN;
    return m ? (ssize_t)room : -1;
}

/* ---- the carrier: a link takes the lock of ORIGIN, and the server needs none ---- */

static ssize_t carry(connection_t *c, struct iovec *v, int n) {
    fabric_t *f = far->fabric;
    if (c->end == TARGET) return message_send(f, c, v, n);
    pthread_mutex_lock(&f->lock);
    if (c->messages.sent - c->messages.freed >= WINDOW) fabric_progress(f, ORIGIN);
    ssize_t k = message_send(f, c, v, n);
    int error = errno;
    pthread_mutex_unlock(&f->lock);
    errno = error;
    return k;
}

static ssize_t take(connection_t *c, char *into, uint64_t room) {
    fabric_t *f = far->fabric;
    if (c->end == TARGET) return message_receive(f, c, into, room);
    pthread_mutex_lock(&f->lock);
    if (!next_message(&c->messages)) fabric_progress(f, ORIGIN);
    ssize_t k = message_receive(f, c, into, room);
    pthread_mutex_unlock(&f->lock);
    errno = EAGAIN;
    return k;
}

static int sleep_for_messages(connection_t *c, short events) {
    fabric_t *f = far->fabric;
    (void)events;
    struct pollfd p[2] = {{c->fd, POLLIN, 0}, {f->fd[ORIGIN], POLLIN, 0}};
    pthread_mutex_lock(&f->lock);
    int sleeps = !next_message(&c->messages) && fabric_may_sleep(f, ORIGIN);
    pthread_mutex_unlock(&f->lock);
    if (sleeps) poll(p, 2, FABRIC_SLICE_MS);
    return p[0].revents ? -1 : 0; /* nothing else comes by TCP */
}

/* Forgets what has come, at the end of a connection. */
INTERNAL void messages_forget(connection_t *c) {
    fabric_t *f = far->fabric;
    for (message_t *m; f && (m = c->messages.first);) {
        c->messages.first = m->next;
        message_post(f, c->end, m);
    }
    messages_t none = {.next_ready = c->messages.next_ready, .ready = c->messages.ready};
    c->messages = none, c->carrier = &tcp_carrier;
}

static void close_both(connection_t *c) {
    tcp_close(c);
    messages_forget(c);
}

static int keeps_writes(void) { return far->fabric && far->fabric->order & FI_ORDER_SAW; }

INTERNAL const carrier_t fabric_carrier = {carry, take, sleep_for_messages, close_both, keeps_writes, 0};

/* ---- opening ---- */

/* Makes the memory of an endpoint's messages. Returns libfabric's code. */
INTERNAL int messages_open(fabric_t *f, int end, uint64_t key) {
    size_t receives = f->info->rx_attr->size < RECEIVES ? f->info->rx_attr->size : RECEIVES, n = receives + SENDS;
    if (posix_memalign((void **)&f->messages[end], 4096, n * sizeof(message_t))) return -ENOMEM;
    message_t *all = memset(f->messages[end], 0, n * sizeof(message_t));
    if (f->info->domain_attr->mr_mode & FI_MR_LOCAL) {
        int code = fabric_register(f, (char *)all, n * sizeof(message_t), FI_SEND | FI_RECV, key, end,
                                   &f->message_memory[end]);
        if (code) return code;
    }
    for (size_t i = 0; i < n; i++)
        if (i < receives)
            message_post(f, end, &all[i]);
        else
            message_free(f, end, &all[i]);
    return 0;
}

/* What a message of one PE to an end of another one has, and what no other process can compute. */
static uint64_t pass_of(int from, int to, int end) {
    uint64_t words[] = {(uint64_t)from, (uint64_t)to, (uint64_t)end, far->hello.job};
    return sip_hash(far->token, words, sizeof words / sizeof *words);
}

/* Computes the passes of messages to a PE and from it. */
INTERNAL void messages_know(fabric_t *f, int pe) {
    remote_t *r = &f->remotes[pe];
    for (int end = 0; end < 2; end++) /* where a message leaves, or arrives */
        r->pass[end] = pass_of(far->my_pe, pe, !end), r->expected[end] = pass_of(pe, far->my_pe, end);
}
