/* Locks, as pyshmem.host.locks has them: the word on PE 0 is the lock; its upper half is the next ticket, its lower
 * half the ticket that is served. */
#pragma once
#include "../base/internal.h"

INTERNAL void manage_set_lock(const char *routine, long *lock);
INTERNAL int manage_test_lock(const char *routine, long *lock);
INTERNAL void manage_clear_lock(const char *routine, long *lock);
