/* What is rare, in a job without Python: the functions that pyshmem.capi.bridge has otherwise, by the same names and
 * with the same arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../team/engine.h"
#include "allocator.h"
#include "alone.h"
#include "areas.h"
#include "collectives.h"
#include "ends.h"
#include "failures.h"
#include "one_sided.h"

static const char *text_at(int64_t argument) { return (const char *)argument; }
static team_t *team_at(int64_t index) { return &state.teams[index]; }

/* ---- setup ---- */

static int64_t rare_init(int64_t *a) {
    if (a[0] < 0 || a[0] > 3)
        refuse("ArgumentError", "shmem_init_thread", "requested", "one of SHMEM_THREAD_*", "%ld", (long)a[0]);
    if (!state.calls && !open_alone((uint64_t)a[1]))
        refuse("LaunchError", "shmem_init", "environment", "variables as at the first shmem_init", "others");
    if (!alone.inits++) state.level = a[0];
    return state.level;
}
static int64_t rare_is_last_finalize(int64_t *a) { return (void)a, alone.inits == 1; }

static int64_t rare_finalize(int64_t *a) {
    (void)a;
    sync_team("finalize", &state.teams[0]);
    if (--alone.inits) return 0;
    tell_phase("finalize");
    state.calls = NULL;
    if (alone.page) alone.page->ended = 1;
    activity = &no_activity;
    pyshmem_engine.count_in(NULL);
    close_areas();
    unmap_heap(&alone.heap);
    close_allocator();
    free((void *)state.away);
    state.away = NULL;
    state.checked = state.bytes = 0, state.n_pes = 0;
    tell_phase("finalized");
    return 0;
}
static int64_t rare_global_exit(int64_t *a) { abort_job((int)(a[0] & 255)); }
static int64_t rare_end(int64_t *a) {
    (void)a;
    note_end();
    tell_phase("leaves");
    return 0;
}
static int64_t rare_statics_address(int64_t *a) { return (void)a, (int64_t)alone.statics; }

/* ---- memory ---- */

/* The word of a call, and the meeting of all PEs in it. Returns whether their calls are the same. */
static void meet_in(const char *routine, const facts_t *call) {
    uint64_t type = kinds[call->kind].code * UINT64_C(16) + kinds[call->kind].item;
    uint64_t bits = call->nelems * kinds[call->kind].item ^ (uint64_t)call->place * UINT64_C(0x9E3779B97F4A7C15);
    uint64_t word = call->code << 56 | type << 48 | (bits & ((UINT64_C(1) << 48) - 1));
    int outcome = state.calls->sync(state.teams[0].native, routine, word);
    if (outcome == CALL_DIFFERENT) refuse_different(routine, &state.teams[0], call);
    complete(routine, outcome, &state.teams[0]);
}
static facts_t allocation_of(uint64_t code, uint64_t nbytes, int64_t offset) {
    return (facts_t){code, KIND_uint8, 1, nbytes, offset, -1};
}

static int64_t finish(const char *routine, uint64_t nbytes, int64_t offset) {
    facts_t call = allocation_of(WORD_ALLOCATE, nbytes, offset);
    if (offset >= 0) quiet(routine);
    meet_in(routine, &call);
    note_use();
    return offset < 0 ? 0 : (int64_t)alone.heap.base + offset;
}

static int64_t rare_malloc(int64_t *a) {
    return finish("shmem_malloc", (uint64_t)a[0], take_bytes((uint64_t)a[0], CACHE_LINE));
}
static int64_t rare_calloc(int64_t *a) {
    int64_t offset = take_bytes((uint64_t)a[0], CACHE_LINE);
    if (offset >= 0) memset((void *)(alone.heap.base + (uint64_t)offset), 0, (size_t)a[0]);
    return finish("shmem_calloc", (uint64_t)a[0], offset);
}
/* The heaps of all PEs are aligned alike up to a power of two: no larger alignment is the same on all. */
static int64_t rare_align(int64_t *a) {
    if ((uint64_t)a[1] > alone.heap.alignment) return 0;
    return finish("shmem_align", (uint64_t)a[0], take_bytes((uint64_t)a[0], (uint64_t)a[1]));
}

/* The offset of the allocation at an address. */
static int64_t allocated_at(const char *routine, int64_t address) {
    uint64_t offset = (uint64_t)address - alone.heap.base;
    int is_ours = offset < alone.heap.size && bytes_taken(offset) && (uint64_t)address != alone.statics;
    if (!is_ours)
        refuse("NotSymmetricError", routine, "ptr",
               "an address that an allocation returned and that has not been freed",
               "the address %#lx, at which no symmetric memory is allocated", (uint64_t)address);
    return (int64_t)offset;
}

static int64_t rare_free(int64_t *a) {
    int64_t offset = allocated_at("shmem_free", a[0]);
    facts_t call = allocation_of(WORD_FREE, bytes_taken((uint64_t)offset), offset);
    quiet("shmem_free");
    meet_in("shmem_free", &call);
    give_bytes_back((uint64_t)offset);
    note_use();
    return 0;
}

static int64_t rare_realloc(int64_t *a) {
    static const char routine[] = "shmem_realloc";
    uint64_t nbytes = (uint64_t)a[1];
    if (!a[0]) return finish(routine, nbytes, take_bytes(nbytes, CACHE_LINE));
    if (!nbytes) return rare_free(a);
    int64_t offset = allocated_at(routine, a[0]), moved = offset;
    uint64_t old = bytes_taken((uint64_t)offset);
    facts_t call = allocation_of(WORD_REALLOC, nbytes, offset);
    quiet(routine);
    meet_in(routine, &call);
    if (!resize_bytes((uint64_t)offset, nbytes)) {
        moved = take_bytes(nbytes, CACHE_LINE);
        if (moved >= 0) {
            char *base = (char *)alone.heap.base;
            memcpy(base + moved, base + offset, old < nbytes ? old : nbytes);
            give_bytes_back((uint64_t)offset);
        }
    }
    return finish(routine, nbytes, moved);
}

