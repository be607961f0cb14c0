#include "management.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "active_sets.h"
#include "collectives.h"
#include "one_sided.h"
#include "start.h"
#include "statics.h"

/* ---- setup ---- */

static pid_t owner; /* the process that has begun the job: not a child that it has forked */

static void at_exit(void) {
    if (state.calls && getpid() == owner) RARE("end");
}

static int begin(int requested) {
    static int registered, has_begun, embedded; /* whether this process is a C program */
    if (!has_begun++) embedded = !has_python();
    int first = !attach();
    uint64_t nbytes = first ? find_statics(embedded) : 0;
    start(nbytes);
    int provided = (int)RARE("init", requested, (int64_t)nbytes);
    if (first && nbytes) share_statics();
    if (embedded && !registered) {
        registered = 1;
        owner = getpid();
        atexit(at_exit); /* after MPI's, which pyshmem has registered: handlers run in the opposite order */
    }
    return provided;
}

INTERNAL void manage_init(const char *routine) {
    (void)routine;
    begin(SHMEM_THREAD_MULTIPLE);
}
INTERNAL void manage_start_pes(const char *routine, int npes) {
    (void)npes;
    if (!attach()) manage_init(routine);
}
INTERNAL int manage_init_thread(const char *routine, int requested, int *provided) {
    (void)routine;
    int level = begin(requested);
    if (provided) *provided = level;
    return 0;
}
INTERNAL void manage_finalize(const char *routine) {
    require_job(routine);
    quiet(routine);
    if (RARE("is_last_finalize")) {
        sync_team(routine, &state.teams[0]); /* no PE accesses the static data any more */
        unshare_statics();
    }
    RARE("finalize");
}
INTERNAL void manage_global_exit(const char *routine, int status) {
    require_job(routine);
    fflush(NULL);
    RARE("global_exit", status);
}

/* ---- queries ---- */

INTERNAL void manage_query_initialized(const char *routine, int *initialized) {
    (void)routine;
    *initialized = attach();
}
INTERNAL void manage_query_thread(const char *routine, int *provided) {
    require_job(routine);
    *provided = (int)state.level;
}
INTERNAL int manage_pe_accessible(const char *routine, int pe) {
    require_job(routine);
    return pe >= 0 && pe < state.n_pes;
}
INTERNAL int manage_addr_accessible(const char *routine, const void *addr, int pe) {
    return manage_pe_accessible(routine, pe) && in_heap((uint64_t)addr, 1);
}
INTERNAL void *manage_ptr(const char *routine, const void *dest, int pe) {
    require_job(routine);
    uint64_t here = in_heap((uint64_t)dest, 1);
    if (pe < 0 || pe >= state.n_pes) refuse_pe(routine, state.n_pes, pe);
    if (here & GPU_PLACE) return (void *)RARE("ptr", (int64_t)dest, pe);
    uint64_t place = here + (uint64_t)state.away[pe];
    return here && is_near(place) ? (void *)(pe == state.my_pe ? (uint64_t)dest : place) : NULL;
}
INTERNAL void *manage_team_ptr(const char *routine, shmem_team_t of, const void *dest, int pe) {
    team_t *team = team_or_none(routine, of);
    if (!team) return NULL;
    if (pe < 0 || pe >= team->size) refuse_pe(routine, team->size, pe);
    return manage_ptr(routine, dest, (int)(team->start + pe * team->stride));
}
INTERNAL void manage_info_get_version(const char *routine, int *major, int *minor) {
    (void)routine;
    *major = SHMEM_MAJOR_VERSION, *minor = SHMEM_MINOR_VERSION;
}
INTERNAL void manage_info_get_name(const char *routine, char *name) {
    (void)routine;
    strcpy(name, SHMEM_VENDOR_STRING);
}
INTERNAL void manage_pcontrol(const char *routine, int level) { (void)routine, (void)level; }

/* ---- memory ---- */

static void *allocate(const char *routine, const char *how, uint64_t nbytes, int64_t detail) {
    require_job(routine);
    if (nbytes > INT64_MAX) nbytes = INT64_MAX; /* which no heap has */
    return nbytes ? (void *)RARE(how, (int64_t)nbytes, detail) : NULL;
}
INTERNAL void *manage_malloc(const char *routine, size_t size) { return allocate(routine, "malloc", size, 0); }
INTERNAL void *manage_malloc_with_hints(const char *routine, size_t size, long hints) {
    return allocate(routine, "malloc", size, hints);
}
INTERNAL void *manage_align(const char *routine, size_t alignment, size_t size) {
    require_job(routine);
    if (!alignment || alignment & (alignment - 1) || alignment > INT64_MAX) return NULL;
    return allocate(routine, "align", size, (int64_t)alignment);
}
INTERNAL void *manage_calloc(const char *routine, size_t count, size_t size) {
    uint64_t total;
    if (__builtin_mul_overflow(count, size, &total)) total = INT64_MAX;
    return allocate(routine, "calloc", total, 0);
}
INTERNAL void *manage_realloc(const char *routine, void *ptr, size_t size) {
    require_job(routine);
    if (size > INT64_MAX) size = INT64_MAX;
    return ptr || size ? (void *)RARE("realloc", (int64_t)ptr, (int64_t)size) : NULL;
}
INTERNAL void manage_free(const char *routine, void *ptr) {
    require_job(routine);
    if (ptr) RARE("free", (int64_t)ptr);
}

