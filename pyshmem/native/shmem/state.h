/* What the library knows of the job, and where a symmetric address is on another PE.
 *
 * pyshmem.capi.bridge writes the state: when the job begins, when it ends, and when a team begins. A symmetric address
 * is in the CPU heap, in the static data of the program (statics.h), which are a part of the heap at another address,
 * or in the GPU heap. `away` has the distance to the memory of each PE; what results for a far PE is a place of
 * far/link.h. */
#pragma once
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../capi/include/shmem.h"
#include "../base/combine.h"
#include "../base/copy.h"
#include "../base/spin.h"
#include "../base/word.h"
#include "../team/interface.h"

enum { MOST_TEAMS = 1000, MOST_CONTEXTS = 1 << 16, MOST_STATICS = 16, ARGUMENTS = 8 };

/* handle: that of the program; 0 for none. native: for the calls of team/interface.h. */
typedef struct {
    uint64_t handle;
    void *native;
    int64_t me, start, stride, size, contexts;
} team_t;

/* away: the distance to the same bytes in the heap */
typedef struct {
    uint64_t start, bytes, away;
} static_t;

/* activity: where the page of base/counts.h is. checked: the bytes of the heap for which one comparison is enough; 0 in
 * debug mode. check: PYSHMEM_CHECK. gpu_base, gpu_bytes: the GPU heap of this PE; gpu_first, gpu_span: all GPU heaps
 * that are mapped; 0 without one. process: the PE, and not a child that it has forked. notice: the seconds after which
 * a wait is told of, 0 for never. watch: what waits call, see spin_t. */
typedef struct {
    const native_calls_t *calls;
    activity_t **activity;
    uint64_t base, bytes, checked;
    const int64_t *away;
    uint64_t gpu_base, gpu_bytes, gpu_first, gpu_span;
    int64_t my_pe, n_pes, spans, check, debug, embedded, level, process;
    double timeout, notice;
    int (*watch)(spin_t *);
    uint64_t spins, n_statics;
    static_t statics[MOST_STATICS];
    team_t teams[MOST_TEAMS];
} state_t;
static int watch(spin_t *s);
static state_t state = {.activity = &activity, .watch = watch};

/* Calls a function of pyshmem.capi.bridge by its name, with up to ARGUMENTS integers, which it may replace. */
static int64_t rare(const char *name, int64_t *arguments);
#define RARE(NAME, ...) rare(NAME, (int64_t[ARGUMENTS]){__VA_ARGS__})
/* Finds the job that Python has begun in this process. Returns whether there is one. */
static int attach(void);

#define LIKELY(CONDITION) __builtin_expect(!!(CONDITION), 1)
#define RARELY __attribute__((noinline, cold))

/* Whether a PE has forked this process: it has copies of the PE's locks and buffers, and is no part of the job. */
static int is_forked(void) { return state.calls && getpid() != state.process; }

/* Ends the job with an error of Python's form; of a forked process only itself. kind: the name of the exception that it
 * is in Python. */
static RARELY _Noreturn void refuse(const char *kind, const char *routine, const char *argument, const char *wants,
                                    const char *format, ...) {
    char got[512];
    va_list values;
    va_start(values, format);
    vsnprintf(got, sizeof got, format, values);
    va_end(values);
    if (is_forked()) {
        dprintf(2, "%s: PE %ld: %s: got %s; wants %s\n", routine, (long)state.my_pe, argument, got, wants);
        _exit(1);
    }
    fflush(NULL);
    if (state.calls) RARE("refuse", (int64_t)kind, (int64_t)routine, (int64_t)argument, (int64_t)got, (int64_t)wants);
    fprintf(stderr, "%s: PE ?: %s: got %s; wants %s\n", routine, argument, got, wants);
    _exit(1);
}

static RARELY void require_job(const char *routine) {
    if (!state.calls && !attach())
        refuse("NotInitializedError", routine, "state", "shmem_init() first",
               "no shmem_init, or shmem_finalize before");
}

/* ---- sizes and alignment ---- */

static RARELY _Noreturn void refuse_size(const char *routine, const char *argument, uint64_t count, uint64_t size) {
    require_job(routine);
    refuse("OutOfRangeError", routine, argument, "no more than a heap can have: less than 2**63 bytes",
           "%lu elements of %lu bytes", count, size);
}

/* The bytes of `count` elements, which every heap address and int64_t can count. */
static inline uint64_t bytes_of(const char *routine, const char *argument, uint64_t count, uint64_t size) {
    int64_t nbytes;
    if (!LIKELY(!__builtin_mul_overflow(count, size, &nbytes))) refuse_size(routine, argument, count, size);
    return (uint64_t)nbytes;
}

