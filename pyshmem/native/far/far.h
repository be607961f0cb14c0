/* The far PEs, those of other nodes, and what this PE has open for them.
 *
 * Functions of this folder are called without the turn of base/host.h. Those that make requests return NULL, or the
 * link that failed. */
#pragma once
#include <pthread.h>
#include <stdint.h>

#include "../base/internal.h"
#include "carrier.h"
#include "protocol.h"

enum { SLICE_MS = 20 };   /* the longest sleep between two looks at signals */
enum { SPIN_NS = 50000 }; /* of a wait, before it sleeps */

typedef struct link link_t;
typedef struct {
    int my_pe, n_pes, spins;
    int wake, epoll; /* of the server */
    int holding;     /* whether a link may hold requests */
    uint64_t fences; /* how many there have been */
    int trial;       /* the self-test of a fabric: requests to HOLD are executed, and no connection is given up */
    char *base;
    uint64_t length;       /* of this PE's part of the CPU heap, with the areas */
    int64_t limit;         /* of a wait without progress, in nanoseconds; 0: none */
    int64_t backoff_until; /* until when calls that wait sleep at once, see help.h */
    hello_t hello;
    uint64_t token[2];
    const carrier_t *carrier; /* of the connections that this PE opens */
    link_t **links, **open;   /* by PE; those with a connection */
    int n_open;
    pthread_mutex_t lock;
    connection_t **incoming; /* by PE: the connections of those that have greeted, or NULL */
    connection_t *ready;     /* those of which messages have come */
    int sessions_wait;       /* for the GPU, or for their turn */
    char **hosts;            /* by PE */
    struct server *server;
    struct gpu_executor *gpu;        /* of requests on the GPU heap, or NULL; see execute.h */
    struct proxy *proxy;             /* of this process's kernels, or NULL; see proxy.h */
    struct fabric *fabric, *opening; /* or NULL; see fabric.h */
} far_t;
GLOBAL far_t *far; /* of this process, between init and finalize; a pointer is enough for one job */

/* Whether nothing has come for longer than a wait may last. since: the last time that something has. */
INTERNAL int far_is_late(int64_t since);
/* A pause of a wait that polls: another PE gets the core if PEs share cores. */
INTERNAL void far_pause(void);
INTERNAL int far_backs_off(void);
