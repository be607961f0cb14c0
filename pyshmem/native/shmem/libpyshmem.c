/* libpyshmem.so: OpenSHMEM for C programs, on the job of pyshmem. The functions with C's names are in entries.h, which
 * pyshmem.capi.generate writes from the table of pyshmem.c_names. */
#define PYSHMEM_UNIT

#include "../base/combine.c"
#include "../base/counts.c"
#include "../base/spin.c"
#include "../base/word.c"

#include "active_sets.c"
#include "collectives.c"
#include "locks.c"
#include "management.c"
#include "one_sided.c"
#include "start.c"
#include "state.c"
#include "statics.c"
#include "waits.c"

/* shmem_<name> is weak, so that a tool can replace it and call pshmem_<name>. */
#define EXPORT __attribute__((visibility("default")))
#define ENTRY(TYPE, NAME, PARAMETERS)                                    \
    EXPORT TYPE p##NAME PARAMETERS;                                      \
    EXPORT __attribute__((weak, alias("p" #NAME))) TYPE NAME PARAMETERS; \
    TYPE p##NAME PARAMETERS

#include "../../capi/include/entries.h"

/* of shmemx.h */
EXPORT double shmemx_wtime(void);
EXPORT double shmemx_wtime(void) { return 1e-9 * (double)now_ns(); }
