/* Routines with a body of their own: setup, queries, memory, teams, contexts. */
#pragma once
#include "state.h"

/* ---- setup ---- */

INTERNAL void manage_init(const char *routine);
INTERNAL void manage_start_pes(const char *routine, int npes);
INTERNAL int manage_init_thread(const char *routine, int requested, int *provided);
INTERNAL void manage_finalize(const char *routine);
INTERNAL void manage_global_exit(const char *routine, int status);

/* ---- queries ---- */

INTERNAL void manage_query_initialized(const char *routine, int *initialized);
INTERNAL void manage_query_thread(const char *routine, int *provided);
static inline int manage_my_pe(const char *routine) {
    if (!LIKELY(state.calls != NULL)) require_job(routine);
    return (int)state.my_pe;
}
static inline int manage_n_pes(const char *routine) {
    if (!LIKELY(state.calls != NULL)) require_job(routine);
    return (int)state.n_pes;
}
INTERNAL int manage_pe_accessible(const char *routine, int pe);
INTERNAL int manage_addr_accessible(const char *routine, const void *addr, int pe);
INTERNAL void *manage_ptr(const char *routine, const void *dest, int pe);
INTERNAL void *manage_team_ptr(const char *routine, shmem_team_t of, const void *dest, int pe);
INTERNAL void manage_info_get_version(const char *routine, int *major, int *minor);
INTERNAL void manage_info_get_name(const char *routine, char *name);
INTERNAL void manage_pcontrol(const char *routine, int level);

/* ---- memory ---- */

INTERNAL void *manage_malloc(const char *routine, size_t size);
INTERNAL void *manage_malloc_with_hints(const char *routine, size_t size, long hints);
INTERNAL void *manage_align(const char *routine, size_t alignment, size_t size);
INTERNAL void *manage_calloc(const char *routine, size_t count, size_t size);
INTERNAL void *manage_realloc(const char *routine, void *ptr, size_t size);
INTERNAL void manage_free(const char *routine, void *ptr);

/* ---- teams ---- */

INTERNAL int manage_team_my_pe(const char *routine, shmem_team_t of);
INTERNAL int manage_team_n_pes(const char *routine, shmem_team_t of);
INTERNAL int manage_team_get_config(const char *routine, shmem_team_t of, long mask, shmem_team_config_t *config);
INTERNAL int manage_team_translate_pe(const char *routine, shmem_team_t from, int pe, shmem_team_t to);
INTERNAL int manage_team_split_strided(const char *routine, shmem_team_t of, int start, int stride, int size,
                                       const shmem_team_config_t *config, long mask, shmem_team_t *new_team);
INTERNAL int manage_team_split_2d(const char *routine, shmem_team_t of, int xrange, const shmem_team_config_t *xconfig,
                                  long xmask, shmem_team_t *xteam, const shmem_team_config_t *yconfig, long ymask,
                                  shmem_team_t *yteam);
INTERNAL void manage_team_destroy(const char *routine, shmem_team_t of);
INTERNAL int manage_team_sync(const char *routine, shmem_team_t of);

/* ---- contexts: every operation on a near PE is complete when its call returns, and quiet completes those of all ----
 */

INTERNAL int manage_team_create_ctx(const char *routine, shmem_team_t of, long options, shmem_ctx_t *ctx);
INTERNAL int manage_ctx_create(const char *routine, long options, shmem_ctx_t *ctx);
INTERNAL void manage_ctx_destroy(const char *routine, shmem_ctx_t ctx);
INTERNAL int manage_ctx_get_team(const char *routine, shmem_ctx_t ctx, shmem_team_t *team);
INTERNAL void manage_ctx_session_start(const char *routine, shmem_ctx_t ctx, long options,
                                       const shmem_ctx_session_config_t *config, long mask);
INTERNAL void manage_ctx_session_stop(const char *routine, shmem_ctx_t ctx);

/* ---- order ---- */

INTERNAL void manage_barrier_all(const char *routine);
INTERNAL void manage_sync_all(const char *routine);
INTERNAL void manage_sync(const char *routine, int start, int log_stride, int size, long *psync);
INTERNAL void manage_barrier(const char *routine, int start, int log_stride, int size, long *psync);
INTERNAL void manage_fence(const char *routine);
INTERNAL void manage_quiet(const char *routine);
INTERNAL void manage_ctx_fence(const char *routine, shmem_ctx_t ctx);
INTERNAL void manage_ctx_quiet(const char *routine, shmem_ctx_t ctx);
INTERNAL void manage_ctx_pe_quiet(const char *routine, shmem_ctx_t ctx, const int *target_pes, size_t npes);
INTERNAL void manage_pe_quiet(const char *routine, const int *target_pes, size_t npes);
