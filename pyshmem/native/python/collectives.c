/* What the members of a team do together (team/), for Python. */
#include "../team/collectives.h"

#include "../team/broken.h"
#include "../team/reductions.h"
#include "../team/refusal.h"
#include "../team/streamed.h"
#include "methods.h"
#include "teams.h"

/* leave(team, timeout, spins, text): an exception has ended a call of this PE. text: which one, and why; at most FACTS.
 */
static PyObject *py_leave(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    char *text;
    Py_ssize_t length;
    if (!arity("leave", n, 4) || !to_team(args, &t) || PyBytes_AsStringAndSize(args[3], &text, &length)) return NULL;
    team_leave(&t);
    if (team_breaker(&t) == t.me) {
        uint64_t most = length < NOTE ? (uint64_t)length : NOTE - 1;
        memset(t.area + FACTS + most, 0, NOTE - most);
        memcpy(t.area + FACTS, text, most);
    }
    if (t.released) PyEval_RestoreThread(t.released);
    Py_RETURN_NONE;
}

/* breaker(team, timeout, spins) -> (member, text) of the member that has left a call, (-1, b"") if none has. text: what
 * it has given to leave, b"" if it has not yet, or has left the team. */
static PyObject *py_breaker(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    if (!arity("breaker", n, 3) || !to_team(args, &t)) return NULL;
    if (!is_broken(&t)) return Py_BuildValue("Ly", -1LL, "");
    int64_t member = team_breaker(&t);
    char facts[NOTE] = "";
    counters_t theirs = {0};
    team_read(&t, member, (char *)&theirs, t.area + COUNTERS, sizeof theirs);
    team_read(&t, member, facts, t.area + FACTS, sizeof facts);
    team_complete(&t);
    if (t.released) PyEval_RestoreThread(t.released);
    int stale = t.failed || theirs.refusals >> STAMP_BITS != counters(&t)->refusals >> STAMP_BITS;
    if (t.failed && caller.raised) return caller.raised = 0, NULL;
    facts[stale ? 0 : NOTE - 1] = 0;
    return Py_BuildValue("Ly", (long long)member, facts);
}

/* stamp(area, stamp): tells the team of an area, which has been cleared, from those that used the area before. */
static PyObject *py_stamp(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t area, stamp;
    if (!arity("stamp", n, 2) || !to_u64(args[0], &area) || !to_u64(args[1], &stamp)) return NULL;
    ((counters_t *)(area + COUNTERS))->refusals = stamp << STAMP_BITS;
    Py_RETURN_NONE;
}

/* (number of the last call, facts, ((word, root), ...) of the last calls, the last first) */
static PyObject *said_by(const told_t *told) {
    uint64_t last = told->counters.calls, count = last < LAST_CALLS ? last : LAST_CALLS;
    PyObject *calls = PyTuple_New((Py_ssize_t)count);
    for (uint64_t i = 0; calls && i < count; i++) {
        const call_t *call = &told->calls[(last - i) % LAST_CALLS];
        PyObject *pair = Py_BuildValue("KL", call->word, (long long)call->root - 1);
        if (!pair || PyTuple_SetItem(calls, (Py_ssize_t)i, pair)) Py_CLEAR(calls);
    }
    return calls ? Py_BuildValue("Ky#N", last, told->facts, (Py_ssize_t)NOTE, calls) : NULL;
}

/* refuse(team, timeout, spins, facts) -> what each member has told; BROKEN if one has left a call. Collective. */
static PyObject *py_refuse(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    char *facts;
    Py_ssize_t length;
    if (!arity("refuse", n, 4) || !to_team(args, &t) || PyBytes_AsStringAndSize(args[3], &facts, &length)) return NULL;
    if (length != NOTE) return PyErr_SetString(PyExc_ValueError, "facts have 256 bytes"), NULL;
    told_t *told = malloc((uint64_t)t.n * sizeof *told);
    if (!told) return PyErr_NoMemory();
    if (is_broken(&t))
        t.left = BROKEN;
    else
        team_refuse(&t, facts, told);
    PyObject *result = NULL;
    if (finish(&t)) result = t.left == BROKEN ? PyLong_FromLong(BROKEN) : PyTuple_New((Py_ssize_t)t.n);
    for (int64_t j = 0; result && t.left != BROKEN && j < t.n; j++) {
        PyObject *said = said_by(&told[j]);
        if (!said || PyTuple_SetItem(result, (Py_ssize_t)j, said)) Py_CLEAR(result);
    }
    free(told);
    return result;
}

