/* Python as the host of the engine (base/host.h). */
#pragma once
#include "../base/host.h"
#include "conversions.h"

GLOBAL const host_t python_host;
