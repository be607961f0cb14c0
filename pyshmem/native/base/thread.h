/* Threads of the engine. */
#pragma once
#include <pthread.h>

#include "internal.h"

INTERNAL int start_thread(pthread_t *thread, void *(*run)(void *), void *arg);
