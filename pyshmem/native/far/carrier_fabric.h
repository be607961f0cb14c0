/* Messages of a fabric as the carrier of a connection: requests to a PE's TARGET, and replies to the ORIGIN of the PE
 * that asked. The bytes are those of a TCP connection. That stays, for the greeting and the goodbye, and because its
 * end says that a PE has ended.
 *
 * Messages of one PE to another arrive in order (FI_ORDER_SAS). At most WINDOW of them are not yet taken: then the
 * connection is full, as a socket is. Each message, if need be an empty one, says how many its sender has taken. A
 * message without the pass of its sender, which both PEs compute from the job's token, is dropped. */
#pragma once
#include "fabric.h"

GLOBAL const carrier_t fabric_carrier;

INTERNAL int messages_open(fabric_t *f, int end, uint64_t key);
INTERNAL void messages_know(fabric_t *f, int pe);
INTERNAL void messages_forget(connection_t *c);
