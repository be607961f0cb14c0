/* What PEs of different nodes send to each other: the layouts, and nothing else.
 *
 * A PE that calls another one connects to its server. The caller sends a hello_t, the server answers with a
 * challenge_t, the caller with its code, a uint64_t (greeting.h), and a reply whose value is the number of the server's
 * PE welcomes it. From then on the caller sends requests, and the server executes them in order. These bytes go by a
 * TCP connection, or in messages of a fabric, which begin with a message_head_t. The bytes of a number are in the order
 * of the machine. */
#pragma once
#include <stdint.h>

/* Compared in the greeting: a change of anything below is another version. */
enum { PROTOCOL_VERSION = 4 };
#define PROTOCOL_NAME "pyshmem"

/* ---- greeting ---- */

typedef struct {
    char name[7];
    uint8_t version;
    uint64_t job;
    int32_t pe, n_pes;
    uint64_t nonce[2];
} hello_t;

typedef struct {
    uint64_t nonce[2], code;
} challenge_t;

/* ---- requests and replies ---- */

/* POST: the epoch of a barrier. HOLD: of the self-test of a fabric. */
enum { PUT = 1, GET, PUT_STRIDED, GET_STRIDED, UPDATE, FETCH, POST, FLUSH, BYE, HOLD };

/* The most bytes of a strided request. Other data of at most so many bytes are stored, or read, at once. */
enum { CHUNK = 8192 };

/* offset, nbytes: the memory at the target. asks: whether the target acknowledges the request at once. PUT: nbytes
 * follow. PUT_STRIDED: nbytes of items follow, which are `value` bytes apart at the target; detail: bytes of
 * an item. GET_STRIDED likewise, but the items follow in the reply. UPDATE, FETCH: detail is operator * 16 + type.
 * POST: cond is the offset of the word that tells whether the target sleeps. */
typedef struct {
    uint16_t op, asks;
    uint32_t detail;
    uint64_t offset, nbytes, value, cond;
} request_t;

static inline uint64_t request_data(const request_t *r) { return r->op == PUT || r->op == PUT_STRIDED ? r->nbytes : 0; }

/* executed: the number of requests that have been executed, the greeting among them: a reply completes all of these.
 * nbytes follow; MISALIGNED in its place: the request was an atomic of a word that is not aligned. */
#define MISALIGNED UINT64_MAX
typedef struct {
    uint64_t executed, value, nbytes;
} reply_t;

/* ---- messages of a fabric ---- */

/* pass: what no other process can know. number: the low bits of that of this message, by which they are put in order:
 * libfabric promises none for completions. taken: the low bits of the number of messages of the other side that the
 * sender has taken. nbytes follow; without any the message has no number. */
typedef struct {
    uint64_t pass;
    uint32_t from;
    uint8_t number, taken;
    uint16_t nbytes;
} message_head_t;

enum { MESSAGE = CHUNK + 2 * sizeof(request_t) }; /* the most bytes in a message, such as those of a put_signal */

/* ---- places ---- */

/* A place is the address of memory on another node's PE: (PE + 1) << FAR_SHIFT, plus the offset in that PE's part of
 * the CPU heap, or plus FAR_GPU and the offset in its part of the GPU heap. Requests have the offset. All other
 * addresses are of CPU memory here. */
enum { FAR_SHIFT = 48 };
#define FAR_GPU (UINT64_C(1) << 47)

static inline int is_far(uint64_t place) { return place >> FAR_SHIFT != 0 && place >> 63 == 0; }
static inline uint64_t place_pe(uint64_t place) { return (place >> FAR_SHIFT) - 1; }
static inline uint64_t place_offset(uint64_t place) { return place & ((UINT64_C(1) << FAR_SHIFT) - 1); }
