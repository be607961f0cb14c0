/* Barriers of a team's members, and what they exchange in them: words that tell their calls apart, payloads and notes.
 * Barriers in kernels: pyshmem/device/arch/gpu/team_flags.py; on streams: pyshmem/kernels/on_stream.py. */
#pragma once
#include "wait.h"

INTERNAL int barrier_disseminate(team_t *t);
INTERNAL int barrier_exchange(team_t *t, const void *payload, uint64_t nbytes, const char **mailboxes);
INTERNAL int barrier_meet(team_t *t);
INTERNAL void barrier_tell(team_t *t, uint64_t *word, uint64_t call);
INTERNAL int barrier_agree(team_t *t, int private);

/* What a member has begun: barriers, and calls by their kind. numbers: of the requests for it, from the first to the
 * last.
 */
typedef struct {
    uint64_t syncs, numbers[2];
    counters_t calls;
    link_t *failed;
} begun_t;

enum { BEHIND = 1, SILENT };
INTERNAL void barrier_find_absent(team_t *t, begun_t *each, char *behind);
INTERNAL int barrier_share(team_t *t, const char *note, uint64_t length, char *all);
