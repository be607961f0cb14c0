#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../base/counts.h"
#include "greeting.h"

enum { BUDGET = 1 << 20 };

/* Whether the GPU is busy with a request of another peer. */
static int session_must_wait(session_t *p) {
    if (far->gpu->busy) p->waits = far->sessions_wait = 1;
    return far->gpu->busy;
}

/* Sends what waits. Returns 1 if all has been sent, 0 if the connection is full, -1 if it has ended. */
static int session_flush(session_t *p) {
    while (p->out_at < p->out_end || p->tail_left) {
        const char *tail = p->tail;
        uint64_t most = p->tail_left;
        if (p->tail_on_gpu && most) {
            if (session_must_wait(p)) return 0;
            session_check_gpu(p, far->gpu->hold(p, &tail, &most));
        }
        struct iovec v[2] = {{p->out + p->out_at, p->out_end - p->out_at}, {(void *)tail, most}};
        ssize_t k = p->conn.carrier->send(&p->conn, v, 2);
        if (k < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
        uint64_t head = (uint64_t)k < v[0].iov_len ? (uint64_t)k : v[0].iov_len;
        p->out_at += head, p->tail += (uint64_t)k - head, p->tail_left -= (uint64_t)k - head;
    }
    p->out_at = p->out_end = 0;
    if (p->begun && !p->rest) session_end_request(p); /* a get, whose data have been sent */
    return 1;
}

static void session_drop(session_t *p, uint64_t used) {
    p->have -= used;
    memmove(p->in, p->in + used, p->have);
}

/* Answers the greeting, see greeting.h. Returns -1 for one that is wrong. */
static int session_greet(session_t *p) {
    uint64_t code;
    if (!p->challenged) {
        if (p->have < sizeof p->hello) return 0;
        hello_t *h = memcpy(&p->hello, p->in, sizeof p->hello);
        if (!greeting_is_of_job(h, &far->hello) || fresh_nonce(p->nonce)) return -1;
        challenge_t c = {{p->nonce[0], p->nonce[1]}, greeting_code(far->token, BY_SERVICE, h, p->nonce, far->my_pe)};
        memcpy(p->out, &c, sizeof c);
        p->out_end = sizeof c, p->challenged = 1;
        session_drop(p, sizeof p->hello);
    }
    if (p->have < sizeof code) return 0;
    memcpy(&code, p->in, sizeof code);
    if (code != greeting_code(far->token, BY_CALLER, &p->hello, p->nonce, far->my_pe)) return -1;
    p->conn.pe = p->hello.pe;
    p->executed = 1;
    far->incoming[p->conn.pe] = &p->conn;
    session_reply(p, (uint64_t)far->my_pe, 0);
    session_drop(p, sizeof code);
    return 0;
}

/* Ends this PE: what has come is no request. */
INTERNAL void session_refuse(const session_t *p) {
    dprintf(2, "PE %d: invalid request from PE %d\n", far->my_pe, p->conn.pe);
    end_process();
}

/* Executes the requests in the buffer. Returns -1 if the connection has ended. */
static int session_execute(session_t *p) {
    uint64_t at = 0;
    request_t r;
    while (!p->rest && p->have - at >= sizeof r) {
        memcpy(&r, p->in + at, sizeof r);
        if (!request_is_valid(&r)) session_refuse(p);
        if (r.offset & FAR_GPU && session_must_wait(p)) break;
        if (p->tail_left || OUT_BYTES - p->out_end < sizeof(reply_t) + CHUNK) {
            int sent = session_flush(p);
            if (sent < 0) return -1;
            if (!sent) break;
        }
        const char *payload = p->in + at + sizeof r;
        uint64_t here = p->have - at - sizeof r, data = request_data(&r);
        if (data > CHUNK) {
            uint64_t now = here < data ? here : data;
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
            p->on_gpu = (r.offset & FAR_GPU) != 0;
            p->into = p->on_gpu ? far->gpu->address(r.offset) : far->base + r.offset;
            p->rest = data, p->asks = r.asks;
            session_begin_request(p, &r);
            session_store_part(p, payload, now);
            at += sizeof r + now;
        } else {
            if (here < data) break;
            session_begin_request(p, &r);
            execute_request(p, &r, payload);
            if (!p->tail_left) session_end_request(p);
            at += sizeof r + data;
        }
        count_request(r.nbytes);
    }
    session_drop(p, at);
    return 0;
}

/* Serves a connection that can be read or written. Returns -1 if it has ended. */
INTERNAL int session_serve(session_t *p) {
    uint64_t budget = BUDGET; /* so that no PE keeps the others waiting */
    int empty = 0;            /* there was less than room for it: what comes later is reported */
    for (;;) {
        int sent = session_flush(p);
        if (sent <= 0) {
            p->writing = 1;
            return sent;
        }
        p->writing = 0;
        if (p->have && p->conn.pe >= 0 && session_execute(p)) return -1;
        if (p->tail_left || p->out_end) continue;
        if (!budget && !p->conn.carrier->reports)
            p->waits = far->sessions_wait = 1; /* nothing tells of what has come already */
        if (!budget || empty || p->waits || (p->rest && p->on_gpu && session_must_wait(p))) return 1;
        uint64_t room = p->rest ? p->rest : IN_BYTES - p->have;
        char *into = !p->rest ? p->in + p->have : p->on_gpu ? far->gpu->staging() : p->into;
        if (p->rest && p->on_gpu && room > STAGE) room = STAGE;
        if (room > budget) room = budget;
        ssize_t k = p->conn.carrier->receive(&p->conn, into, room);
        if (k == 0) return -1;
        if (k < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
        budget -= (uint64_t)k, empty = p->conn.carrier->reports && (uint64_t)k < room;
        if (p->rest) {
            session_store_part(p, into, (uint64_t)k);
        } else {
            p->have += (uint64_t)k;
            if (p->conn.pe < 0 && session_greet(p) < 0) return -1;
        }
    }
}
