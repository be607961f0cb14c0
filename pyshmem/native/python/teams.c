#include "teams.h"

#include "../team/wait.h"
#include "failures.h"
#include "waits.h"

static int to_numbers(PyObject *bytes, const int64_t **numbers, int64_t *count) {
    char *text;
    Py_ssize_t length;
    if (!bytes || PyBytes_AsStringAndSize(bytes, &text, &length)) return 0;
    *numbers = (const int64_t *)text;
    *count = length / 8;
    return 1;
}

/* Reads who the members of a team are, from (area, bytes between the areas of neighbours, me, n), or with a table (...,
 * away, node, leaders, locals), each an array of int64 as bytes; the last three are empty on one node. */
INTERNAL int to_members(PyObject *wires, team_t *t) {
    PyObject *team[4];
    uint64_t area;
    int64_t n;
    for (int i = 0; i < 4; i++)
        if (!(team[i] = PyTuple_GetItem(wires, i))) return 0;
    if (!to_u64(team[0], &area) || !to_i64(team[1], &t->stride) || !to_i64(team[2], &t->me) || !to_i64(team[3], &t->n))
        return 0;
    t->area = (char *)area;
    t->away = t->node = NULL;
    t->nodes = 0;
    return PyTuple_Size(wires) == 4 || (to_numbers(PyTuple_GetItem(wires, 4), &t->away, &n) &&
                                        to_numbers(PyTuple_GetItem(wires, 5), &t->node, &n) &&
                                        to_numbers(PyTuple_GetItem(wires, 6), &t->leaders, &t->nodes) &&
                                        to_numbers(PyTuple_GetItem(wires, 7), &t->locals, &t->n_locals));
}

/* Reads the first three arguments of every collective: team, timeout, spins. */
INTERNAL int to_team(PyObject *const *args, team_t *t) {
    uint64_t spins;
    double timeout;
    if (!to_members(args[0], t) || !to_f64(args[1], &timeout) || !to_u64(args[2], &spins)) return 0;
    t->spin = spin_begin(timeout, spins);
    t->spin.interrupted = handle_signals;
    t->spin.with = &t->released;
    t->released = NULL;
    t->host = host;
    t->call = t->word = t->said = 0;
    t->refuses = 0;
    t->failed = NULL;
    t->left = DONE;
    return 1;
}

/* Ends a call: takes the GIL, and raises the error of a failed wait. */
INTERNAL int finish(team_t *t) {
    team_close_call(t);
    if (t->failed) return Py_XDECREF(far_result(t->released, t->failed, "collective")), 0;
    if (t->released) PyEval_RestoreThread(t->released);
    if (t->spin.failed == NO_MEMORY)
        PyErr_NoMemory();
    else if (t->spin.failed)
        spin_error(&t->spin);
    return !t->spin.failed;
}

INTERNAL PyObject *left(team_t *t) { return finish(t) ? PyLong_FromLong(t->left) : NULL; }
