#include "host.h"

static void *release_gil_of_thread(void) { return PyEval_SaveThread(); }
static void restore_gil_of_thread(void *turn) { PyEval_RestoreThread(turn); }
static int run_handlers(void **turn) {
    PyEval_RestoreThread(*turn);
    int raised = PyErr_CheckSignals() != 0;
    *turn = PyEval_SaveThread();
    return raised;
}

INTERNAL const host_t python_host = {release_gil_of_thread, restore_gil_of_thread, run_handlers};
