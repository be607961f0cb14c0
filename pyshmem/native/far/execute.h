/* Execution of the requests of far PEs on this PE's part of the heaps. It uses the same atomics and stores as near PEs,
 * so near and far PEs may use one word. */
#pragma once
#include "far.h"

enum { IN_BYTES = 2 * CHUNK, OUT_BYTES = 2 * CHUNK };
enum { STAGE = 1 << 18 }; /* bytes of memory through which data of the GPU heap pass at once */

/* The connection from a far PE. have: the bytes of requests that have come. into, rest: the payload that is coming.
 * out: replies that wait; tail: data that follow them. executed: the number of requests. on_gpu, tail_on_gpu: whether
 * into and tail are in GPU memory. begun, op, nbytes: of the request under way, for a timeline. */
typedef struct session {
    connection_t conn; /* the first field: the server finds a session by its connection */
    struct session *next, *next_free;
    /* left: it has said goodbye. ended: it is to be freed. waits: for the GPU, or for its turn */
    int writing, asks, left, on_gpu, tail_on_gpu, ended, waits;
    hello_t hello;
    uint64_t nonce[2], challenged; /* challenged: whether the nonce has been sent */
    int64_t since;                 /* by the server's clock */
    uint64_t executed, have, rest, out_at, out_end, tail_left;
    int64_t begun;
    uint64_t op, nbytes;
    char *into;
    const char *tail;
    char in[IN_BYTES] __attribute__((aligned(8))), out[OUT_BYTES] __attribute__((aligned(8)));
} session_t;

/* Executes requests on the GPU heap (execute_gpu.c). The functions that return an int return the driver's code, but
 * is_within. hold: finds the next data of a reply. busy: a request waits for the GPU. */
typedef struct gpu_executor {
    int (*is_within)(uint64_t offset, uint64_t nbytes);
    char *(*address)(uint64_t offset);
    char *(*staging)(void);
    int (*copy)(void *to, const void *from, uint64_t nbytes);
    int (*hold)(session_t *p, const char **from, uint64_t *nbytes);
    int (*execute)(session_t *p, const request_t *r, const char *payload);
    void (*warm)(void);
    int busy;
} gpu_executor_t;

INTERNAL int request_is_valid(const request_t *r);
INTERNAL void execute_request(session_t *p, const request_t *r, const char *payload);
INTERNAL void session_begin_request(session_t *p, const request_t *r);
INTERNAL void session_end_request(session_t *p);
INTERNAL void session_reply(session_t *p, uint64_t value, uint64_t nbytes);
INTERNAL void session_store_part(session_t *p, const char *data, uint64_t nbytes);
INTERNAL void session_check_gpu(const session_t *p, int code);
INTERNAL void end_process(void);
