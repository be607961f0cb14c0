/* The fabric (far/fabric_open.h, far/fabric_gpu.h) for Python, which takes its addresses to the other PEs. */
#pragma once
#include "../far/fabric_gpu.h"
#include "../far/fabric_open.h"
#include "../far/rma.h"
#include "far.h"

enum { NAME = 256 }; /* bytes of an address */
