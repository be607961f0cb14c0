/* A call that waits executes the requests of far PEs itself, so that neither the service nor the call need be woken.
 *
 * The service sleeps in `outer`, which reports that something happens in `epoll`, unless a call looks there: then the
 * service sleeps on. At its end the call lets `outer` report again, also what has come already. One thread at a time
 * looks. None does where PEs share cores. A thread that polls loses its core to other programs, for milliseconds, and
 * one that sleeps gets it as soon as it is woken: so for some time after a loss the call sleeps in `epoll`. */
#pragma once
#include "far.h"

INTERNAL int help(int ends);
