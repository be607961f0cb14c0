/* Requests and replies by messages of a fabric. A wire carries the bytes of one connection as its TCP connection would:
 * requests to a PE's TARGET, and replies to the ORIGIN of the PE that asked. The TCP connection stays, for the greeting
 * and the goodbye, and because its end says that a PE has ended.
 *
 * Messages of one PE to another arrive in order (FI_ORDER_SAS). At most WINDOW of them are not yet taken: then the wire
 * is full, as a socket is. Each message, if need be an empty one, says how many its sender has taken. A message without
 * the pass of its sender, which both PEs compute from the job's token, is dropped. */
#pragma once
#include "_endpoints.h"

enum { WINDOW = 32 };

static wire_t *wire_of_peer(uint32_t pe); /* of _service.h; NULL: it has not greeted */
static void lose_wire(uint32_t pe);

static char *travels(message_t *m) { return (char *)&m->pass; }

static void *letters_of(fabric_t *f, int side) { return f->letters[side] ? f->letters[side]->mem_desc : NULL; }

static void post_receive(fabric_t *f, int side, message_t *m) {
    struct fid_ep *e = f->ep[side];
    m->kind = INCOMING;
    if (e->msg->recv(e, travels(m), HEAD_BYTES + MESSAGE, letters_of(f, side), FI_ADDR_UNSPEC, m))
        m->next = f->unused[side], f->unused[side] = m; /* the provider has no room for it */
}

/* Puts a message that has come into its wire. Called with the lock for ORIGIN, and by the service for TARGET. */
static void deliver(fabric_t *f, int side, message_t *m) {
    uint32_t pe = m->from;
    int known = f->messaging && pe < (uint32_t)far->n_pes && far->links[pe] &&
                m->pass == f->remotes[pe].expected[side] && m->nbytes <= MESSAGE;
    wire_t *w = !known ? NULL : side == ORIGIN ? &far->links[pe]->wire : wire_of_peer(pe);
    if (w) w->freed += (uint16_t)(m->taken - w->freed), w->on = 1;
    if (!w || !m->nbytes) {
        post_receive(f, side, m);
        return;
    }
    m->next = NULL;
    if (w->last)
        w->last->next = m;
    else
        w->first = m;
    w->last = m;
}

static void lose_message(int side, const message_t *m, int error) {
    link_t *l = far->links[m->pe];
    if (side == TARGET)
        lose_wire((uint32_t)m->pe);
    else
        __atomic_store_n(&l->error, error, __ATOMIC_RELEASE);
}

/* The message belongs to the provider until its completion, which says that it needs no progress of this PE any more.
 */
static ssize_t send_off(fabric_t *f, int side, message_t *m, uint64_t nbytes, uint64_t address) {
    struct iovec v = {travels(m), nbytes};
    void *description = letters_of(f, side);
    struct fi_msg msg = {.msg_iov = &v, .desc = &description, .iov_count = 1, .addr = address, .context = m};
    return f->ep[side]->msg->sendmsg(f->ep[side], &msg, FI_TRANSMIT_COMPLETE);
}

