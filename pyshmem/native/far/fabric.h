/* A fabric: its endpoints, memory that is registered with it, and progress.
 *
 * Each PE has two endpoints: TARGET, that far PEs write to, read from and send requests to, which the server serves,
 * and ORIGIN, from which this PE writes, reads and sends requests, and at which replies arrive. A fabric with hardware
 * for it needs nothing else of the target of writes and reads; for others the target's server makes progress, woken by
 * the descriptor of the completion queue. */
#pragma once
#include "far.h"
#include "libfabric.h"

/* BOUNCE: the most bytes of data that pass through memory which is registered already. ARMED_NS: without anything under
 * way, after which the server of a provider that needs it looks no more. */
enum { BOUNCE = 8192, BOUNCES = 64, FABRIC_SLICE_MS = 1, ARMED_NS = 100000000 };

/* address: of the PE's TARGET; replies: of its ORIGIN. pass, expected: of messages to it and from it. */
typedef struct {
    uint64_t address, replies;
    uint64_t key, base;
    uint64_t pass[2], expected[2];
} remote_t;

/* A part of the GPU heap, of `nbytes` from `offset`, which grows by such parts. mr: as accessed by far PEs, and by this
 * one, if that is another registration. keys, bases: of the same part of each PE. */
typedef struct {
    uint64_t offset, nbytes;
    struct fid_mr *mr[2];
    uint64_t *keys, *bases;
} region_t;

typedef struct fabric {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq[2];
    struct fid_ep *ep[2];
    struct fid_mr *heap, *bounces, *message_memory[2];
    int fd[2];
    remote_t *remotes;    /* by PE */
    pthread_mutex_t lock; /* of ORIGIN's completion queue and of the lists */
    char *bounce;         /* their memory */
    char *idle[BOUNCES];
    struct message *messages[2], *unused[2]; /* the memory of all; those that can be sent */
    int n_idle, armed; /* armed: the server looks every FABRIC_SLICE_MS, until nothing is pending for ARMED_NS */
    int messaging;     /* whether requests go by messages */
    int full;          /* a message of the server did not fit into the provider's queue */
    int64_t active;
    struct rma *spare;
    int64_t pending; /* writes, reads and messages of ORIGIN under way; each link counts its own writes and reads too */
    uint64_t least;  /* bytes of a put or a get that goes by the fabric; words of fewer may be torn by a provider */
    uint64_t gpu;    /* the address of this PE's GPU heap */
    int hmem;        /* whether the provider takes GPU memory */
    region_t *regions, next; /* those that all PEs have registered; that of this PE which others may not have */
    int n_regions;
    uint64_t order; /* what the provider promises: FI_ORDER_SAS, FI_ORDER_SAW */
} fabric_t;

/* What the provider works on. context belongs to it. complete: called at the end; error: an errno, or 0. */
typedef struct operation {
    struct fi_context2 context;
    void (*complete)(fabric_t *f, int end, struct operation *o, int error);
} operation_t;

INTERNAL int fabric_progress(fabric_t *f, int end);
INTERNAL int fabric_may_sleep(fabric_t *f, int end);
INTERNAL int fabric_is_auto(const fabric_t *f);
INTERNAL void fabric_leave_to_server(fabric_t *f);
INTERNAL int fabric_register(fabric_t *f, char *data, uint64_t nbytes, uint64_t access, uint64_t key, int end,
                             struct fid_mr **mr);
