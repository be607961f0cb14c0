/* The program that a call comes from, where it is not C: Python runs one thread at a time, and its handlers of signals
 * run between its own instructions. So a call that may wait gives its turn up first, and takes it now and then to let
 * handlers run. C programs and C tests need none of it: there `host` is NULL. */
#pragma once
#include <stdint.h>

#include "internal.h"

/* turn: what the calling thread needs to go on in the program, from release to restore. */
typedef struct {
    void *(*release)(void); /* lets other threads of the program run */
    void (*restore)(void *turn);
    int (*interrupted)(void **turn); /* runs handlers of signals; returns whether one has raised an exception */
} host_t;
GLOBAL const host_t *host;

/* The call under way of this thread, if it has released its turn. raised: a handler has raised an exception. */
typedef struct {
    void *released;
    int64_t checked;
    int raised;
} caller_t;
GLOBAL _Thread_local caller_t caller;

INTERNAL void caller_begin(void);
INTERNAL int caller_end(void);
INTERNAL int caller_interrupted(void);