/* Sends one message with what fits into it, as sendmsg does. Called as deliver is. */
static ssize_t send_message(fabric_t *f, int side, wire_t *w, int pe, const struct iovec *v, int n) {
    message_t *m = f->unused[side];
    const remote_t *r = &f->remotes[pe];
    struct fid_ep *e = f->ep[side];
    uint64_t nbytes = 0, address = side == ORIGIN ? r->address : r->replies;
    if (!m) take_completions(f, side), m = f->unused[side];
    errno = EAGAIN;
    if (!m || (n && w->sent - w->freed >= WINDOW)) return -1;
    for (int i = 0; i < n; i++) {
        uint64_t now = v[i].iov_len < MESSAGE - nbytes ? v[i].iov_len : MESSAGE - nbytes;
        memcpy(m->data + nbytes, v[i].iov_base, now);
        nbytes += now;
    }
    m->kind = OUTGOING, m->pe = (uint64_t)pe, m->pass = r->pass[side], m->from = (uint32_t)far->my_pe;
    m->taken = (uint16_t)w->taken, m->nbytes = (uint16_t)nbytes;
    f->unused[side] = m->next;
    int injects = HEAD_BYTES + nbytes <= f->info->tx_attr->inject_size && (side == TARGET || is_auto(f));
    ssize_t code = injects ? e->msg->inject(e, travels(m), HEAD_BYTES + nbytes, address)
                           : send_off(f, side, m, HEAD_BYTES + nbytes, address);
    if (injects || code) m->next = f->unused[side], f->unused[side] = m;
    if (code) {
        f->full |= side == TARGET;
        errno = (int)-code;
        return -1;
    }
    if (!injects && side == ORIGIN) __atomic_add_fetch(&f->flying, 1, __ATOMIC_SEQ_CST), leave_to_service(f);
    w->told = w->taken, w->sent += n > 0;
    return (ssize_t)nbytes;
}

/* Takes bytes that have come, as recv does. Called as deliver is. */
static ssize_t take_bytes(fabric_t *f, int side, wire_t *w, int pe, char *into, uint64_t room) {
    message_t *m = w->first;
    if (m) {
        uint64_t now = m->nbytes - w->at < room ? m->nbytes - w->at : room;
        memcpy(into, m->data + w->at, now);
        room = now, w->at += now;
        if (w->at == m->nbytes) {
            w->at = 0, w->first = m->next, w->taken++;
            if (!w->first) w->last = NULL;
            post_receive(f, side, m);
        }
    }
    if (w->taken - w->told >= WINDOW / 2) send_message(f, side, w, pe, NULL, 0);
    errno = EAGAIN;
    return m ? (ssize_t)room : -1;
}

/* Forgets what has come, at the end of a connection. */
static void empty_wire(fabric_t *f, int side, wire_t *w) {
    for (message_t *m; f && (m = w->first);) {
        w->first = m->next;
        post_receive(f, side, m);
    }
    *w = (wire_t){0};
}

/* ---- of a link ---- */

static int uses_messages(void) { return far->fabric && far->fabric->messaging; }

/* Whether requests to the PE arrive after this PE's writes without a wait. */
static int follows_writes(const link_t *l) { return l->wire.on && far->fabric && far->fabric->order & FI_ORDER_SAW; }

static ssize_t wire_send(link_t *l, const struct iovec *v, int n) {
    fabric_t *f = far->fabric;
    pthread_mutex_lock(&f->lock);
    if (l->wire.sent - l->wire.freed >= WINDOW) take_completions(f, ORIGIN);
    ssize_t k = send_message(f, ORIGIN, &l->wire, l->pe, v, n);
    int error = errno;
    pthread_mutex_unlock(&f->lock);
    errno = error;
    return k;
}

static ssize_t wire_receive(link_t *l, char *into, uint64_t room) {
    fabric_t *f = far->fabric;
    pthread_mutex_lock(&f->lock);
    if (!l->wire.first) take_completions(f, ORIGIN);
    ssize_t k = take_bytes(f, ORIGIN, &l->wire, l->pe, into, room);
    pthread_mutex_unlock(&f->lock);
    errno = EAGAIN;
    return k;
}

/* Sleeps until something comes, but not for long. Returns -1 if the target has ended. */
static int wire_sleep(link_t *l) {
    fabric_t *f = far->fabric;
    struct pollfd p[2] = {{l->fd, POLLIN, 0}, {f->fd[ORIGIN], POLLIN, 0}};
    pthread_mutex_lock(&f->lock);
    int sleeps = !l->wire.first && may_sleep(f, ORIGIN);
    pthread_mutex_unlock(&f->lock);
    if (sleeps) poll(p, 2, FABRIC_SLICE_MS);
    return p[0].revents ? -1 : 0; /* nothing else comes by TCP */
}
