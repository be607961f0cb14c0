/* Requests to far PEs, and small puts that follow each other at once: they are held, to be sent by one message.
 *
 * A put is held if another one to the same PE has just been made, with no fence in between. What is held leaves with
 * the next request of another kind to this PE, when the buffer is full, when a call of this PE waits, and otherwise by
 * the server within about HELD_MS. */
#pragma once
#include "link.h"

enum { HELD_MS = 1 };

INTERNAL int link_send(link_t *l, request_t *r, const void *data, uint64_t nbytes);
INTERNAL void batch_flush_all(void);
