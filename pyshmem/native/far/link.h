/* Links to far PEs: this PE sends requests, and the server of the far PE executes them (server.h).
 *
 * Each PE has one connection to each far PE that it uses. The far PE executes the requests of a connection in order, so
 * requests to one PE are always ordered as by a fence. Every reply says how many requests have been executed, which
 * completes all of these. */
#pragma once
#include <sys/socket.h>

#include "far.h"

/* An expected reply with data, or with a value of which `item` bytes are wanted, for which request number `seq` has
 * asked. dest, value: NULL if the call that waited has ended. */
typedef struct {
    uint64_t seq, nbytes;
    char *dest;
    uint64_t step, item;
    char *value, *packed;
} expected_t;

struct link {
    pthread_mutex_t lock;
    connection_t conn; /* since the first request */
    int error;         /* the errno that ended the connection, or 0 */
    /* numbers of requests: the last one sent; the last that quiet completes, which are all but the messages of
     * barriers; the last for which a reply was asked; the last known to be executed */
    uint64_t sent, due, asked, executed;
    expected_t *queue;
    uint64_t first, count, room; /* the queue is a ring */
    char *into;                  /* where the rest of a reply goes */
    uint64_t rest, have;
    char in[CHUNK];
    struct sockaddr_storage address;
    socklen_t address_bytes;
    uint64_t fenced;                /* the last request before a fence */
    int64_t pending, pending_reads; /* writes and reads by the fabric that are under way; reads alone */
    uint64_t fences, settled;       /* fences since which some of them went on; those whose writes are complete */
    pthread_cond_t moved;
    int refused;        /* whether the target has refused a request since the last error */
    int reads, waiting; /* whether a thread that waits looks for replies; the threads that wait for it */
    int64_t progress;   /* when something last came */
    char *batch;        /* requests that are not sent yet, see batch.h */
    uint64_t batch_bytes, put_fences;
    int64_t put_at; /* when the last small put was made; put_fences: and after how many fences */
};

static inline link_t *link_to(uint64_t place) { return far->links[place_pe(place)]; }

INTERNAL int link_fail(link_t *l, int error);
INTERNAL int link_refuse(void);
INTERNAL int link_error(link_t *l);
INTERNAL int link_expect(link_t *l, expected_t e);
INTERNAL void link_abandon(link_t *l, uint64_t first, uint64_t last);
INTERNAL int link_read(link_t *l);
INTERNAL int link_is_late(link_t *l, int64_t since);
INTERNAL int link_poll(link_t *l, short events, int64_t since);
INTERNAL int link_await_since(link_t *l, uint64_t first, uint64_t last, int64_t begun);
INTERNAL int link_await(link_t *l, uint64_t first, uint64_t last);
INTERNAL int link_write(link_t *l, const struct iovec *buffers, int n);
