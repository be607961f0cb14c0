/* A wire carries the bytes of one link in order: requests one way, replies the other.
 *
 * It is a TCP connection, or, when MPI carries everything, packets: messages of MPI of up to PACKET bytes. Its
 * functions never block, and return what those of sockets return. One of every PACKETS packets is sent synchronously:
 * its send completes when the receiver has taken it. So fewer than 2 * PACKETS packets are sent and not yet taken,
 * which bounds what MPI has to buffer, as a socket's buffer is bounded. */
#pragma once
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "_messages.h"

enum { PACKET = (1 << 14) - 8, PACKETS = 8 };
enum { REQUESTS = 16, REPLIES = 17 }; /* tags; messages of large data have their operation as tag */

typedef struct {
    int32_t pe;
    uint32_t nbytes;
    char data[PACKET];
} packet_t; /* pe: the sender */

typedef struct {
    int pe, tag, tag_in;  /* the other PE; the tags of sent and received packets, tag_in 0 if the service receives */
    uint64_t sent, taken; /* packets sent; bytes taken of the packet that has come */
    packet_t *in;
    message_t going[PACKETS];
    packet_t out[PACKETS];
} packets_t;

typedef struct {
    int fd;
    packets_t *packets;
} wire_t; /* fd: of the connection, or -1 */

static int wire_is_open(const wire_t *w) { return w->fd >= 0 || w->packets; }

/* Whether a packet has come of which bytes are not yet taken. */
static int wire_holds(const wire_t *w) { return w->packets->taken < w->packets->in->nbytes; }

static ssize_t would_block(void) {
    errno = EAGAIN;
    return -1;
}
static ssize_t has_failed(void) {
    errno = EIO;
    return -1;
}

static int open_packets(wire_t *w, int pe, int tag, int tag_in) {
    packets_t *k = malloc(sizeof *k); /* most of it stays untouched while few packets are under way */
    packet_t *in = malloc(sizeof *in);
    if (!k || !in) {
        free(k), free(in);
        return ENOMEM;
    }
    memset(k, 0, offsetof(packets_t, out));
    k->pe = pe, k->tag = tag, k->tag_in = tag_in, k->in = in, in->nbytes = 0;
    w->packets = k;
    return 0;
}

static ssize_t send_packet(packets_t *k, const struct iovec *v, int n) {
    uint64_t i = k->sent % PACKETS;
    int ended = k->going[i].nbytes ? message_ended(&k->going[i]) : 1;
    if (ended <= 0) return ended ? has_failed() : would_block();
    packet_t *p = &k->out[i];
    p->pe = mpi.me, p->nbytes = 0;
    for (; n; v++, n--) {
        uint64_t room = PACKET - p->nbytes, part = v->iov_len < room ? v->iov_len : room;
        memcpy(p->data + p->nbytes, v->iov_base, part);
        p->nbytes += (uint32_t)part;
    }
    int how = ++k->sent % PACKETS ? SEND : SEND_SYNCHRONOUS;
    if (message_begin(&k->going[i], how, p, offsetof(packet_t, data) + p->nbytes, k->pe, k->tag)) return has_failed();
    return p->nbytes;
}

static ssize_t wire_send(wire_t *w, struct iovec *v, int n) {
    if (w->packets) return send_packet(w->packets, v, n);
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
    return sendmsg(w->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t wire_take(wire_t *w, char *to, uint64_t most) {
    packets_t *k = w->packets;
    if (!k) return recv(w->fd, to, most, MSG_DONTWAIT);
    if (!wire_holds(w)) {
        int here = k->tag_in ? message_take(k->in, sizeof *k->in, k->pe, k->tag_in) : 0;
        if (here <= 0) return here ? has_failed() : would_block();
        k->taken = 0;
    }
    uint64_t here = k->in->nbytes - k->taken, now = here < most ? here : most;
    memcpy(to, k->in->data + k->taken, now);
    k->taken += now;
    return (ssize_t)now;
}

/* Everything sent has a receiver that takes it: the PEs have met after the last send. */
static void wire_close(wire_t *w) {
    packets_t *k = w->packets;
    if (w->fd >= 0) shutdown(w->fd, SHUT_RDWR), close(w->fd); /* a forked process may hold it too */
    for (int i = 0; k && i < PACKETS; i++)
        while (k->going[i].nbytes && !message_ended(&k->going[i])) sched_yield();
    if (k) free(k->in);
    free(k);
    *w = (wire_t){.fd = -1};
}
