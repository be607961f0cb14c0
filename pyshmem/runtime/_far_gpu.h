/* The requests of far PEs on this PE's part of the GPU heap, which the service thread executes.
 *
 * All data pass through pinned memory, which the GPU reads and writes. Kernels move up to CHUNK bytes, so that no word
 * is torn, and perform the atomics, so that they are atomic with respect to those of kernels and near PEs; the copy
 * engine moves larger data. The work is enqueued on a stream of the service, and each request waits for it to complete:
 * what a reply acknowledges is in place. Meanwhile the service executes requests of other peers that need no GPU. */
#pragma once
#include "_launch.h"
#include "_opening.h"

enum { PERFORM, MOVE, PLANS = MOVE + 4 }; /* kernels: MOVE + i moves words of 1 << i bytes */
enum { NOT_READY = 600 };                 /* a code of the driver: the stream has work to do */

typedef struct far_gpu {
    char *base;
    uint64_t length; /* of this PE's part, with the areas; it grows */
    /* attach(device) makes the GPU current, relax admits graph captures, query says whether the stream is idle */
    uint64_t attach, device, relax, copy, query, stream;
    uint64_t scratch; /* 32 bytes of GPU memory, for warm_gpu */
    int is_hip, entered, warm, code;
    char *staging;        /* pinned memory: STAGE bytes for data, and 64 for the result of an atomic */
    const peer_t *holder; /* the peer whose data, from `held` to `held_end` of the heap, it still holds, or NULL */
    const char *held, *held_end;
    uint64_t plans[PLANS][HEAD];
} far_gpu_t;

static int is_within_gpu(uint64_t offset, uint64_t nbytes) {
    far_gpu_t *g = __atomic_load_n(&far->gpu, __ATOMIC_ACQUIRE);
    uint64_t length = g ? __atomic_load_n(&g->length, __ATOMIC_ACQUIRE) : 0;
    offset &= ~FAR_GPU;
    return offset <= length && nbytes <= length - offset;
}

static char *gpu_staging(void) {
    far->gpu->holder = NULL;
    return far->gpu->staging;
}
static char *gpu_address(uint64_t offset) { return far->gpu->base + (offset & ~FAR_GPU); }

/* Makes the GPU current in the service thread, before its first call. Another thread may capture a graph meanwhile. */
static int gpu_enter(far_gpu_t *g) {
    int relaxed = 2, code;
    if (g->entered) return 0;
    g->entered = 1;
    code = g->is_hip ? ((int (*)(int))g->attach)((int)g->device) : ((int (*)(void *))g->attach)((void *)g->device);
    return handled(code ? code : ((int (*)(int *))g->relax)(&relaxed));
}

/* Waits for the stream, and serves others meanwhile. */
static int gpu_finish(far_gpu_t *g, int code) {
    service_t *s = far->service;
    if (code) return handled(code);
    s->gpu_busy = 1;
    while ((code = ((int (*)(void *))g->query)((void *)g->stream)) == NOT_READY) {
        fabric_serve(s);
        go_round(s);
        if (far->spins <= CROWDED) sched_yield();
    }
    s->gpu_busy = 0;
    return handled(code);
}

/* Copies by the copy engine, and returns the driver's code. */
static int gpu_copy(void *to, const void *from, uint64_t nbytes) {
    far_gpu_t *g = far->gpu;
    int code = gpu_enter(g);
    if (code || !nbytes) return code;
    if (g->is_hip)
        code = ((int (*)(void *, const void *, size_t, int, void *))g->copy)(to, from, nbytes, 4, (void *)g->stream);
    else
        code = ((int (*)(uint64_t, uint64_t, size_t, void *))g->copy)((uint64_t)to, (uint64_t)from, nbytes,
                                                                      (void *)g->stream);
    return gpu_finish(g, code);
}

/* Finds the next data of a reply in the staging memory, and copies them there if they are not: a full socket takes only
 * some of them, and the others are sent later from here, unless another request has used the memory meanwhile. */
static int gpu_hold(peer_t *p, const char **from, uint64_t *nbytes) {
    far_gpu_t *g = far->gpu;
    int code = 0;
    if (g->holder != p || p->tail >= g->held_end) {
        uint64_t most = p->tail_left < STAGE ? p->tail_left : STAGE;
        code = gpu_copy(gpu_staging(), p->tail, most);
        g->holder = p, g->held = p->tail, g->held_end = p->tail + most;
    }
    *from = g->staging + (p->tail - g->held), *nbytes = (uint64_t)(g->held_end - p->tail);
    return code;
}

