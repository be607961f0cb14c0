/* The steps that the PEs of a host take together before there is a heap. */
#pragma once
#include "../base/rendezvous.h"

/* Waits for the votes of all, or with a stage for that. Returns the PE that has not come in time, or -1. */
INTERNAL int64_t await_all(table_t *table, int64_t n, uint64_t stage, double timeout);
/* Tells that this PE is at a stage, with what has failed, or 0; and waits for all. Returns what has failed on any. */
INTERNAL int64_t pass_stage(table_t *table, int64_t me, int64_t n, uint64_t stage, int64_t failed);
