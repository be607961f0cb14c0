/* What the library knows of the job, and where a symmetric address is on another PE.
 *
 * pyshmem.capi.bridge writes the state: when the job begins, when it ends, and when a team begins. A symmetric address
 * is in the CPU heap, in the static data of the program (statics.h), which are a part of the heap at another address,
 * or in the GPU heap. `away` has the distance to the memory of each PE; what results for a far PE is a place of
 * far/protocol.h. */
#pragma once
#define PYSHMEM_NO_GENERICS
#include <stdint.h>

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
GLOBAL state_t state;

/* Calls a function of pyshmem.capi.bridge by its name, with up to ARGUMENTS integers, which it may replace. */
INTERNAL int64_t rare(const char *name, int64_t *arguments);
#define RARE(NAME, ...) rare(NAME, (int64_t[ARGUMENTS]){__VA_ARGS__})
/* Finds the job that Python has begun in this process. Returns whether there is one. */
INTERNAL int attach(void);

#define LIKELY(CONDITION) __builtin_expect(!!(CONDITION), 1)
#define RARELY __attribute__((noinline, cold))

INTERNAL int is_forked(void);
INTERNAL RARELY _Noreturn void refuse(const char *kind, const char *routine, const char *argument, const char *wants,
                                      const char *format, ...);
INTERNAL RARELY void require_job(const char *routine);

/* ---- sizes and alignment ---- */

INTERNAL RARELY _Noreturn void refuse_size(const char *routine, const char *argument, uint64_t count, uint64_t size);

/* The bytes of `count` elements, which every heap address and int64_t can count. */
static inline uint64_t bytes_of(const char *routine, const char *argument, uint64_t count, uint64_t size) {
    int64_t nbytes;
    if (!LIKELY(!__builtin_mul_overflow(count, size, &nbytes))) refuse_size(routine, argument, count, size);
    return (uint64_t)nbytes;
}

INTERNAL uint64_t extent(const char *routine, const char *argument, uint64_t count, uint64_t step, uint64_t size,
                         uint64_t item);
INTERNAL RARELY _Noreturn void refuse_alignment(const char *routine, const char *argument, const void *where,
                                                uint64_t size);

/* A word that PEs access as one must be aligned to its size; one of more than 8 bytes to 8. */
static inline void *aligned(const char *routine, const char *argument, const void *where, uint64_t size) {
    uint64_t least = size < 8 ? size : 8;
    if (!LIKELY((uint64_t)where % least == 0)) refuse_alignment(routine, argument, where, least);
    return (void *)where;
}

INTERNAL RARELY _Noreturn void refuse_null(const char *routine, const char *argument, const char *wants);

/* ---- addresses ---- */

/* Whether an address is in GPU memory: in the heap of this PE, or of another one whose memory is mapped. */
static inline int on_gpu(const void *where) {
    return __builtin_expect((uint64_t)where - state.gpu_first < state.gpu_span, 0);
}
static const uint64_t GPU_PLACE = UINT64_C(1) << 62; /* in what in_heap returns: so no place in GPU memory is near */

INTERNAL uint64_t in_heap(uint64_t address, uint64_t nbytes);
INTERNAL RARELY uint64_t symmetric_slowly(const char *routine, const char *argument, const void *where,
                                          uint64_t nbytes);

/* The address in this PE's heap of `nbytes` at a symmetric address, as in_heap returns it. */
static inline uint64_t symmetric(const char *routine, const char *argument, const void *where, uint64_t nbytes) {
    uint64_t offset = (uint64_t)where - state.base;
    if (LIKELY(offset < state.checked && nbytes <= state.checked - offset)) return (uint64_t)where;
    return symmetric_slowly(routine, argument, where, nbytes);
}

INTERNAL void on_cpu(const char *routine, const char *argument, const void *where, uint64_t nbytes);

/* ---- teams, contexts and PEs ---- */

/* A context is a place in a table, so that one that has ended, or never was, is known without an access to it. next: of
 * the places that are free. */
struct pyshmem_ctx {
    uint64_t team; /* its handle; 0 after destroy */
    int64_t start, stride, size;
    struct pyshmem_ctx *next;
};
GLOBAL struct pyshmem_ctx contexts[MOST_CONTEXTS];
INTERNAL int is_context(shmem_ctx_t ctx);
INTERNAL RARELY _Noreturn void refuse_context(const char *routine, shmem_ctx_t ctx);
INTERNAL RARELY team_t *find_team(const char *routine, shmem_team_t team);

static inline team_t *team_of(const char *routine, shmem_team_t team) {
    uint64_t handle = (uint64_t)team, index = (handle & 0xffff) - 1;
    return LIKELY(index < MOST_TEAMS && state.teams[index].handle == handle) ? &state.teams[index]
                                                                             : find_team(routine, team);
}

INTERNAL team_t *team_or_none(const char *routine, shmem_team_t team);
INTERNAL RARELY int64_t refuse_pe(const char *routine, int64_t size, int pe);
INTERNAL RARELY int64_t pe_of_context(const char *routine, shmem_ctx_t ctx, int pe);

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

INTERNAL RARELY void fail(const char *routine, int outcome, team_t *team);
static inline void complete(const char *routine, int outcome, team_t *team) {
    if (!LIKELY(outcome == CALL_DONE)) fail(routine, outcome, team);
}