static int gpu_run(int plan, const uint64_t *arguments, int n) {
    uint64_t words[MOST_WORDS + 4] = {0};
    far_gpu_t *g = far->gpu;
    int code = gpu_enter(g);
    memcpy(words, arguments, (size_t)n * sizeof *words);
    return gpu_finish(g, code ? code : start_kernel(g->plans[plan], g->stream, words));
}

/* Moves items between the heap, where they are `step` bytes apart, and the staging memory, where they are packed. */
static int gpu_move(const request_t *r, int out) {
    uint64_t at = (uint64_t)gpu_address(r->offset), packed = (uint64_t)far->gpu->staging;
    int strided = r->op == PUT_STRIDED || r->op == GET_STRIDED;
    uint64_t item = strided ? r->detail : r->nbytes, step = strided ? r->value : 0;
    if (!r->nbytes) return 0;
    int width = __builtin_ctzll(at | step | item | 8);
    uint64_t in_heap[] = {at, step}, in_stage[] = {packed, item};
    uint64_t *to = out ? in_stage : in_heap, *from = out ? in_heap : in_stage;
    return gpu_run(MOVE + width, (uint64_t[]){to[0], to[1], from[0], from[1], item >> width, r->nbytes / item}, 6);
}

static int gpu_apply(const request_t *r, uint64_t *old) {
    uint64_t *result = (uint64_t *)(far->gpu->staging + STAGE);
    int code = gpu_run(
        PERFORM, (uint64_t[]){(uint64_t)gpu_address(r->offset), r->value, r->cond, (uint64_t)result, r->detail}, 5);
    *old = *result;
    return code;
}

/* Launches every kernel for every operation and type, and the copy engine both ways. A driver that prepares something
 * at its first use may wait for all work of the GPU: later, that could be a kernel that waits for the request. */
static void warm_gpu(void) {
    far_gpu_t *g = __atomic_load_n(&far->gpu, __ATOMIC_ACQUIRE);
    if (!g || g->warm) return;
    uint64_t word = g->scratch, packed = (uint64_t)g->staging, result = packed + STAGE;
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

/* Executes a request as execute does. Returns the driver's code. */
static int execute_on_gpu(peer_t *p, const request_t *r, const char *payload) {
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
        reply(p, 0, r->nbytes);
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
            reply(p, old, 0);
            return code;
        }
        break;
    }
    if (r->asks) reply(p, 0, 0);
    return code;
}

/* far_open_gpu(base, length, is_hip, attach, device, relax, copy, query, stream, staging, scratch, plans) -> the
 * driver's code: from now on the service executes requests on GPU memory. attach to query: addresses of driver
 * functions. plans: HEADs of plans of launch_prepared. */
static PyObject *py_far_open_gpu(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t number[11], one = 1;
    char *plans;
    Py_ssize_t length;
    if (!arity("far_open_gpu", n, 12) || PyBytes_AsStringAndSize(args[11], &plans, &length)) return NULL;
    for (int i = 0; i < 11; i++)
        if (!to_u64(args[i], &number[i])) return NULL;
    far_gpu_t *g = calloc(1, sizeof *g);
    if (!g) return PyErr_NoMemory();
    if (!far || !far->service || far->gpu || length != sizeof g->plans) {
        free(g);
        PyErr_SetString(PyExc_RuntimeError,
                        "no service runs, or it has GPU memory already, or plans have a wrong size");
        return NULL;
    }
    g->base = (char *)number[0], g->length = number[1], g->is_hip = (int)number[2], g->attach = number[3],
    g->device = number[4];
    g->relax = number[5], g->copy = number[6], g->query = number[7], g->stream = number[8],
    g->staging = (char *)number[9], g->scratch = number[10];
    memcpy(g->plans, plans, sizeof g->plans);
    __atomic_store_n(&far->gpu, g, __ATOMIC_RELEASE);
    if (write(far->service->wake, &one, sizeof one) < 0) return PyErr_SetFromErrno(PyExc_OSError);
    Py_BEGIN_ALLOW_THREADS
    while (!__atomic_load_n(&g->warm, __ATOMIC_ACQUIRE)) usleep(50);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(g->code);
}

/* far_extend_gpu(length): the heap has grown. */
static PyObject *py_far_extend_gpu(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t length;
    if (!arity("far_extend_gpu", n, 1) || !to_u64(args[0], &length)) return NULL;
    if (far && far->gpu) __atomic_store_n(&far->gpu->length, length, __ATOMIC_RELEASE);
    Py_RETURN_NONE;
}

static PyMethodDef far_gpu_methods[] = {METHOD(far_open_gpu), METHOD(far_extend_gpu), LAST_METHOD};
