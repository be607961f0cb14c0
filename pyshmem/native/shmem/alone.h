/* A job that the C library opens itself, without Python: on the CPU heaps of one host, under Hydra or without a
 * launcher. What is rare there is in `rare_alone`, by the names of pyshmem.capi.bridge. */
#pragma once
#include "heap.h"
#include "settings.h"
#include "state.h"

/* inits: those without a finalize. jobs: of this process so far. */
typedef struct {
    settings_t settings;
    shared_heap_t heap;
    int64_t inits, jobs;
    uint64_t statics, area_bytes;
    activity_t *page;
} alone_t;
GLOBAL alone_t alone;

/* Opens the job, with `statics` bytes for static data. Returns 0 if Python must: alike on all PEs. */
INTERNAL int open_alone(uint64_t statics);
INTERNAL int64_t rare_alone(const char *name, int64_t *arguments);
INTERNAL void note_use(void);
