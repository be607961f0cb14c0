/* What comes by one wire of the service: the greeting and requests, which are executed (_requests.h), and replies.
 * While a reply does not fit into the wire, its requests wait. While one waits for the GPU, others that need no GPU are
 * executed. */
#pragma once
#include "_requests.h"

/* Whether the GPU is busy with a request of another peer. */
static int must_wait(peer_t *p) {
    if (far->service->gpu_busy) p->waits = far->service->waits = 1;
    return far->service->gpu_busy;
}

/* Sends what waits. Returns 1 if all has been sent, 0 if the wire is full, -1 if it has ended. */
static int flush_out(peer_t *p) {
    while (p->out_at < p->out_end || p->tail_left) {
        const char *tail = p->tail;
        uint64_t most = p->tail_left;
        if (p->tail_on_gpu && most) {
            if (must_wait(p)) return 0;
            gpu_result(p, gpu_hold(p, &tail, &most));
        }
        struct iovec v[2] = {{p->out + p->out_at, p->out_end - p->out_at}, {(void *)tail, most}};
        ssize_t k = p->wire.on ? send_message(far->fabric, TARGET, &p->wire, p->pe, v, 2) : send_parts(p->fd, v, 2);
        if (k < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
        uint64_t head = (uint64_t)k < v[0].iov_len ? (uint64_t)k : v[0].iov_len;
        p->out_at += head, p->tail += (uint64_t)k - head, p->tail_left -= (uint64_t)k - head;
    }
    p->out_at = p->out_end = 0;
    if (p->begun && !p->rest) end_served(p); /* a get, whose data have been sent */
    return 1;
}

static void drop(peer_t *p, uint64_t used) {
    p->have -= used;
    memmove(p->in, p->in + used, p->have);
}

/* Answers the greeting, see _greeting.h. Returns -1 for one that is wrong. */
static int greet(service_t *s, peer_t *p) {
    uint64_t code;
    if (!p->challenged) {
        if (p->have < sizeof p->hello) return 0;
        hello_t *h = memcpy(&p->hello, p->in, sizeof p->hello);
        if (memcmp(h->magic, MAGIC, sizeof MAGIC) || h->job != far->hello.job || h->n_pes != far->n_pes || h->pe < 0 ||
            h->pe >= far->n_pes || fresh_nonce(p->nonce))
            return -1;
        challenge_t c = {{p->nonce[0], p->nonce[1]}, code_of(far->token, BY_SERVICE, h, p->nonce, far->my_pe)};
        memcpy(p->out, &c, sizeof c);
        p->out_end = sizeof c, p->challenged = 1;
        drop(p, sizeof p->hello);
    }
    if (p->have < sizeof code) return 0;
    memcpy(&code, p->in, sizeof code);
    if (code != code_of(far->token, BY_CALLER, &p->hello, p->nonce, far->my_pe)) return -1;
    p->pe = p->hello.pe;
    p->executed = 1;
    s->by_pe[p->pe] = p;
    s->strangers--;
    reply(p, (uint64_t)far->my_pe, 0);
    drop(p, sizeof code);
    return 0;
}

/* Ends this PE: what has come is no request. */
static void refuse_request(const peer_t *p) {
    dprintf(2, "PE %d: invalid request from PE %d\n", far->my_pe, p->pe);
    end_pe();
}

/* Executes the requests in the buffer. Returns -1 if the wire has ended. */
static int execute_all(peer_t *p) {
    uint64_t at = 0;
    request_t r;
    while (!p->rest && p->have - at >= sizeof r) {
        memcpy(&r, p->in + at, sizeof r);
        if (!is_valid(&r)) refuse_request(p);
        if (r.offset & FAR_GPU && must_wait(p)) break;
        if (p->tail_left || OUT_BYTES - p->out_end < sizeof(reply_t) + CHUNK) {
            int sent = flush_out(p);
            if (sent < 0) return -1;
            if (!sent) break;
        }
        const char *payload = p->in + at + sizeof r;
        uint64_t here = p->have - at - sizeof r, data = r.op == PUT || r.op == PUT_STRIDED ? r.nbytes : 0;
        if (data > CHUNK) {
            uint64_t now = here < data ? here : data;
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
            p->on_gpu = (r.offset & FAR_GPU) != 0;
            p->into = p->on_gpu ? gpu_address(r.offset) : far->base + r.offset;
            p->rest = data, p->asks = r.asks;
            begin_served(p, &r);
            store_part(p, payload, now);
            at += sizeof r + now;
        } else {
            if (here < data) break;
            begin_served(p, &r);
            execute(p, &r, payload);
            if (!p->tail_left) end_served(p);
            at += sizeof r + data;
        }
        count_request(r.nbytes);
    }
    drop(p, at);
    return 0;
}

/* Serves a wire that can be read or written. Returns -1 if it has ended. */
static int serve(service_t *s, peer_t *p) {
    uint64_t budget = BUDGET; /* so that no PE keeps the others waiting */
    int empty = 0;            /* the socket had less than there was room for: what comes later is reported */
    for (;;) {
        int sent = flush_out(p);
        if (sent <= 0) {
            p->writing = 1;
            return sent;
        }
        p->writing = 0;
        if (p->have && p->pe >= 0 && execute_all(p)) return -1;
        if (p->tail_left || p->out_end) continue;
        if (!budget && p->wire.on) p->waits = s->waits = 1; /* nothing tells of messages that have come already */
        if (!budget || empty || p->waits || (p->rest && p->on_gpu && must_wait(p))) return 1;
        uint64_t room = p->rest ? p->rest : IN_BYTES - p->have;
        char *into = !p->rest ? p->in + p->have : p->on_gpu ? gpu_staging() : p->into;
        if (p->rest && p->on_gpu && room > STAGE) room = STAGE;
        if (room > budget) room = budget;
        ssize_t k = p->wire.on ? take_bytes(far->fabric, TARGET, &p->wire, p->pe, into, room)
                               : recv(p->fd, into, room, MSG_DONTWAIT);
        if (k == 0) return -1;
        if (k < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
        budget -= (uint64_t)k, empty = !p->wire.on && (uint64_t)k < room;
        if (p->rest) {
            store_part(p, into, (uint64_t)k);
        } else {
            p->have += (uint64_t)k;
            if (p->pe < 0 && greet(s, p) < 0) return -1;
        }
    }
}
