#include "execute_gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/word.h"
#include "server.h"

enum { NOT_READY = 600 }; /* a code of the driver: the stream has work to do */

typedef struct {
    gpu_executor_t executor; /* the first field: what far->gpu points to */
    gpu_memory_t memory;
    int entered, warm, code;
    const session_t *holder; /* that whose data, from `held` to `held_end` of the heap, staging still holds, or NULL */
    const char *held, *held_end;
    uint64_t plans[PLANS][HEAD];
} far_gpu_t;

static far_gpu_t *own_gpu(void) { return (far_gpu_t *)__atomic_load_n(&far->gpu, __ATOMIC_ACQUIRE); }

static int gpu_is_within(uint64_t offset, uint64_t nbytes) {
    far_gpu_t *g = own_gpu();
    uint64_t length = g ? __atomic_load_n(&g->memory.length, __ATOMIC_ACQUIRE) : 0;
    offset &= ~FAR_GPU;
    return offset <= length && nbytes <= length - offset;
}

static char *gpu_staging(void) {
    far_gpu_t *g = own_gpu();
    g->holder = NULL;
    return g->memory.staging;
}
static char *gpu_address(uint64_t offset) { return own_gpu()->memory.base + (offset & ~FAR_GPU); }

/* Makes the GPU current in the server's thread, before its first call. Another thread may capture a graph meanwhile. */
static int gpu_enter(far_gpu_t *g) {
    int relaxed = 2, code;
    if (g->entered) return 0;
    g->entered = 1;
    code = g->memory.is_hip ? ((int (*)(int))g->memory.attach)((int)g->memory.device)
                            : ((int (*)(void *))g->memory.attach)((void *)g->memory.device);
    return handled(code ? code : ((int (*)(int *))g->memory.relax)(&relaxed));
}

/* Waits for the stream, and serves others meanwhile. */
static int gpu_finish(far_gpu_t *g, int code) {
    server_t *s = far->server;
    if (code) return handled(code);
    g->executor.busy = 1;
    while ((code = ((int (*)(void *))g->memory.query)((void *)g->memory.stream)) == NOT_READY) {
        server_progress(s);
        server_round(s);
        far_pause();
    }
    g->executor.busy = 0;
    return handled(code);
}

/* Copies by the copy engine, and returns the driver's code. */
static int gpu_copy(void *to, const void *from, uint64_t nbytes) {
    far_gpu_t *g = own_gpu();
    int code = gpu_enter(g);
    if (code || !nbytes) return code;
    if (g->memory.is_hip)
        code = ((int (*)(void *, const void *, size_t, int, void *))g->memory.copy)(to, from, nbytes, 4,
                                                                                    (void *)g->memory.stream);
    else
        code = ((int (*)(uint64_t, uint64_t, size_t, void *))g->memory.copy)((uint64_t)to, (uint64_t)from, nbytes,
                                                                             (void *)g->memory.stream);
    return gpu_finish(g, code);
}

/* Finds the next data of a reply in the staging memory, and copies them there if they are not: a full socket takes only
 * some of them, and the others are sent later from here, unless another request has used the memory meanwhile. */
static int gpu_hold(session_t *p, const char **from, uint64_t *nbytes) {
    far_gpu_t *g = own_gpu();
    int code = 0;
    if (g->holder != p || p->tail >= g->held_end) {
        uint64_t most = p->tail_left < STAGE ? p->tail_left : STAGE;
        code = gpu_copy(gpu_staging(), p->tail, most);
        g->holder = p, g->held = p->tail, g->held_end = p->tail + most;
    }
    *from = g->memory.staging + (p->tail - g->held), *nbytes = (uint64_t)(g->held_end - p->tail);
    return code;
}

static int gpu_run(int plan, const uint64_t *arguments, int n) {
    uint64_t words[MOST_WORDS + 4] = {0};
    far_gpu_t *g = own_gpu();
    int code = gpu_enter(g);
    memcpy(words, arguments, (size_t)n * sizeof *words);
    return gpu_finish(g, code ? code : start_kernel(g->plans[plan], g->memory.stream, words));
}

