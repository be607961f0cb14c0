/* PMI 1, by which Hydra, the mpiexec of MPICH, tells the processes that it starts of each other: lines of text on the
 * socket PMI_FD. Of it a job of one host needs its name, its end, and that this process may end. Barriers of PMI are not
 * used: those of MPI in another process would meet them. */
#pragma once
#include <stddef.h>

#include "../base/internal.h"

/* Greets the launcher, and gets the name of the job. Returns whether that was possible. */
INTERNAL int pmi_open(char *name, size_t room);
INTERNAL void pmi_abort(int status);
INTERNAL void pmi_finalize(void);
