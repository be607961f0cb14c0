/* PE 0 of two, with memory of its own. */
#pragma once
#include <sys/socket.h>

#include "../../pyshmem/native/far/far.h"

enum { HEAP = 1 << 20, JOB = 77 };
extern _Alignas(64) char heap[HEAP];
static const uint64_t token[2] = {11, 12};

far_t *open_world(void);
void close_world(void);
int listen_on_loopback(struct sockaddr_storage *address, socklen_t *length);
