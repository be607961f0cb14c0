/* The members of a team as Python describes them, and what a call of them returns. */
#pragma once
#include "../team/team.h"
#include "conversions.h"

INTERNAL int to_members(PyObject *wires, team_t *t);
INTERNAL int to_team(PyObject *const *args, team_t *t);
INTERNAL int finish(team_t *t);
INTERNAL PyObject *left(team_t *t);