/* ---- teams: the new ones replace the arguments ---- */

static int64_t rare_split_strided(int64_t *a) {
    team_t *parent = team_at(a[0]);
    int64_t start = a[1], step = a[2], size = a[3], contexts = a[4], last = start + (size - 1) * step;
    a[0] = -1;
    if (start < 0 || start >= parent->size || size < 1 || size > parent->size || last < 0 || last >= parent->size ||
        (!step && size > 1) || contexts < 0)
        return 1;
    int64_t made = form_team("shmem_team_split_strided", parent, start, step, size, contexts);
    if (made >= 0) a[0] = made;
    return made == NO_AREA;
}

static int64_t rare_split_2d(int64_t *a) {
    static const char routine[] = "shmem_team_split_2d";
    team_t *parent = team_at(a[0]);
    int64_t width = a[1] < parent->size ? a[1] : parent->size, contexts[2] = {a[2], a[3]};
    a[0] = a[1] = -1;
    if (width < 1 || contexts[0] < 0 || contexts[1] < 0) return 1;
    int64_t row = parent->me / width, column = parent->me % width, first = row * width;
    int64_t across = first + width < parent->size ? width : parent->size - first;
    int64_t down = (parent->size - 1 - column) / width + 1;
    int64_t x = form_team(routine, parent, first, 1, across, contexts[0]);
    int64_t y = form_team(routine, parent, column, width, down, contexts[1]);
    int failed = x < 0 || y < 0;
    if (failed && x >= 0) end_team(x);
    if (failed && y >= 0) end_team(y);
    if (!failed) a[0] = x, a[1] = y;
    return failed;
}

static int64_t rare_destroy_team(int64_t *a) {
    char name[128];
    name_team(team_at(a[0]), name, sizeof name);
    if (a[0] < 2)
        refuse("ArgumentError", "shmem_team_destroy", "team", "a team that split_strided or split_2d made", "%s", name);
    end_team(a[0]);
    return 0;
}

/* ---- errors ---- */

static int64_t rare_refuse(int64_t *a) {
    fprintf(stderr, "%s: PE %ld: %s: got %s; expected %s\n", text_at(a[1]), (long)state.my_pe, text_at(a[2]),
            text_at(a[3]), text_at(a[4]));
    abort_job(1);
}
static int64_t rare_failed(int64_t *a) { refuse_failed(text_at(a[0]), a[1], a[2] < 0 ? NULL : team_at(a[2])); }

/* routine, team, number of the call, type, elements, stride, what it has returned, root */
static int64_t rare_differ(int64_t *a) {
    facts_t call = {(uint64_t)a[2], (int)a[3], 0, (uint64_t)a[4], a[5], a[7]};
    if (a[6] == CALL_UNLIKE) refuse_unlike(text_at(a[0]), team_at(a[1]), &call);
    refuse_different(text_at(a[0]), team_at(a[1]), a[2] == WORD_SHARE ? NULL : &call);
}

/* routine, argument, address, comparison, value, value seen, whether any of several would do */
static int64_t rare_timed_out(int64_t *a) {
    static const char *const signs[] = {"==", "!=", ">", ">=", "<", "<="};
    uint64_t offset = (uint64_t)a[2] - alone.heap.base;
    char got[128] = "none", wants[128];
    if (!a[6] && offset < alone.heap.size)
        snprintf(got, sizeof got, "%ld at heap offset %lu", (long)a[5], offset);
    else if (!a[6])
        snprintf(got, sizeof got, "%ld at %#lx in static data", (long)a[5], (uint64_t)a[2]);
    snprintf(wants, sizeof wants, "a value %s %ld", signs[a[3]], (long)a[4]);
    refuse_timed_out(text_at(a[0]), text_at(a[1]), got, wants, NULL, 0);
}
static int64_t rare_lock_timed_out(int64_t *a) {
    char got[128];
    snprintf(got, sizeof got, "ticket %ld, and still %ld is served", (long)a[1], (long)a[2]);
    refuse_timed_out(text_at(a[0]), "lock", got, "its owner's clear_lock", NULL, 0);
}
static int64_t rare_tell_of_wait(int64_t *a) { return say_of_wait(text_at(a[0])), 0; }

#define RARE_CALL(NAME) {#NAME, rare_##NAME},
static const struct {
    const char *name;
    int64_t (*call)(int64_t *arguments);
} rare_calls[] = {RARE_CALL(init) RARE_CALL(is_last_finalize) RARE_CALL(finalize) RARE_CALL(global_exit) RARE_CALL(end)
                      RARE_CALL(statics_address) RARE_CALL(malloc) RARE_CALL(calloc) RARE_CALL(align) RARE_CALL(realloc)
                          RARE_CALL(free) RARE_CALL(split_strided) RARE_CALL(split_2d) RARE_CALL(destroy_team)
                              RARE_CALL(refuse) RARE_CALL(failed) RARE_CALL(differ) RARE_CALL(timed_out)
                                  RARE_CALL(lock_timed_out) RARE_CALL(tell_of_wait)};

INTERNAL int64_t rare_alone(const char *name, int64_t *arguments) {
    for (size_t i = 0; i < sizeof rare_calls / sizeof *rare_calls; i++)
        if (!strcmp(rare_calls[i].name, name)) return rare_calls[i].call(arguments);
    fprintf(stderr, "pyshmem: %s is not known without Python\n", name);
    abort();
}
