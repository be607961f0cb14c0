/* The table of interface.h, by which the C library calls what this module has. */
#pragma once
#include "../far/help.h"
#include "collectives.h"
#include "interface.h"
#include "reductions.h"

GLOBAL _Thread_local link_t *library_lost;
GLOBAL const native_calls_t library_calls;
