/* shmemx.h under the name that ports of programs include. */
#include "../shmemx.h"
