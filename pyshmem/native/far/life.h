/* Start and end of the server and of the links, and what a forked process keeps of them. */
#pragma once
#include <stddef.h>

#include "far.h"

INTERNAL far_t *far_new(int my_pe, int n_pes, uint64_t job, const void *token);
INTERNAL int far_add(far_t *f, int pe, const char *host_name, const void *address, size_t length);
INTERNAL void far_free(far_t *f);
INTERNAL int far_start(far_t *f, int listener);
INTERNAL void far_allow_ends(void);
INTERNAL void far_stop(void);
