/* Members whose calls differ: they notice it, tell all others, and meet in a refusal, which says what each has called.
 *
 * Calls that meet in the same way exchange their words. Others would wait for each other forever: so a member that
 * waits looks at what the others have called, and the first member of each node tells those of the other nodes what it
 * waits in. A member that notices a difference wants all to meet in a refusal. After it all go on alike: they have
 * agreed on the counters of their next call. */
#pragma once
#include "interface.h"
#include "team.h"

INTERNAL int calls_differ(team_t *t);
INTERNAL int calls_must_stop(team_t *t, uint64_t turn);
