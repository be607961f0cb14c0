/* Starts Python in a C program, or finds the Python in which the library is loaded.
 *
 * What is rare (init, memory, teams) is in pyshmem.capi.bridge. Python's functions are looked up at run time: a Python
 * that is linked statically has them itself, and a second one must not be loaded into its process. */
#pragma once
#include "../base/internal.h"

INTERNAL int has_python(void);
INTERNAL void start(void);