/* The bytes from the first of `count` items to the end of the last, each `step` elements of `size` bytes after the one
 * before. */
static uint64_t extent(const char *routine, const char *argument, uint64_t count, uint64_t step, uint64_t size,
                       uint64_t item) {
    uint64_t elements;
    int64_t nbytes;
    if (!count || !item) return 0;
    if (__builtin_mul_overflow(count - 1, step, &elements) || __builtin_mul_overflow(elements, size, &nbytes) ||
        __builtin_add_overflow(nbytes, item, &nbytes))
        refuse("OutOfRangeError", routine, argument, "no more than a heap can have: less than 2**63 bytes",
               "a stride of %ld elements, for %lu of %lu bytes", (long)step, count, item);
    return (uint64_t)nbytes;
}

static RARELY _Noreturn void refuse_alignment(const char *routine, const char *argument, const void *where,
                                              uint64_t size) {
    require_job(routine);
    char wants[64];
    snprintf(wants, sizeof wants, "a multiple of %lu, the size of the word", size);
    refuse("ArgumentError", routine, argument, wants, "the address %p", where);
}

/* A word that PEs access as one must be aligned to its size; one of more than 8 bytes to 8. */
static inline void *aligned(const char *routine, const char *argument, const void *where, uint64_t size) {
    uint64_t least = size < 8 ? size : 8;
    if (!LIKELY((uint64_t)where % least == 0)) refuse_alignment(routine, argument, where, least);
    return (void *)where;
}

static RARELY _Noreturn void refuse_null(const char *routine, const char *argument, const char *wants) {
    require_job(routine);
    refuse("ArgumentError", routine, argument, wants, "NULL");
}

/* ---- addresses ---- */

/* The address in the heap of static data, or 0. */
static uint64_t in_statics(uint64_t address, uint64_t nbytes) {
    for (uint64_t i = 0; i < state.n_statics; i++) {
        uint64_t offset = address - state.statics[i].start;
        if (offset < state.statics[i].bytes && nbytes <= state.statics[i].bytes - offset)
            return address + state.statics[i].away;
    }
    return 0;
}

/* Whether an address is in GPU memory: in the heap of this PE, or of another one whose memory is mapped. */
static inline int on_gpu(const void *where) {
    return __builtin_expect((uint64_t)where - state.gpu_first < state.gpu_span, 0);
}
static const uint64_t GPU_PLACE = UINT64_C(1) << 62; /* in what in_heap returns: so no place in GPU memory is near */

static int is_within(uint64_t address, uint64_t nbytes, uint64_t base, uint64_t bytes) {
    return address - base < bytes && nbytes <= bytes - (address - base);
}

/* The address in its heap of symmetric memory, with GPU_PLACE for the GPU heap; or 0. */
static uint64_t in_heap(uint64_t address, uint64_t nbytes) {
    int gpu = on_gpu((void *)address);
    uint64_t found = gpu ? (is_within(address, nbytes, state.gpu_base, state.gpu_bytes) ? address : 0)
                     : is_within(address, nbytes, state.base, state.bytes) ? address
                                                                           : in_statics(address, nbytes);
    if (found && state.debug && !RARE("is_live", (int64_t)found, (int64_t)nbytes)) return 0;
    return found && gpu ? found | GPU_PLACE : found;
}

static RARELY uint64_t symmetric_slowly(const char *routine, const char *argument, const void *where, uint64_t nbytes) {
    require_job(routine);
    uint64_t found = in_heap((uint64_t)where, nbytes);
    if (found) return found;
    if (!nbytes) return state.base;
    if (!state.check) return (uint64_t)where;
    refuse("NotSymmetricError", routine, argument,
           state.n_statics
               ? "memory of shmem_malloc, or static data of the program or of PYSHMEM_SYMMETRIC_LIBS"
               : "memory of shmem_malloc; static data are symmetric where the program calls shmem_init first",
           "%lu bytes at %p, which are not symmetric", nbytes, where);
}

/* The address in this PE's heap of `nbytes` at a symmetric address, as in_heap returns it. */
static inline uint64_t symmetric(const char *routine, const char *argument, const void *where, uint64_t nbytes) {
    uint64_t offset = (uint64_t)where - state.base;
    if (LIKELY(offset < state.checked && nbytes <= state.checked - offset)) return (uint64_t)where;
    return symmetric_slowly(routine, argument, where, nbytes);
}

