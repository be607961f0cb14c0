/* The areas of teams in a job without Python, as pyshmem.memory.areas and Team._form have them. Teams that have no PE
 * in common may use the same area. */
#pragma once
#include "state.h"

enum { NO_MEMBER = -1, NO_AREA = -2 };

INTERNAL void open_areas(uint64_t most_teams);
INTERNAL void close_areas(void);
/* Makes a team of `size` members of a parent, from `first` on. Collective over the parent. Returns its number,
 * NO_MEMBER on other PEs, or NO_AREA if there is none for it. */
INTERNAL int64_t form_team(const char *routine, team_t *parent, int64_t first, int64_t step, int64_t size,
                           int64_t contexts);
INTERNAL void end_team(int64_t index);
INTERNAL void name_team(const team_t *team, char *name, uint64_t room);
