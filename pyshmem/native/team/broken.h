/* A call that ends on one member before its end, by an exception or a time-out, must not be combined with a later one.
 *
 * This member then tells all others, before the exception reaches the program, which may change the arrays: it stores a
 * mark into their areas. So a member whose call has read what the program changed finds the mark when its call ends.
 * Members that wait, or call later, find it too. A mark has the stamp of its team, because the area of a member may by
 * then belong to another team. */
#pragma once
#include "team.h"

INTERNAL void team_leave(team_t *t);
INTERNAL int64_t team_breaker(const team_t *t);