/* Checks an argument that the CPU accesses. */
static void on_cpu(const char *routine, const char *argument, const void *where, uint64_t nbytes) {
    if (symmetric(routine, argument, where, nbytes) & GPU_PLACE)
        refuse("ArgumentError", routine, argument, "memory of the CPU heap", "%lu bytes of the GPU heap", nbytes);
}

/* ---- teams, contexts and PEs ---- */

/* A context is a place in a table, so that one that has ended, or never was, is known without an access to it. next: of
 * the places that are free. */
struct pyshmem_ctx {
    uint64_t team; /* its handle; 0 after destroy */
    int64_t start, stride, size;
    struct pyshmem_ctx *next;
};
static struct pyshmem_ctx contexts[MOST_CONTEXTS];

static int is_context(shmem_ctx_t ctx) {
    uint64_t offset = (uint64_t)ctx - (uint64_t)contexts;
    return offset < sizeof contexts && offset % sizeof *ctx == 0 && ctx->team;
}

static RARELY _Noreturn void refuse_context(const char *routine, shmem_ctx_t ctx) {
    refuse("ArgumentError", routine, "ctx", "a context that is not destroyed, nor its team", "%s",
           ctx ? "a context that has ended" : "SHMEM_CTX_INVALID");
}

static RARELY team_t *find_team(const char *routine, shmem_team_t team) {
    require_job(routine);
    uint64_t handle = (uint64_t)team, index = (handle & 0xffff) - 1;
    if (index < MOST_TEAMS && state.teams[index].handle == handle) return &state.teams[index];
    refuse("ArgumentError", routine, "team", "a team this PE is in",
           handle ? "a team that has ended" : "SHMEM_TEAM_INVALID");
}

static inline team_t *team_of(const char *routine, shmem_team_t team) {
    uint64_t handle = (uint64_t)team, index = (handle & 0xffff) - 1;
    return LIKELY(index < MOST_TEAMS && state.teams[index].handle == handle) ? &state.teams[index]
                                                                             : find_team(routine, team);
}

/* The team, or NULL for SHMEM_TEAM_INVALID. */
static team_t *team_or_none(const char *routine, shmem_team_t team) {
    require_job(routine);
    return team == SHMEM_TEAM_INVALID ? NULL : team_of(routine, team);
}

static RARELY int64_t refuse_pe(const char *routine, int64_t size, int pe) {
    require_job(routine);
    if (!state.check) return pe;
    char wants[64];
    snprintf(wants, sizeof wants, "a PE from 0 to %ld", (long)size - 1);
    refuse("OutOfRangeError", routine, "pe", wants, "%d", pe);
}

static RARELY int64_t pe_of_context(const char *routine, shmem_ctx_t ctx, int pe) {
    require_job(routine);
    if (ctx == SHMEM_CTX_DEFAULT) return pe >= 0 && pe < state.n_pes ? pe : refuse_pe(routine, state.n_pes, pe);
    if (!is_context(ctx) || state.teams[(ctx->team & 0xffff) - 1].handle != ctx->team) refuse_context(routine, ctx);
    if (pe < 0 || pe >= ctx->size) return refuse_pe(routine, ctx->size, pe);
    return ctx->start + pe * ctx->stride;
}

static inline int64_t world_pe(const char *routine, shmem_ctx_t ctx, int pe) {
    if (LIKELY(ctx == SHMEM_CTX_DEFAULT && (uint64_t)pe < (uint64_t)state.n_pes)) return pe;
    return pe_of_context(routine, ctx, pe);
}

/* The place on a PE of a symmetric address. */
static inline uint64_t reach(const char *routine, shmem_ctx_t ctx, const char *argument, const void *where,
                             uint64_t nbytes, int pe) {
    uint64_t here = symmetric(routine, argument, where, nbytes);
    return here + (uint64_t)state.away[world_pe(routine, ctx, pe)];
}
static inline int is_near(uint64_t place) { return LIKELY(place >> PLACE_SHIFT == 0); }

/* reach, for a call that moves so many bytes there. */
static inline uint64_t reach_counted(const char *routine, shmem_ctx_t ctx, const char *argument, const void *where,
                                     uint64_t nbytes, int pe) {
    uint64_t place = reach(routine, ctx, argument, where, nbytes, pe);
    count_call(!is_near(place), nbytes);
    return place;
}

/* ---- what a call of team/interface.h returned ---- */

static RARELY void fail(const char *routine, int outcome, team_t *team) {
    RARE("failed", (int64_t)routine, outcome, team ? team - state.teams : -1);
}
static inline void complete(const char *routine, int outcome, team_t *team) {
    if (!LIKELY(outcome == CALL_DONE)) fail(routine, outcome, team);
}
