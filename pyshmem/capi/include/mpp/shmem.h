/* The header under its name before OpenSHMEM 1.2, which the specification keeps as deprecated. */
#include "../shmem.h"
