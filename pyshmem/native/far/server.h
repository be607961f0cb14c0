/* The server: the thread that executes the requests of far PEs. It has the sessions, which are their connections, and
 * goes over them in rounds (session.h).
 *
 * It sleeps in epoll. It never takes the turn of base/host.h and never blocks on one connection. A call that waits
 * executes requests in its place (help.h): who holds `executing` does. */
#pragma once
#include <pthread.h>

#include "session.h"

typedef struct server {
    pthread_t thread;
    int outer;                 /* in which the server sleeps: it reports `epoll` and `wake` */
    pthread_mutex_t executing; /* of who executes requests */
    int helped;                /* whether a call that waits executes them, and the server need not be woken */
    int rest;                  /* how long the server sleeps */
    int timer;                 /* goes on when it is read: each sleep of a call would set another one */
    int64_t backoff_for;       /* how long calls that wait sleep at once, see help.h */
    int64_t batch_since;       /* since when this PE holds requests (batch.h), as the server knows; or 0 */
    int listener, epoll, unauthenticated; /* of connections; those without a greeting */
    int64_t looked, attended;             /* when it last looked at these; the time so far in which it did */
    int64_t paused;       /* since when it does not accept connections, for want of memory or descriptors; or 0 */
    pthread_mutex_t lock; /* of the list of sessions, for a fork */
    int wake, stopped;
    session_t *serving, *ended; /* the one whose request is being executed; those to free */
    int leaving;                /* this PE is about to end, and connections may end */
    session_t *sessions;
} server_t;

INTERNAL void *server_run(void *arg);
INTERNAL void server_dismiss(server_t *s, session_t *p);
INTERNAL void server_free_ended(server_t *s);
INTERNAL void server_progress(server_t *s);
INTERNAL void server_round(server_t *s);
INTERNAL int server_rest(server_t *s);
INTERNAL void server_execute(server_t *s);
