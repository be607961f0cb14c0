/* How the PEs of a host find each other before there is a heap: each has a row in a file of shared memory, whose name
 * is that of the job. The last one that comes removes the name. PEs in C wait for the votes of all; a vote for Python
 * waits for nobody. */
#pragma once
#include <stdint.h>

#include "internal.h"

enum { ABSENT, ALONE, BY_PYTHON }; /* votes: the C library opens the job, or Python */
enum { CORE_WORDS = 16 };

/* What a PE says of itself. heap: the bytes that are asked for. free: bytes of memory that the host has. cores: a bit
 * for each that it may use. stage: how far it is, and failed: what has gone wrong there. fd: of the heap, of PE 0. */
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
/* The vote of a process of Python, once: PEs in C then leave the job to Python too. */
INTERNAL void vote_for_python(void);
