/* The teams of the C library, and the table by which it calls this module (team/library.h). */
#include "../team/library.h"

#include <stdlib.h>

#include "failures.h"
#include "methods.h"
#include "teams.h"

/* A team of the library: as the calls of Python describe it, but without a host. wires: keeps its tables. */
typedef struct {
    team_t team;
    PyObject *wires;
} library_team_t;

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
    made->team.host = NULL;
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
    caller_begin();
    return far_result(caller.released, library_lost, routine);
}

INTERNAL PyMethodDef *library_methods(void) {
    static PyMethodDef all[] = {METHOD_NO_ARGUMENTS(library_calls), METHOD(library_team), METHOD(library_team_end),
                                METHOD(library_lost), LAST_METHOD};
    return all;
}
