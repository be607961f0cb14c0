/* The table of _interface.h, by which the C library calls what this module has, and its teams. */
#pragma once
#include "_collectives.h"
#include "_interface.h"
#include "_reductions.h"

/* A team of the library: as the calls of Python describe it, but without a GIL to release. wires: keeps its tables. */
typedef struct {
    team_t team;
    PyObject *wires;
} library_team_t;

static _Thread_local link_t *lost; /* by the last call of this thread that has returned CALL_LOST */

static int outcome(link_t *failed) {
    lost = failed;
    return failed ? CALL_LOST : CALL_DONE;
}

/* root: of a broadcast, or -1. Returns whether the call may go on. */
static int begin_team(team_t *t, const void *team, const char *routine, uint64_t word, int64_t root) {
    *t = ((const library_team_t *)team)->team;
    t->spin.name = routine;
    return begin_rooted(t, word, root);
}

static int end_team(team_t *t) {
    close_call(t);
    if (t->failed) return outcome(t->failed);
    if (t->spin.failed) return t->spin.failed;
    static const int outcomes[] = {
        [DONE] = CALL_DONE, [DIFFERENT] = CALL_DIFFERENT, [UNLIKE] = CALL_UNLIKE, [BROKEN] = CALL_BROKEN};
    return t->left == STAGED || t->left == REFUSED ? CALL_MIXED : outcomes[t->left];
}

static int library_sync(void *team, const char *routine, uint64_t word) {
    team_t t;
    if (begin_team(&t, team, routine, word, -1)) disseminate(&t);
    return end_team(&t);
}
static int library_share(void *team, const char *routine, uint64_t word, const void *note, uint64_t nbytes, void *all) {
    team_t t;
    if (begin_team(&t, team, routine, word, -1)) share(&t, note, nbytes, all);
    return end_team(&t);
}
static int library_broadcast(void *team, const char *routine, uint64_t word, int64_t root, void *dest,
                             const void *source, uint64_t nbytes, int keeps) {
    team_t t;
    if (begin_team(&t, team, routine, word, root)) broadcast(&t, root, dest, source, nbytes, keeps ? KEPT_TARGET : 0);
    return end_team(&t);
}
static int library_scatter(void *team, const char *routine, uint64_t word, void *dest, const void *source,
                           const uint64_t blocks[5]) {
    team_t t;
    if (begin_team(&t, team, routine, word, -1))
        scatter(&t, dest, source, &(blocks_t){blocks[0], blocks[1], blocks[2], blocks[3], blocks[4]}, 0);
    return end_team(&t);
}
/* how: mode, operator and kind */
static int library_fold(void *team, const char *routine, uint64_t word, const int how[3], void *dest,
                        const void *source, uint64_t count) {
    team_t t;
    fold_t f;
    int begun = begin_team(&t, team, routine, word, -1);
    to_fold(&t, how[0], how[1], how[2], &f);
    if (begun) reduce(&t, &f, dest, source, count, 0);
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
static int library_quiet_pe(int pe) { return outcome(far ? quiet_pe((uint64_t)pe) : NULL); }

static const native_calls_t library_calls = {
    sizeof library_calls, library_sync,        library_share,  library_broadcast,
    library_scatter,      library_fold,        library_put,    library_get,
    library_put_strided,  library_get_strided, library_atomic, library_put_signal,
    library_quiet,        library_quiet_pe,    help,           library_fence,
};

/* library_calls() -> the address of the table */
static PyObject *py_library_calls(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyLong_FromVoidPtr((void *)&library_calls);
}

/* library_team(wires, timeout, spins, watch) -> the address of a team for the library, until library_team_end(address).
 * watch: the address of a function of the library that its waits call, see spin_t. */
static PyObject *py_library_team(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    library_team_t *made = arity("library_team", n, 4) ? calloc(1, sizeof *made) : NULL;
    if (!made) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    uint64_t watch;
    if (!to_team(args, &made->team) || !to_u64(args[3], &watch)) {
        free(made);
        return NULL;
    }
    made->team.bare = 1;
    made->team.spin.interrupted = (int (*)(spin_t *))watch;
    made->wires = args[0];
    Py_INCREF(made->wires);
    return PyLong_FromVoidPtr(made);
}

static PyObject *py_library_team_end(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t address;
    if (!arity("library_team_end", n, 1) || !to_u64(args[0], &address)) return NULL;
    Py_DECREF(((library_team_t *)address)->wires);
    free((void *)address);
    Py_RETURN_NONE;
}

/* library_lost(routine) raises the error of the far PE that the last call of this thread has lost. */
static PyObject *py_library_lost(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    const char *routine = arity("library_lost", n, 1) ? PyUnicode_AsUTF8AndSize(args[0], NULL) : NULL;
    if (!routine) return NULL;
    begin_call();
    return far_result(caller.released, lost, routine);
}

static PyMethodDef library_methods[] = {METHOD_NO_ARGUMENTS(library_calls), METHOD(library_team),
                                        METHOD(library_team_end), METHOD(library_lost), LAST_METHOD};
