/* How a PE ends that the C library has made one without Python: what pyshmem.diagnosis.exits and python/exits.c do. */
#pragma once
#include <stdint.h>

#include "../base/internal.h"

/* Watches the end of this process, of this number in the launcher's job. */
INTERNAL void watch_end(int64_t pe);
/* Tells pyshmemrun how far this PE is, see exits.tell. */
INTERNAL void tell_phase(const char *phase);
INTERNAL _Noreturn void abort_job(int status);
