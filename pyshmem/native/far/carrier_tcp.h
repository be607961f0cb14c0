/* TCP as the carrier of a connection. The first request of a link opens it, with a greeting (greeting.h). */
#pragma once
#include "link.h"

GLOBAL const carrier_t tcp_carrier;

INTERNAL int tcp_connect(link_t *l);
INTERNAL void tcp_set_options(int fd);
INTERNAL void tcp_close(connection_t *c);