/* agree(team, timeout, spins, private, word) -> what is left to do: DONE means nothing special. */
static PyObject *py_agree(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    int64_t private;
    uint64_t word;
    if (!arity("agree", n, 5) || !to_team(args, &t) || !to_i64(args[3], &private) || !to_u64(args[4], &word))
        return NULL;
    if (team_begin(&t, word)) barrier_agree(&t, private != 0);
    return left(&t);
}

/* area_bytes(n_pes) -> the bytes of an area for a team of up to n_pes PEs. */
static PyObject *py_area_bytes(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t n_pes;
    if (!arity("area_bytes", n, 1) || !to_u64(args[0], &n_pes)) return NULL;
    return PyLong_FromUnsignedLongLong((ROOTS + 16 * n_pes + 63) / 64 * 64);
}

/* sync(team, timeout, spins[, word]) -> what is left to do: DONE, DIFFERENT or BROKEN. */
static PyObject *py_sync(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    uint64_t word = 0;
    if ((n != 3 && !arity("sync", n, 4)) || !to_team(args, &t) || (n == 4 && !to_u64(args[3], &word))) return NULL;
    if (team_begin(&t, word)) barrier_disseminate(&t);
    return left(&t);
}

/* absent(team, timeout, spins) -> the members that have not reached the call in which this PE timed out; ~j for one
 * that does not answer. */
static PyObject *py_absent(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    if (!arity("absent", n, 3) || !to_team(args, &t)) return NULL;
    begun_t *each = calloc((size_t)t.n, sizeof *each + 1);
    if (!each) return PyErr_NoMemory();
    char *behind = (char *)(each + t.n);
    caller_begin();
    barrier_find_absent(&t, each, behind);
    PyEval_RestoreThread(caller.released);
    caller.released = NULL;
    PyObject *found = caller.raised ? NULL : PyList_New(0); /* a signal handler has raised an exception */
    caller.raised = 0;
    for (int64_t j = 0; found && j < t.n; j++) {
        PyObject *member = behind[j] ? PyLong_FromLongLong(behind[j] == SILENT ? ~j : j) : NULL;
        if (behind[j] && (!member || PyList_Append(found, member))) Py_CLEAR(found);
        Py_XDECREF(member);
    }
    free(each);
    return found;
}

/* share(team, timeout, spins, note, word) -> the concatenated notes of all members, or what is left to do. All
 * notes have the same length, at most NOTE. */
static PyObject *py_share(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    char *note;
    Py_ssize_t length;
    uint64_t word;
    if (!arity("share", n, 5) || !to_team(args, &t) || PyBytes_AsStringAndSize(args[3], &note, &length) ||
        !to_u64(args[4], &word))
        return NULL;
    if (length > NOTE) {
        PyErr_SetString(PyExc_ValueError, "the note is too long");
        return NULL;
    }
    int begun = team_begin(&t, word);
    PyObject *all = PyBytes_FromStringAndSize(NULL, t.n * length);
    if (!all) return NULL;
    if (begun) barrier_share(&t, note, (uint64_t)length, PyBytes_AsString(all));
    if (!finish(&t)) Py_CLEAR(all);
    if (!all || t.left == DONE) return all;
    Py_DECREF(all);
    return PyLong_FromLong(t.left);
}

/* broadcast(team, timeout, spins, root, dest, source, nbytes, private, word) -> what is left to do. private: 1 if the
 * target is private, plus 2 if the source is. */
