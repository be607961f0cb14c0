#include "host.h"

#include <stddef.h>

#include "spin.h"

INTERNAL const host_t *host;
INTERNAL _Thread_local caller_t caller;

INTERNAL void caller_begin(void) {
    caller.released = host->release();
    caller.checked = now_ns(), caller.raised = 0;
}

/* Takes the turn back. Returns whether a handler has raised an exception. */
INTERNAL int caller_end(void) {
    int raised = caller.raised;
    host->restore(caller.released);
    caller.released = NULL, caller.raised = 0;
    return raised;
}

/* Runs handlers of signals if it is time. They may make calls too. Returns whether one has raised an exception. */
INTERNAL int caller_interrupted(void) {
    int64_t now = now_ns();
    if (!caller.released || caller.raised || now - caller.checked < LONG_NS) return caller.raised;
    void *turn = caller.released;
    int raised = host->interrupted(&turn);
    caller.released = turn;
    caller.checked = now_ns(), caller.raised = raised;
    return raised;
}
