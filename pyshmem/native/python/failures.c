#include "failures.h"

INTERNAL PyObject *refuse_request; /* team_refuse(routine, pe, errno) raises the error of a failed request */

/* Ends a call of caller_begin, and raises the error of a link that failed, if no signal handler has raised one. */
INTERNAL PyObject *far_result(void *released, link_t *failed, const char *routine) {
    caller.released = released;
    int raised = caller_end();
    if (!failed) Py_RETURN_NONE;
    if (raised) return NULL;
    PyObject *none = PyObject_CallFunction(refuse_request, "sii", routine, failed->conn.pe, link_error(failed));
    if (none) {
        Py_DECREF(none);
        PyErr_SetString(PyExc_OSError, "the connection to a far PE has failed");
    }
    return NULL;
}
