/* How the PEs of a host find each other before there is a heap: each has a row in a file of shared memory, whose name is
 * that of the job. The last one that comes removes the name. */
#pragma once
#include <stdint.h>

#include "../base/internal.h"

enum { ABSENT, ALONE, BY_PYTHON }; /* votes: the C library opens the job, or Python */
enum { CORE_WORDS = 16 };

/* What a PE says of itself. heap: the bytes that are asked for. free: bytes of memory that the host has. cores: a bit for
 * each that it may use. stage: how far it is, and failed: what has gone wrong there. fd: of the heap, of PE 0. */
typedef struct {
    _Alignas(64) uint64_t vote;
    uint64_t stage, heap, statics, free, most_teams, cores[CORE_WORDS];
    int64_t pid, fd, failed;
    char version[24];
} row_t;

typedef struct {
    _Alignas(64) uint64_t arrived;
    _Alignas(64) row_t rows[];
} table_t;

/* Maps the table and writes this PE's row. Returns NULL if there can be none. */
INTERNAL table_t *arrive(const char *name, int64_t me, int64_t n, const row_t *mine);
INTERNAL void depart(table_t *table, int64_t n);
/* Waits for the votes of all, or with a stage for that. Returns the PE that has not come in time, or -1. */
INTERNAL int64_t await_all(table_t *table, int64_t n, uint64_t stage, double timeout);
/* Tells that this PE is at a stage, with what has failed, or 0; and waits for all. Returns what has failed on any. */
INTERNAL int64_t pass_stage(table_t *table, int64_t me, int64_t n, uint64_t stage, int64_t failed);
