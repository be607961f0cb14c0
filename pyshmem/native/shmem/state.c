#include "state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

INTERNAL state_t state = {.activity = &activity};
INTERNAL struct pyshmem_ctx contexts[MOST_CONTEXTS];

/* Whether a PE has forked this process: it has copies of the PE's locks and buffers, and is no part of the job. */
INTERNAL int is_forked(void) { return state.calls && getpid() != state.process; }

/* Ends the job with an error of Python's form; of a forked process only itself. kind: the name of the exception that it
 * is in Python. */
INTERNAL RARELY _Noreturn void refuse(const char *kind, const char *routine, const char *argument, const char *wants,
                                      const char *format, ...) {
    char got[512];
    va_list values;
    va_start(values, format);
    vsnprintf(got, sizeof got, format, values);
    va_end(values);
    if (is_forked()) {
        dprintf(2, "%s: PE %ld: %s: got %s; expected %s\n", routine, (long)state.my_pe, argument, got, wants);
        _exit(1);
    }
    fflush(NULL);
    if (state.calls) RARE("refuse", (int64_t)kind, (int64_t)routine, (int64_t)argument, (int64_t)got, (int64_t)wants);
    fprintf(stderr, "%s: PE ?: %s: got %s; expected %s\n", routine, argument, got, wants);
    _exit(1);
}

INTERNAL RARELY void require_job(const char *routine) {
    if (state.calls || attach()) return;
    fflush(NULL);
    fprintf(stderr, "%s: PE ?: not initialized: call shmem_init() first\n", routine);
    _exit(1);
}

/* ---- sizes and alignment ---- */

INTERNAL RARELY _Noreturn void refuse_size(const char *routine, const char *argument, uint64_t count, uint64_t size) {
    require_job(routine);
    refuse("OutOfRangeError", routine, argument, "no more than a heap can have: less than 2**63 bytes",
           "%lu elements of %lu bytes", count, size);
}

/* The bytes from the first of `count` items to the end of the last, each `step` elements of `size` bytes after the one
 * before. */
INTERNAL uint64_t extent(const char *routine, const char *argument, uint64_t count, uint64_t step, uint64_t size,
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

INTERNAL RARELY _Noreturn void refuse_alignment(const char *routine, const char *argument, const void *where,
                                                uint64_t size) {
    require_job(routine);
    char wants[64];
    snprintf(wants, sizeof wants, "a multiple of %lu, the size of the word", size);
    refuse("ArgumentError", routine, argument, wants, "the address %p", where);
}

INTERNAL RARELY _Noreturn void refuse_null(const char *routine, const char *argument, const char *wants) {
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

static int is_within(uint64_t address, uint64_t nbytes, uint64_t base, uint64_t bytes) {
    return address - base < bytes && nbytes <= bytes - (address - base);
}

/* The address in its heap of symmetric memory, with GPU_PLACE for the GPU heap; or 0. */
INTERNAL uint64_t in_heap(uint64_t address, uint64_t nbytes) {
    int gpu = on_gpu((void *)address);
    uint64_t found = gpu ? (is_within(address, nbytes, state.gpu_base, state.gpu_bytes) ? address : 0)
                     : is_within(address, nbytes, state.base, state.bytes) ? address
                                                                           : in_statics(address, nbytes);
    if (found && state.debug && !RARE("is_live", (int64_t)found, (int64_t)nbytes)) return 0;
    return found && gpu ? found | GPU_PLACE : found;
}

INTERNAL RARELY uint64_t symmetric_slowly(const char *routine, const char *argument, const void *where,
                                          uint64_t nbytes) {
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

/* Checks an argument that the CPU accesses. */
INTERNAL void on_cpu(const char *routine, const char *argument, const void *where, uint64_t nbytes) {
    if (symmetric(routine, argument, where, nbytes) & GPU_PLACE)
        refuse("ArgumentError", routine, argument, "memory of the CPU heap", "%lu bytes of the GPU heap", nbytes);
}

/* ---- teams, contexts and PEs ---- */

INTERNAL int is_context(shmem_ctx_t ctx) {
    uint64_t offset = (uint64_t)ctx - (uint64_t)contexts;
    return offset < sizeof contexts && offset % sizeof *ctx == 0 && ctx->team;
}

INTERNAL RARELY _Noreturn void refuse_context(const char *routine, shmem_ctx_t ctx) {
    refuse("ArgumentError", routine, "ctx", "a context that is not destroyed, nor its team", "%s",
           ctx ? "a context that has ended" : "SHMEM_CTX_INVALID");
}

INTERNAL RARELY team_t *find_team(const char *routine, shmem_team_t team) {
    require_job(routine);
    uint64_t handle = (uint64_t)team, index = (handle & 0xffff) - 1;
    if (index < MOST_TEAMS && state.teams[index].handle == handle) return &state.teams[index];
    refuse("ArgumentError", routine, "team", "a team this PE is in",
           handle ? "a team that has ended" : "SHMEM_TEAM_INVALID");
}

/* The team, or NULL for SHMEM_TEAM_INVALID. */
INTERNAL team_t *team_or_none(const char *routine, shmem_team_t team) {
    require_job(routine);
    return team == SHMEM_TEAM_INVALID ? NULL : team_of(routine, team);
}

INTERNAL RARELY int64_t refuse_pe(const char *routine, int64_t size, int pe) {
    require_job(routine);
    if (!state.check) return pe;
    char wants[64];
    snprintf(wants, sizeof wants, "a PE from 0 to %ld", (long)size - 1);
    refuse("OutOfRangeError", routine, "pe", wants, "%d", pe);
}

INTERNAL RARELY int64_t pe_of_context(const char *routine, shmem_ctx_t ctx, int pe) {
    require_job(routine);
    if (ctx == SHMEM_CTX_DEFAULT) return pe >= 0 && pe < state.n_pes ? pe : refuse_pe(routine, state.n_pes, pe);
    if (!is_context(ctx) || state.teams[(ctx->team & 0xffff) - 1].handle != ctx->team) refuse_context(routine, ctx);
    if (pe < 0 || pe >= ctx->size) return refuse_pe(routine, ctx->size, pe);
    return ctx->start + pe * ctx->stride;
}

/* ---- what a call of team/interface.h returned ---- */

INTERNAL RARELY void fail(const char *routine, int outcome, team_t *team) {
    RARE("failed", (int64_t)routine, outcome, team ? team - state.teams : -1);
}
