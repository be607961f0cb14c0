#include "library.h"

INTERNAL _Thread_local link_t *library_lost; /* by the last call of this thread that has returned CALL_LOST */

static int outcome(link_t *failed) {
    library_lost = failed;
    return failed ? CALL_LOST : CALL_DONE;
}

/* root: of a broadcast, or -1. Returns whether the call may go on. */
static int begin_team(team_t *t, const void *team, const char *routine, uint64_t word, int64_t root) {
    *t = *(const team_t *)team;
    t->spin.name = routine;
    return team_begin_rooted(t, word, root);
}

static int end_team(team_t *t) {
    team_close_call(t);
    if (t->failed) return outcome(t->failed);
    if (t->spin.failed) return t->spin.failed;
    static const int outcomes[] = {
        [DONE] = CALL_DONE, [DIFFERENT] = CALL_DIFFERENT, [UNLIKE] = CALL_UNLIKE, [BROKEN] = CALL_BROKEN};
    return t->left == STAGED || t->left == REFUSED ? CALL_MIXED : outcomes[t->left];
}

static int library_sync(void *team, const char *routine, uint64_t word) {
    team_t t;
    if (begin_team(&t, team, routine, word, -1)) barrier_disseminate(&t);
    return end_team(&t);
}
static int library_share(void *team, const char *routine, uint64_t word, const void *note, uint64_t nbytes, void *all) {
    team_t t;
    if (begin_team(&t, team, routine, word, -1)) barrier_share(&t, note, nbytes, all);
    return end_team(&t);
}
static int library_broadcast(void *team, const char *routine, uint64_t word, int64_t root, void *dest,
                             const void *source, uint64_t nbytes, int keeps) {
    team_t t;
    if (begin_team(&t, team, routine, word, root))
        collective_broadcast(&t, root, dest, source, nbytes, keeps ? KEPT_TARGET : 0);
    return end_team(&t);
}
static int library_scatter(void *team, const char *routine, uint64_t word, void *dest, const void *source,
                           const uint64_t blocks[5]) {
    team_t t;
    if (begin_team(&t, team, routine, word, -1))
        collective_scatter(&t, dest, source, &(blocks_t){blocks[0], blocks[1], blocks[2], blocks[3], blocks[4]}, 0);
    return end_team(&t);
}
/* how: mode, operator and kind */
static int library_fold(void *team, const char *routine, uint64_t word, const int how[3], void *dest,
                        const void *source, uint64_t count) {
    team_t t;
    fold_t f;
    int begun = begin_team(&t, team, routine, word, -1);
    reduction_prepare(&t, how[0], how[1], how[2], &f);
    if (begun) reduction_run(&t, &f, dest, source, count, 0);
    return end_team(&t);
}

static int library_put(uint64_t place, const void *source, uint64_t nbytes) {
    return outcome(far_put(place, source, nbytes));
}
static int library_get(void *dest, uint64_t place, uint64_t nbytes, int wait) {
    return outcome(far_get(dest, place, nbytes, wait));
}
static int library_put_strided(uint64_t place, const void *source, uint64_t step, uint64_t own, uint64_t item,
                               uint64_t count) {
    return outcome(far_put_strided(place, source, step, own, item, count));
}
static int library_get_strided(void *dest, uint64_t place, uint64_t own, uint64_t step, uint64_t item, uint64_t count) {
    return outcome(far_get_strided(dest, place, own, step, item, count));
}
static int library_atomic(uint64_t place, uint32_t detail, uint64_t value, uint64_t cond, void *old, int wait) {
    return outcome(far_atomic(place, detail, value, cond, old, wait));
}
static int library_put_signal(uint64_t place, const void *source, uint64_t nbytes, uint64_t word, uint32_t detail,
                              uint64_t value) {
    return outcome(far_put_signal(place, source, nbytes, word, detail, value));
}
static int library_quiet(void) { return outcome(far ? far_quiet() : NULL); }
static int library_fence(void) { return outcome(far ? far_fence() : NULL); }
static int library_quiet_pe(int pe) { return outcome(far ? far_quiet_pe((uint64_t)pe) : NULL); }

INTERNAL const native_calls_t library_calls = {
    sizeof library_calls, library_sync,        library_share,  library_broadcast,
    library_scatter,      library_fold,        library_put,    library_get,
    library_put_strided,  library_get_strided, library_atomic, library_put_signal,
    library_quiet,        library_quiet_pe,    help,           library_fence,
};
