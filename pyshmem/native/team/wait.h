/* Waits for the members of a team, and the end of a call. */
#pragma once
#include "differences.h"

INTERNAL int team_await(team_t *t, uint64_t offset, uint64_t epoch);
INTERNAL void team_close_call(team_t *t);
