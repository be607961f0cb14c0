/* What comes by one connection of the server: the greeting and requests, which are executed (execute.h), and replies.
 * While a reply does not fit into the connection, its requests wait. While one waits for the GPU, others that need no
 * GPU are executed. */
#pragma once
#include "execute.h"

INTERNAL int session_serve(session_t *p);
INTERNAL void session_refuse(const session_t *p);
