/* The page that counts are written to. */
#include "counts.h"

INTERNAL activity_t no_activity, *activity = &no_activity;