/* ---- teams ---- */

INTERNAL int manage_team_my_pe(const char *routine, shmem_team_t of) {
    team_t *team = team_or_none(routine, of);
    return team ? (int)team->me : -1;
}
INTERNAL int manage_team_n_pes(const char *routine, shmem_team_t of) {
    team_t *team = team_or_none(routine, of);
    return team ? (int)team->size : -1;
}
INTERNAL int manage_team_get_config(const char *routine, shmem_team_t of, long mask, shmem_team_config_t *config) {
    team_t *team = team_or_none(routine, of);
    if (team && mask & SHMEM_TEAM_NUM_CONTEXTS && !config) refuse_null(routine, "config", "what config_mask asks for");
    if (team && mask & SHMEM_TEAM_NUM_CONTEXTS) config->num_contexts = (int)team->contexts;
    return !team;
}
INTERNAL int manage_team_translate_pe(const char *routine, shmem_team_t from, int pe, shmem_team_t to) {
    team_t *source = team_or_none(routine, from), *dest = team_or_none(routine, to);
    if (!source || !dest || pe < 0 || pe >= source->size) return -1;
    int64_t apart = source->start + pe * source->stride - dest->start;
    if (dest->size == 1) return apart ? -1 : 0;
    int64_t index = apart / dest->stride;
    return apart % dest->stride == 0 && index >= 0 && index < dest->size ? (int)index : -1;
}

static int64_t contexts_of(const shmem_team_config_t *config, long mask) {
    return config && mask & SHMEM_TEAM_NUM_CONTEXTS ? config->num_contexts : 0;
}

/* The handle of team number `index`, which the bridge has described; SHMEM_TEAM_INVALID for -1. Handles of teams that
 * use one place after each other differ. */
static shmem_team_t handle_of(int64_t index) {
    static uint64_t teams_so_far;
    if (index < 0) return SHMEM_TEAM_INVALID;
    uint64_t number = __atomic_add_fetch(&teams_so_far, 1, __ATOMIC_RELAXED);
    state.teams[index].handle = number << 16 | (uint64_t)(index + 1);
    return (shmem_team_t)state.teams[index].handle;
}
INTERNAL int manage_team_split_strided(const char *routine, shmem_team_t of, int start, int stride, int size,
                                       const shmem_team_config_t *config, long mask, shmem_team_t *new_team) {
    team_t *parent = team_or_none(routine, of);
    *new_team = SHMEM_TEAM_INVALID;
    if (!parent) return 1;
    int64_t made[ARGUMENTS] = {parent - state.teams, start, stride, size, contexts_of(config, mask)};
    int failed = (int)rare("split_strided", made);
    *new_team = handle_of(made[0]);
    return failed;
}
INTERNAL int manage_team_split_2d(const char *routine, shmem_team_t of, int xrange, const shmem_team_config_t *xconfig,
                                  long xmask, shmem_team_t *xteam, const shmem_team_config_t *yconfig, long ymask,
                                  shmem_team_t *yteam) {
    team_t *parent = team_or_none(routine, of);
    *xteam = *yteam = SHMEM_TEAM_INVALID;
    if (!parent) return 1;
    int64_t made[ARGUMENTS] = {parent - state.teams, xrange, contexts_of(xconfig, xmask), contexts_of(yconfig, ymask)};
    int failed = (int)rare("split_2d", made);
    *xteam = handle_of(made[0]), *yteam = handle_of(made[1]);
    return failed;
}
INTERNAL void manage_team_destroy(const char *routine, shmem_team_t of) {
    team_t *team = team_or_none(routine, of);
    if (!team) return;
    RARE("destroy_team", team - state.teams);
    team->handle = 0;
}
INTERNAL int manage_team_sync(const char *routine, shmem_team_t of) { return sync_team(routine, team_of(routine, of)); }

/* ---- contexts: every operation on a near PE is complete when its call returns, and quiet completes those of all ----
 */

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER; /* of both */
static struct pyshmem_ctx *free_contexts;
static uint64_t contexts_so_far;

/* A place in the table, or SHMEM_CTX_INVALID if all are in use. */
static shmem_ctx_t new_context(void) {
    pthread_mutex_lock(&contexts_lock);
    shmem_ctx_t made = free_contexts;
    if (made)
        free_contexts = made->next;
    else if (contexts_so_far < MOST_CONTEXTS)
        made = &contexts[contexts_so_far++];
    pthread_mutex_unlock(&contexts_lock);
    return made;
}

