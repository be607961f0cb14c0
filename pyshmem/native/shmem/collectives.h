/* Collectives of teams: the checks of arguments; what the members do together is in the module _native. */
#pragma once
#include "state.h"

INTERNAL int broadcast(const char *routine, shmem_team_t of, void *dest, const void *source, uint64_t nelems, int kind,
                       int root, int keeps);
INTERNAL int fcollect(const char *routine, shmem_team_t of, void *dest, const void *source, uint64_t nelems, int kind);
INTERNAL int collect(const char *routine, shmem_team_t of, void *dest, const void *source, uint64_t nelems, int kind);
INTERNAL int alltoalls(const char *routine, shmem_team_t of, void *dest, const void *source, ptrdiff_t dst,
                       ptrdiff_t sst, uint64_t nelems, int kind);
INTERNAL int fold(const char *routine, shmem_team_t of, int mode, int operator, int kind, void *dest,
                  const void *source, uint64_t nelems);

/* ---- order, and barriers ---- */

INTERNAL void fence(const char *routine);

static inline void quiet(const char *routine) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (state.gpu_span)
        RARE("settle");
    else if (state.spans)
        complete(routine, state.calls->quiet(), NULL);
}

INTERNAL int sync_team(const char *routine, team_t *team);