static PyObject *py_broadcast(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    int64_t root, private;
    uint64_t dest, source, nbytes, word;
    if (!arity("broadcast", n, 9) || !to_team(args, &t) || !to_i64(args[3], &root) || !to_u64(args[4], &dest) ||
        !to_u64(args[5], &source) || !to_u64(args[6], &nbytes) || !to_i64(args[7], &private) || !to_u64(args[8], &word))
        return NULL;
    if (team_begin_rooted(&t, word, root))
        collective_broadcast(&t, root, (char *)dest, (char *)source, nbytes, private);
    return left(&t);
}

/* scatter(team, timeout, spins, dest, source, skip, item, dest_step, source_step, count, private, word) -> what is left
 * to do. All but count are in bytes. private: whether the target is. */
static PyObject *py_scatter(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    uint64_t dest, source, word;
    int64_t private;
    blocks_t b;
    if (!arity("scatter", n, 12) || !to_team(args, &t) || !to_u64(args[3], &dest) || !to_u64(args[4], &source) ||
        !to_u64(args[5], &b.skip) || !to_u64(args[6], &b.item) || !to_u64(args[7], &b.dest_step) ||
        !to_u64(args[8], &b.source_step) || !to_u64(args[9], &b.count) || !to_i64(args[10], &private) ||
        !to_u64(args[11], &word))
        return NULL;
    if (team_begin(&t, word)) collective_scatter(&t, (char *)dest, (char *)source, &b, private != 0);
    return left(&t);
}

/* fold(team, timeout, spins, mode, operator, kind, dest, source, count, private, word) -> what is left to do. private:
 * whether one array is. */
static PyObject *py_fold(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    fold_t f;
    int64_t mode, operator, kind, private;
    uint64_t dest, source, count, word;
    if (!arity("fold", n, 11) || !to_team(args, &t) || !to_i64(args[3], &mode) || !to_i64(args[4], &operator) ||
        !to_i64(args[5], &kind) || !to_u64(args[6], &dest) || !to_u64(args[7], &source) || !to_u64(args[8], &count) ||
        !to_i64(args[9], &private) || !to_u64(args[10], &word))
        return NULL;
    if (kind == KIND_longdouble || !reduction_prepare(&t, mode, operator, kind, &f)) {
        PyErr_SetString(PyExc_ValueError, "no such operator on this type");
        return NULL;
    }
    if (team_begin(&t, word)) reduction_run(&t, &f, (char *)dest, (char *)source, count, private != 0);
    return left(&t);
}

/* compare_on_stream(team, word) -> what differs_on_stream returns. */
static PyObject *py_compare_on_stream(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    uint64_t word;
    if (!arity("compare_on_stream", n, 2) || !to_members(args[0], &t) || !to_u64(args[1], &word)) return NULL;
    return PyLong_FromLongLong(streamed_differs(&t, word));
}

INTERNAL PyMethodDef *collective_methods(void) {
    static PyMethodDef all[] = {METHOD(leave),
                                METHOD(breaker),
                                METHOD(stamp),
                                METHOD(refuse),
                                METHOD(agree),
                                METHOD(area_bytes),
                                METHOD(sync),
                                METHOD(absent),
                                METHOD(share),
                                METHOD(broadcast),
                                METHOD(scatter),
                                METHOD(fold),
                                METHOD(compare_on_stream),
                                LAST_METHOD};
    return all;
}

#define REDUCTION_NAME(OP) #OP,
/* Adds REDUCTIONS to the module: by operator the types that it is defined for, both in the order of their numbers.
 * Python has no long double. */
INTERNAL int export_reductions(PyObject *module) {
    static const char *const operators[] = {REDUCTIONS(REDUCTION_NAME)};
    PyObject *table = PyDict_New();
    int failed = !table;
    for (int operator = 0; operator < OPERATORS && !failed; operator++) {
        const char *names[KIND_longdouble + 1];
        int count = 0;
        for (int kind = 0; kind < KIND_longdouble; kind++)
            if (kinds[kind].combine[operator]) names[count++] = kinds[kind].name;
        names[count] = NULL;
        failed = add_names(table, operators[operator], names);
    }
    failed = failed || PyModule_AddObjectRef(module, "REDUCTIONS", table);
    Py_XDECREF(table);
    return failed ? -1 : 0;
}
