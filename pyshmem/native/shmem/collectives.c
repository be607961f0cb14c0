#include "collectives.h"

#include <stdlib.h>
#include <string.h>

/* What the members of a team must call alike. place: a stride. root: of a broadcast, or -1. */
typedef struct {
    const char *routine;
    team_t *team;
    uint64_t code, nelems, place;
    int kind, root;
} call_t;

/* In debug mode the members compare their calls first. */
static call_t call_of(const char *routine, shmem_team_t of, uint64_t code, int kind, uint64_t nelems, uint64_t place) {
    team_t *team = team_of(routine, of);
    bytes_of(routine, "nelems", nelems, kinds[kind].item);
    if (__builtin_expect(state.debug != 0, 0))
        RARE("compare", (int64_t)routine, team - state.teams, code == WORD_COLLECT ? 0 : (int64_t)nelems, kind);
    return (call_t){routine, team, code, nelems, place, kind, -1};
}

static uint64_t word_of(const call_t *c) {
    uint64_t type = kinds[c->kind].code * UINT64_C(16) + kinds[c->kind].item;
    uint64_t nbytes = c->nelems * kinds[c->kind].item ^ c->place * UINT64_C(0x9E3779B97F4A7C15);
    return c->code << 56 | type << 48 | (nbytes & ((UINT64_C(1) << 48) - 1));
}

static int end_call(const call_t *c, int outcome) {
    if (LIKELY(outcome == CALL_DONE)) return 0;
    if (outcome == CALL_DIFFERENT || outcome == CALL_UNLIKE)
        RARE("differ", (int64_t)c->routine, c->team - state.teams, (int64_t)c->code, c->kind, (int64_t)c->nelems,
             (int64_t)c->place, outcome, c->root);
    fail(c->routine, outcome, c->team);
    return 1;
}

/* A call with GPU memory, by the function of Python's table that has the routine's name. rest: the arguments behind the
 * source, whose number is `more`. */
static int on_gpus(const call_t *c, const void *dest, const void *source, int more, int64_t first, int64_t second,
                   int64_t third) {
    return (int)RARE("collective", (int64_t)c->routine, c->team - state.teams, (int64_t)dest, (int64_t)source, more,
                     first, second, third);
}

/* Arrays without elements may be anywhere; the members meet all the same. */
static void *dest_of(const call_t *c, void *dest, uint64_t nelems) {
    return (void *)(nelems ? symmetric(c->routine, "dest", dest,
                                       bytes_of(c->routine, "nelems", nelems, kinds[c->kind].item))
                           : state.base);
}
static const void *source_of(const call_t *c, const void *source, uint64_t nelems) {
    return (const void *)(nelems ? symmetric(c->routine, "source", source, nelems * kinds[c->kind].item) : state.base);
}

/* keeps: the root's dest stays as it is. */
INTERNAL int broadcast(const char *routine, shmem_team_t of, void *dest, const void *source, uint64_t nelems, int kind,
                       int root, int keeps) {
    call_t c = call_of(routine, of, WORD_BROADCAST, kind, nelems, 0);
    if (root < 0 || root >= c.team->size) refuse_pe(routine, c.team->size, root);
    c.root = root;
    if (nelems && (on_gpu(dest) || on_gpu(source))) return on_gpus(&c, dest, source, 2, (int64_t)nelems, root, 0);
    void *to = dest_of(&c, dest, nelems);
    return end_call(&c, state.calls->broadcast(c.team->native, c.routine, word_of(&c), root, to,
                                               source_of(&c, source, nelems), nelems * kinds[kind].item, keeps));
}

/* The parts of the members come together in `dest`: that of this PE from element `first` on. */
static int gather(const call_t *c, void *dest, const void *source, uint64_t first, uint64_t nelems, uint64_t total) {
    uint64_t item = kinds[c->kind].item;
    char *to = (char *)dest_of(c, dest, total) + first * item;
    return end_call(c, state.calls->scatter(c->team->native, c->routine, word_of(c), to, source_of(c, source, nelems),
                                            (uint64_t[]){0, nelems * item, 0, 0, 1}));
}

INTERNAL int fcollect(const char *routine, shmem_team_t of, void *dest, const void *source, uint64_t nelems, int kind) {
    call_t c = call_of(routine, of, WORD_FCOLLECT, kind, nelems, 0);
    uint64_t total = bytes_of(routine, "nelems", (uint64_t)c.team->size, nelems);
    if (nelems && (on_gpu(dest) || on_gpu(source))) return on_gpus(&c, dest, source, 1, (int64_t)nelems, 0, 0);
    return gather(&c, dest, source, (uint64_t)c.team->me * nelems, nelems, total);
}

