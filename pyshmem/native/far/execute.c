#include "execute.h"

#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../base/copy.h"
#include "../base/word.h"
#include "../trace/carried.h"

/* Whether the bytes are in this PE's part of the GPU heap or, for other offsets, of the CPU heap. */
static int request_is_within(uint64_t offset, uint64_t nbytes) {
    if (offset & FAR_GPU && offset >> FAR_SHIFT == 0) {
        gpu_executor_t *g = __atomic_load_n(&far->gpu, __ATOMIC_ACQUIRE);
        return g && g->is_within(offset, nbytes);
    }
    return offset <= far->length && nbytes <= far->length - offset;
}

/* Whether a request touches nothing but this PE's part of the heap. */
INTERNAL int request_is_valid(const request_t *r) {
    uint64_t item = r->detail, type = r->detail % 16;
    switch (r->op) {
    case PUT:
    case GET: return request_is_within(r->offset, r->nbytes) && !r->detail;
    case PUT_STRIDED:
    case GET_STRIDED:
        return item && r->nbytes && r->nbytes <= CHUNK && r->nbytes % item == 0 && r->value < FAR_GPU &&
               request_is_within(r->offset, (r->nbytes / item - 1) * r->value + item);
    case UPDATE:
    case FETCH: return type < TYPES && r->detail / 16 < OP_COUNT && request_is_within(r->offset, appliers[type].item);
    case POST:
        return !((r->offset | r->cond) & FAR_GPU) && request_is_within(r->offset, 8) && request_is_within(r->cond, 8) &&
               r->offset % 8 == 0 && r->cond % 8 == 0;
    case HOLD: return far->trial && r->value <= 100 && r->offset % 8 == 0 && request_is_within(r->offset, 8);
    default: return (r->op == FLUSH || r->op == BYE) && !r->offset;
    }
}

/* Whether a word is where no atomic can be performed. The program is wrong, but not this PE: it replies. */
static int request_is_misaligned(const request_t *r) {
    return (r->op == UPDATE || r->op == FETCH) && r->offset % appliers[r->detail % 16].item;
}

INTERNAL void session_begin_request(session_t *p, const request_t *r) {
    p->begun = carried_begin(), p->op = r->op, p->nbytes = r->nbytes;
}

/* Records the request under way, which has been executed. */
INTERNAL void session_end_request(session_t *p) {
    if (p->op != BYE && p->op != HOLD)
        carried_note(OF_SERVICE, p->conn.pe, (uint32_t)p->op, p->nbytes, p->executed, p->begun,
                     (sent_t){.pe = NONE_SENT});
    p->begun = 0;
}

static void request_post(const request_t *r) {
    uint64_t *word = (uint64_t *)(far->base + r->offset);
    /* either this thread sees that the PE sleeps, or the PE sees the word */
    __atomic_store_n(word, r->value, __ATOMIC_SEQ_CST);
    if (__atomic_load_n((uint64_t *)(far->base + r->cond), __ATOMIC_SEQ_CST))
        syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

INTERNAL void session_reply(session_t *p, uint64_t value, uint64_t nbytes) {
    reply_t r = {p->executed, value, nbytes};
    memcpy(p->out + p->out_end, &r, sizeof r);
    p->out_end += sizeof r;
}

/* Appends bytes of the heap to a reply. A word is read by one load. */
static void session_reply_bytes(session_t *p, const char *at, uint64_t nbytes) {
    uint64_t word;
    if (nbytes <= 8) {
        copy_item((char *)&word, at, nbytes);
        at = (char *)&word;
    }
    memcpy(p->out + p->out_end, at, nbytes);
    p->out_end += nbytes;
}

/* Ends this PE, without locks that another thread may hold, such as those of stdio. */
INTERNAL void end_process(void) { _exit(1); }

/* Ends this PE if the code of the GPU driver is an error. */
INTERNAL void session_check_gpu(const session_t *p, int code) {
    if (!code) return;
    dprintf(2, "PE %d: the GPU driver returned error %d for a request from PE %d\n", far->my_pe, code, p->conn.pe);
    end_process();
}

/* Executes a request whose payload is complete. A reply of at most CHUNK bytes fits into `out`. */
INTERNAL void execute_request(session_t *p, const request_t *r, const char *payload) {
    char *at = far->base + r->offset;
    uint64_t old, item = r->detail;
    /* a PE that sees what this request stores also sees what earlier requests have stored */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (request_is_misaligned(r)) {
        p->executed++;
        session_reply(p, 0, MISALIGNED);
        return;
    }
    if (r->offset & FAR_GPU) {
        session_check_gpu(p, far->gpu->execute(p, r, payload));
        return;
    }
    p->executed++;
    switch (r->op) {
    case PUT: copy_unaligned(at, payload, r->nbytes); break;
    case PUT_STRIDED:
        for (uint64_t i = 0; i * item < r->nbytes; i++) copy_unaligned(at + i * r->value, payload + i * item, item);
        break;
    case GET:
        session_reply(p, 0, r->nbytes);
        if (r->nbytes > CHUNK)
            p->tail = at, p->tail_left = r->nbytes, p->tail_on_gpu = 0;
        else
            session_reply_bytes(p, at, r->nbytes);
        return;
    case GET_STRIDED:
        session_reply(p, 0, r->nbytes);
        for (uint64_t i = 0; i * item < r->nbytes; i++, p->out_end += item)
            memcpy(p->out + p->out_end, at + i * r->value, item);
        return;
    case UPDATE:
    case FETCH:
        old = appliers[item % 16].apply((uint32_t)item / 16, at, r->value, r->cond);
        if (r->op == FETCH) {
            session_reply(p, old, 0);
            return;
        }
        break;
    case POST: request_post(r); break;
    case HOLD:
        usleep((useconds_t)r->value * 1000);
        session_reply(p, *(volatile uint64_t *)at, 0);
        return;
    case BYE: p->left = 1; break;
    }
    if (r->asks) session_reply(p, 0, 0);
}

/* Stores a part of a long payload. */
INTERNAL void session_store_part(session_t *p, const char *data, uint64_t nbytes) {
    char *to = p->on_gpu ? far->gpu->staging() : p->into;
    if (data != to) memcpy(to, data, nbytes);
    if (p->on_gpu) session_check_gpu(p, far->gpu->copy(p->into, to, nbytes));
    p->into += nbytes, p->rest -= nbytes;
    if (p->rest) return;
    request_t end = {.op = FLUSH, .asks = (uint16_t)p->asks};
    execute_request(p, &end, NULL);
    session_end_request(p);
}
