/* Waits for the members of a team, and the end of a call. */
#pragma once
#include "differences.h"

INTERNAL int await(team_t *t, uint64_t offset, uint64_t epoch);
INTERNAL void close_call(team_t *t);