INTERNAL int collect(const char *routine, shmem_team_t of, void *dest, const void *source, uint64_t nelems, int kind) {
    call_t c = call_of(routine, of, WORD_COLLECT, kind, nelems, 0);
    if (on_gpu(dest) || on_gpu(source)) return on_gpus(&c, dest, source, 1, (int64_t)nelems, 0, 0);
    c.nelems = 0; /* may differ: the note tells it, and the room, whether memory is private, and the word */
    uint64_t note[4] = {nelems, UINT64_MAX >> 1, 0, word_of(&c)}, first = 0, total = 0;
    uint64_t (*notes)[4] = malloc((uint64_t)c.team->size * sizeof *notes), word = (uint64_t)WORD_SHARE << 56;
    word |= sizeof note;
    end_call(&c,
             notes ? state.calls->share(c.team->native, c.routine, word, note, sizeof note, notes) : CALL_NO_MEMORY);
    for (int64_t j = 0; j < c.team->size; j++) {
        if (notes[j][3] != note[3]) end_call(&c, CALL_DIFFERENT);
        first += j < c.team->me ? notes[j][0] : 0;
        if (__builtin_add_overflow(total, notes[j][0], &total)) refuse_size(routine, "nelems", notes[j][0], 1);
    }
    c.nelems = notes[0][0]; /* of the first member, on all */
    free(notes);
    return total ? gather(&c, dest, source, first, nelems, total) : 0;
}

INTERNAL int alltoalls(const char *routine, shmem_team_t of, void *dest, const void *source, ptrdiff_t dst,
                       ptrdiff_t sst, uint64_t nelems, int kind) {
    int whole = dst == 1 && sst == 1;
    call_t c = call_of(routine, of, whole ? WORD_ALLTOALL : WORD_ALLTOALLS, kind, nelems, dst > 1 ? (uint64_t)dst : 0);
    uint64_t item = kinds[kind].item, to_step = (uint64_t)dst * item, from_step = (uint64_t)sst * item;
    if (dst < 1 || sst < 1)
        refuse("ArgumentError", routine, dst < 1 ? "dst" : "sst", "1 or more", "%ld", (long)(dst < 1 ? dst : sst));
    uint64_t all = bytes_of(routine, "nelems", (uint64_t)c.team->size, nelems);
    uint64_t to_bytes = extent(routine, "dst", all, (uint64_t)dst, item, item);
    uint64_t from_bytes = extent(routine, "sst", all, (uint64_t)sst, item, item);
    if (nelems && whole && (on_gpu(dest) || on_gpu(source))) return on_gpus(&c, dest, source, 1, (int64_t)nelems, 0, 0);
    if (nelems && (on_gpu(dest) || on_gpu(source))) return on_gpus(&c, dest, source, 3, dst, sst, (int64_t)nelems);
    char *to = (char *)dest_of(&c, dest, to_bytes / item);
    const void *from = source_of(&c, source, from_bytes / item);
    to += (uint64_t)c.team->me * nelems * to_step;
    uint64_t blocks[2][5] = {{nelems * from_step, item, to_step, from_step, nelems},
                             {nelems * item, nelems * item, 0, 0, 1}};
    return end_call(&c, state.calls->scatter(c.team->native, c.routine, word_of(&c), to, from, blocks[whole]));
}

INTERNAL int fold(const char *routine, shmem_team_t of, int mode, int operator, int kind, void *dest,
                  const void *source, uint64_t nelems) {
    bytes_of(routine, mode == REDUCE ? "nreduce" : "nelems", nelems, kinds[kind].item);
    call_t c = call_of(routine, of, (uint64_t)(WORD_FOLD + mode * OPERATORS + operator), kind, nelems, 0);
    if (nelems && (on_gpu(dest) || on_gpu(source))) return on_gpus(&c, dest, source, 1, (int64_t)nelems, 0, 0);
    void *to = dest_of(&c, dest, nelems);
    return end_call(&c, state.calls->fold(c.team->native, c.routine, word_of(&c), (int[]){mode, operator, kind}, to,
                                          source_of(&c, source, nelems), nelems));
}

/* ---- order, and barriers ---- */

INTERNAL void fence(const char *routine) {
    require_job(routine);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (state.gpu_span)
        RARE("order");
    else if (state.spans)
        complete(routine, state.calls->fence(), NULL);
}

/* The word of a barrier, as in pyshmem.diagnosis.mismatched_calls: of its name, whose hash is kept while the program
 * makes the same call again. */
static uint64_t barrier_word(const char *routine) {
    static _Thread_local const char *last;
    static _Thread_local uint64_t word;
    if (LIKELY(routine == last)) return word;
    const char *name = strncmp(routine, "shmem_", 6) ? routine : routine + 6;
    if (!strcmp(name, "team_sync")) name += 5;
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (const char *at = name; *at; at++) hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001B3);
    last = routine;
    return word = hash >> 35 | 1;
}

INTERNAL int sync_team(const char *routine, team_t *team) {
    if (__builtin_expect(state.debug != 0, 0)) RARE("compare", (int64_t)routine, team - state.teams, 0, -1);
    complete(routine, state.calls->sync(team->native, routine, barrier_word(routine)), team);
    return 0;
}