/* Moves items between the heap, where they are `step` bytes apart, and the staging memory, where they are packed. */
static int gpu_move(const request_t *r, int out) {
    uint64_t at = (uint64_t)gpu_address(r->offset), packed = (uint64_t)own_gpu()->memory.staging;
    int strided = r->op == PUT_STRIDED || r->op == GET_STRIDED;
    uint64_t item = strided ? r->detail : r->nbytes, step = strided ? r->value : 0;
    if (!r->nbytes) return 0;
    int width = __builtin_ctzll(at | step | item | 8);
    uint64_t in_heap[] = {at, step}, in_stage[] = {packed, item};
    uint64_t *to = out ? in_stage : in_heap, *from = out ? in_heap : in_stage;
    return gpu_run(MOVE + width, (uint64_t[]){to[0], to[1], from[0], from[1], item >> width, r->nbytes / item}, 6);
}

static int gpu_apply(const request_t *r, uint64_t *old) {
    uint64_t *result = (uint64_t *)(own_gpu()->memory.staging + STAGE);
    int code = gpu_run(
        PERFORM, (uint64_t[]){(uint64_t)gpu_address(r->offset), r->value, r->cond, (uint64_t)result, r->detail}, 5);
    *old = *result;
    return code;
}

/* Launches every kernel for every operation and type, and the copy engine both ways. A driver that prepares something
 * at its first use may wait for all work of the GPU: later, that could be a kernel that waits for the request. */
static void gpu_warm(void) {
    far_gpu_t *g = own_gpu();
    if (!g || g->warm) return;
    uint64_t word = g->memory.scratch, packed = (uint64_t)g->memory.staging, result = packed + STAGE;
    for (uint64_t detail = 0; detail < 16 * OP_COUNT && !g->code; detail++)
        if (detail % 16 < TYPES) g->code = gpu_run(PERFORM, (uint64_t[]){word, 0, 0, result, detail}, 5);
    for (int width = 0; width < 4 && !g->code; width++) {
        g->code = gpu_run(MOVE + width, (uint64_t[]){packed, 8, word, 8, UINT64_C(8) >> width, 1}, 6);
        if (!g->code) g->code = gpu_run(MOVE + width, (uint64_t[]){word, 8, packed, 8, UINT64_C(8) >> width, 1}, 6);
    }
    if (!g->code) g->code = gpu_copy((void *)packed, (void *)word, 32);
    if (!g->code) g->code = gpu_copy((void *)word, (void *)packed, 32);
    __atomic_store_n(&g->warm, 1, __ATOMIC_RELEASE);
}

/* Executes a request as execute_request does. Returns the driver's code. */
static int gpu_execute(session_t *p, const request_t *r, const char *payload) {
    uint64_t old = 0;
    int code = 0;
    char *staging = gpu_staging();
    p->executed++;
    switch (r->op) {
    case PUT:
    case PUT_STRIDED:
        memcpy(staging, payload, r->nbytes);
        code = gpu_move(r, 0);
        break;
    case GET:
    case GET_STRIDED:
        session_reply(p, 0, r->nbytes);
        if (r->nbytes > CHUNK) {
            p->tail = gpu_address(r->offset), p->tail_left = r->nbytes, p->tail_on_gpu = 1;
            return 0;
        }
        code = gpu_move(r, 1);
        memcpy(p->out + p->out_end, staging, r->nbytes);
        p->out_end += r->nbytes;
        return code;
    case UPDATE:
    case FETCH:
        code = gpu_apply(r, &old);
        if (r->op == FETCH) {
            session_reply(p, old, 0);
            return code;
        }
        break;
    }
    if (r->asks) session_reply(p, 0, 0);
    return code;
}

/* The server executes requests on this GPU memory from now on. Returns an errno; if it is 0, `code` is that of the
 * driver.
 */
INTERNAL int gpu_open(const gpu_memory_t *memory, const uint64_t *plans, int *code) {
    uint64_t one = 1;
    far_gpu_t *g = calloc(1, sizeof *g);
    if (!g) return ENOMEM;
    g->executor =
        (gpu_executor_t){gpu_is_within, gpu_address, gpu_staging, gpu_copy, gpu_hold, gpu_execute, gpu_warm, 0};
    g->memory = *memory;
    memcpy(g->plans, plans, sizeof g->plans);
    __atomic_store_n(&far->gpu, &g->executor, __ATOMIC_RELEASE);
    if (write(far->wake, &one, sizeof one) < 0) return errno;
    while (!__atomic_load_n(&g->warm, __ATOMIC_ACQUIRE)) usleep(50);
    *code = g->code;
    return 0;
}

/* The heap has grown. */
INTERNAL void gpu_extend(uint64_t length) {
    if (far && far->gpu) __atomic_store_n(&own_gpu()->memory.length, length, __ATOMIC_RELEASE);
}
