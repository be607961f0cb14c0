/* Opens a job without Python (alone.h), starts Python in a C program, or finds the Python in which the library is
 * loaded.
 *
 * With Python, what is rare (init, memory, teams) is in pyshmem.capi.bridge. Python's functions are looked up at run
 * time: a Python that is linked statically has them itself, and a second one must not be loaded into its process. */
#pragma once
#include <stdint.h>

#include "../base/internal.h"

INTERNAL int has_python(void);
INTERNAL void start(uint64_t statics); /* bytes of static data that shall be symmetric */