INTERNAL int manage_team_create_ctx(const char *routine, shmem_team_t of, long options, shmem_ctx_t *ctx) {
    team_t *team = team_or_none(routine, of);
    (void)options;
    if (!ctx) refuse_null(routine, "ctx", "room for a context");
    *ctx = team ? new_context() : SHMEM_CTX_INVALID;
    if (*ctx) **ctx = (struct pyshmem_ctx){team->handle, team->start, team->stride, team->size, NULL};
    return !*ctx;
}
INTERNAL int manage_ctx_create(const char *routine, long options, shmem_ctx_t *ctx) {
    return manage_team_create_ctx(routine, SHMEM_TEAM_WORLD, options, ctx);
}
INTERNAL void manage_ctx_destroy(const char *routine, shmem_ctx_t ctx) {
    if (ctx == SHMEM_CTX_INVALID) return;
    if (ctx == SHMEM_CTX_DEFAULT)
        refuse("ArgumentError", routine, "ctx", "a context of shmem_ctx_create", "SHMEM_CTX_DEFAULT");
    if (!is_context(ctx)) refuse_context(routine, ctx);
    quiet(routine);
    ctx->team = 0;
    pthread_mutex_lock(&contexts_lock);
    ctx->next = free_contexts, free_contexts = ctx;
    pthread_mutex_unlock(&contexts_lock);
}
INTERNAL int manage_ctx_get_team(const char *routine, shmem_ctx_t ctx, shmem_team_t *team) {
    require_job(routine);
    if (ctx != SHMEM_CTX_DEFAULT && ctx && !is_context(ctx)) refuse_context(routine, ctx);
    *team = ctx == SHMEM_CTX_DEFAULT ? SHMEM_TEAM_WORLD : ctx ? (shmem_team_t)ctx->team : SHMEM_TEAM_INVALID;
    return *team == SHMEM_TEAM_INVALID;
}
INTERNAL void manage_ctx_session_start(const char *routine, shmem_ctx_t ctx, long options,
                                       const shmem_ctx_session_config_t *config, long mask) {
    (void)routine, (void)ctx, (void)options, (void)config, (void)mask; /* hints */
}
INTERNAL void manage_ctx_session_stop(const char *routine, shmem_ctx_t ctx) { (void)routine, (void)ctx; }

/* ---- order ---- */

INTERNAL void manage_barrier_all(const char *routine) {
    require_job(routine);
    quiet(routine);
    sync_team(routine, &state.teams[0]);
}
INTERNAL void manage_sync_all(const char *routine) {
    require_job(routine);
    sync_team(routine, &state.teams[0]);
}
INTERNAL void manage_sync(const char *routine, int start, int log_stride, int size, long *psync) {
    set_t set = active_set(routine, start, log_stride, size, psync);
    sync_set(&set);
}
INTERNAL void manage_barrier(const char *routine, int start, int log_stride, int size, long *psync) {
    set_t set = active_set(routine, start, log_stride, size, psync);
    meet(&set);
}
INTERNAL void manage_fence(const char *routine) { fence(routine); }
INTERNAL void manage_quiet(const char *routine) {
    require_job(routine);
    quiet(routine);
}
static void check_context(const char *routine, shmem_ctx_t ctx) {
    if (ctx != SHMEM_CTX_DEFAULT && !is_context(ctx)) refuse_context(routine, ctx);
}
INTERNAL void manage_ctx_fence(const char *routine, shmem_ctx_t ctx) {
    if (ctx == SHMEM_CTX_INVALID) return;
    check_context(routine, ctx);
    manage_fence(routine);
}
INTERNAL void manage_ctx_quiet(const char *routine, shmem_ctx_t ctx) {
    if (ctx == SHMEM_CTX_INVALID) return;
    check_context(routine, ctx);
    manage_quiet(routine);
}
INTERNAL void manage_ctx_pe_quiet(const char *routine, shmem_ctx_t ctx, const int *target_pes, size_t npes) {
    if (ctx == SHMEM_CTX_INVALID) return;
    require_job(routine);
    if (npes && !target_pes) refuse_null(routine, "target_pes", "the numbers of PEs");
    if (state.gpu_span) {
        quiet(routine);
        return;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (size_t i = 0; i < npes; i++) {
        int64_t pe = world_pe(routine, ctx, target_pes[i]);
        if (state.spans && !is_near(state.base + (uint64_t)state.away[pe]))
            complete(routine, state.calls->quiet_pe((int)pe), NULL);
    }
}
INTERNAL void manage_pe_quiet(const char *routine, const int *target_pes, size_t npes) {
    manage_ctx_pe_quiet(routine, SHMEM_CTX_DEFAULT, target_pes, npes);
}
