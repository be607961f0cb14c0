/* PMI 1, by which Hydra, the mpiexec of MPICH, tells the processes that it starts of each other: lines of text on the
 * socket PMI_FD. Of it a job of one host needs its name, its end, and that this process may end. Barriers of PMI are
 * not used: those of MPI in another process would meet them. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "internal.h"

/* This process's number and how many there are, from the variables of Hydra for one host, or without a launcher: 0
 * and 1. Returns whether that is how it has been started. */
INTERNAL int find_place(int64_t *me, int64_t *n);
/* Greets the launcher, and gets the name of the job. Returns whether that was possible. */
INTERNAL int pmi_open(char *name, size_t room);
/* Sends a request; and reads the line that answers it. Each returns whether that was done, the second also whether the
 * line begins with `answer`. */
enum { PMI_LINE = 4096 };
INTERNAL int pmi_say(const char *request);
INTERNAL int pmi_ask(const char *request, const char *answer, char line[PMI_LINE]);
