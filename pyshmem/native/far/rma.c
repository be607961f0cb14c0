#include "rma.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "../base/copy.h"
#include "../base/host.h"
#include "../base/spin.h"
#include "batch.h"

enum { MOST_AT_ONCE = 1 << 30 };

/* A write or a read under way. bounce: its memory, or NULL; dest: where the data of a read go then. mr: to be closed at
 * the end, or NULL. */
typedef struct rma {
    operation_t operation;
    struct rma *next;
    link_t *link;
    char *bounce, *dest;
    uint64_t nbytes;
    struct fid_mr *mr;
    int reads;
} rma_t;

/* The registered part of the GPU heap at an offset, or NULL. The parts leave no gaps. */
INTERNAL region_t *region_at(fabric_t *f, uint64_t offset) {
    offset &= ~FAR_GPU;
    for (int i = __atomic_load_n(&f->n_regions, __ATOMIC_ACQUIRE) - 1; i >= 0; i--)
        if (offset >= f->regions[i].offset && offset - f->regions[i].offset < f->regions[i].nbytes)
            return &f->regions[i];
    return NULL;
}

/* The registered part of this PE's own GPU heap that has all of these bytes, or NULL. */
INTERNAL region_t *region_of(fabric_t *f, const char *data, uint64_t nbytes) {
    uint64_t offset = (uint64_t)data - f->gpu;
    region_t *r = f->n_regions ? region_at(f, offset) : NULL;
    return r && nbytes <= r->nbytes - (offset - r->offset) ? r : NULL;
}

INTERNAL int rma_takes(uint64_t place, uint64_t nbytes) {
    fabric_t *f = far->fabric;
    uint64_t offset = place_offset(place);
    return f && nbytes && nbytes >= f->least && (!(offset & FAR_GPU) || region_at(f, offset + nbytes - 1));
}

/* ---- under way ---- */

static void rma_end(fabric_t *f, rma_t *a) {
    if (a->bounce && a->reads && a->dest) copy_unaligned(a->dest, a->bounce, a->nbytes);
    if (a->bounce) f->idle[f->n_idle++] = a->bounce;
    if (a->mr) a->mr->fid.ops->close(&a->mr->fid);
    if (a->reads) __atomic_sub_fetch(&a->link->pending_reads, 1, __ATOMIC_RELEASE);
    __atomic_sub_fetch(&a->link->pending, 1, __ATOMIC_RELEASE);
    __atomic_sub_fetch(&f->pending, 1, __ATOMIC_RELEASE);
    a->next = f->spare, f->spare = a;
}

static void rma_completed(fabric_t *f, int end, operation_t *o, int error) {
    rma_t *a = (rma_t *)o;
    (void)end;
    if (error) __atomic_store_n(&a->link->error, error, __ATOMIC_RELEASE), a->dest = NULL;
    rma_end(f, a);
}

/* Waits for the writes and reads of this PE to and from another one. Returns -1 for a failure; if that is an exception,
 * no reads are under way any more. */
static int rma_wait(fabric_t *f, link_t *l) {
    int64_t since = now_ns();
    while (__atomic_load_n(&l->pending, __ATOMIC_ACQUIRE) > 0) {
        pthread_mutex_lock(&f->lock);
        int came = fabric_progress(f, ORIGIN);
        int sleeps = !came && f->fd[ORIGIN] >= 0 && now_ns() - since > SPIN_NS && fabric_may_sleep(f, ORIGIN);
        pthread_mutex_unlock(&f->lock);
        if (came) since = now_ns();
        if (sleeps) poll(&(struct pollfd){f->fd[ORIGIN], POLLIN, 0}, 1, FABRIC_SLICE_MS);
        if (!came && !sleeps) far_pause();
        if (caller_interrupted() && !__atomic_load_n(&l->pending_reads, __ATOMIC_ACQUIRE)) return -1;
        if (far_is_late(since)) l->error = ETIMEDOUT;
        if (l->error == ETIMEDOUT) return -1;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return l->error || caller.raised ? -1 : 0;
}

/* Waits for the writes and reads of this PE to and from another one. */
INTERNAL int rma_settle(link_t *l) {
    return __atomic_load_n(&l->pending, __ATOMIC_ACQUIRE) > 0 ? rma_wait(far->fabric, l) : 0;
}

/* Waits for all of them. Returns a link that has failed, or NULL. */
INTERNAL link_t *rma_quiet(void) {
    fabric_t *f = far->fabric;
    link_t *failed = NULL;
    for (int pe = 0; f && f->pending && pe < far->n_pes && !failed; pe++)
        if (far->links[pe] && rma_settle(far->links[pe])) failed = far->links[pe];
    return failed;
}

/* Lets later writes to each PE wait for those so far. */
INTERNAL void rma_fence(void) {
    fabric_t *f = far->fabric;
    for (int pe = 0; f && __atomic_load_n(&f->pending, __ATOMIC_ACQUIRE) && pe < far->n_pes; pe++)
        if (far->links[pe] && __atomic_load_n(&far->links[pe]->pending, __ATOMIC_ACQUIRE))
            __atomic_add_fetch(&far->links[pe]->fences, 1, __ATOMIC_ACQ_REL);
}

/* ---- puts and gets ---- */

/* Waits until requests to the PE have been executed: those before the last fence, or all. The link is not locked. */
static int rma_await_requests(link_t *l, int all) {
    if (pthread_mutex_lock(&l->lock)) return -1;
    uint64_t last = all ? l->sent : l->fenced;
    request_t flush = {.op = FLUSH};
    int failed = l->error != 0;
    if (!failed && l->executed < last && l->asked < last) failed = link_send(l, &flush, NULL, 0);
    if (l->asked > last) last = l->asked;
    int waits = !failed && l->executed < last && (all || l->executed < l->fenced);
    pthread_mutex_unlock(&l->lock);
    return failed || (waits && link_await(l, UINT64_MAX, last)) ? -1 : 0;
}

/* Finds what a provider needs to access local memory. Registers it if necessary. Returns an errno. */
static int rma_describe(fabric_t *f, rma_t *a, char *data, uint64_t nbytes, uint64_t access, void **description) {
    region_t *own = a->bounce ? NULL : region_of(f, data, nbytes);
    *description = own ? own->mr[ORIGIN]->mem_desc : NULL;
    if (own || !(f->info->domain_attr->mr_mode & FI_MR_LOCAL)) return 0;
    struct fid_mr *mr = a->bounce ? f->bounces : NULL;
    int bound = (f->info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0; /* the heap's to TARGET */
    if (!bound && data >= far->base && data + nbytes <= far->base + far->length) mr = f->heap;
    if (!mr) { /* providers that register slowly keep registrations themselves */
        int code = fabric_register(f, data, nbytes, access, 0, ORIGIN, &a->mr);
        if (code) return -code;
        mr = a->mr;
    }
    *description = mr->mem_desc;
    return 0;
}

/* Begins one write or read. Called with the lock. Returns 0, EAGAIN, or an errno. */
static int rma_begin(fabric_t *f, link_t *l, uint64_t offset, char *data, uint64_t nbytes, int writes) {
    rma_t *a = f->spare ? f->spare : calloc(1, sizeof *a);
    if (!a) return ENOMEM;
    if (f->spare) f->spare = a->next;
    int small = nbytes <= BOUNCE && !region_of(f, data, nbytes);
    *a = (rma_t){.operation.complete = rma_completed,
                 .link = l,
                 .dest = writes ? NULL : data,
                 .nbytes = nbytes,
                 .reads = !writes};
    int error = small && !f->n_idle ? EAGAIN : 0;
    if (!error && small) a->bounce = f->idle[--f->n_idle];
    if (a->bounce && writes) memcpy(a->bounce, data, nbytes);
    char *local = a->bounce ? a->bounce : data;
    void *description;
    if (!error) error = rma_describe(f, a, local, nbytes, writes ? FI_WRITE : FI_READ, &description);
    const remote_t *r = &f->remotes[l->conn.pe];
    if (!error) {
        struct fid_ep *e = f->ep[ORIGIN];
        region_t *part = offset & FAR_GPU ? region_at(f, offset) : NULL;
        uint64_t at = part ? part->bases[l->conn.pe] + (offset & ~FAR_GPU) - part->offset : r->base + offset;
        uint64_t key = part ? part->keys[l->conn.pe] : r->key;
        ssize_t code = writes ? e->rma->write(e, local, nbytes, description, r->address, at, key, a)
                              : e->rma->read(e, local, nbytes, description, r->address, at, key, a);
        error = (int)-code;
    }
    if (a->reads) __atomic_add_fetch(&l->pending_reads, 1, __ATOMIC_RELEASE);
    __atomic_add_fetch(&l->pending, 1, __ATOMIC_RELEASE), __atomic_add_fetch(&f->pending, 1, __ATOMIC_SEQ_CST);
    if (error) a->dest = NULL, rma_end(f, a);
    return error;
}

/* How many of the bytes are in one part of the GPU heap at both ends. */
static uint64_t rma_within_parts(fabric_t *f, uint64_t offset, const char *data, uint64_t nbytes) {
    region_t *there = offset & FAR_GPU ? region_at(f, offset) : NULL, *here = region_of(f, data, 1);
    uint64_t end = there ? there->nbytes - ((offset & ~FAR_GPU) - there->offset) : nbytes;
    uint64_t own = here ? here->nbytes - ((uint64_t)data - f->gpu - here->offset) : nbytes;
    end = end < own ? end : own;
    return nbytes < end ? nbytes : end;
}

/* Begins a write or a read of any size, and waits for its end if `wait`. */
static link_t *rma_move(uint64_t place, char *data, uint64_t nbytes, int writes, int wait) {
    fabric_t *f = far->fabric;
    link_t *l = link_to(place);
    uint64_t offset = place_offset(place), most = f->info->ep_attr->max_msg_size;
    if (most > MOST_AT_ONCE) most = MOST_AT_ONCE;
    uint64_t fences = __atomic_load_n(&l->fences, __ATOMIC_ACQUIRE);
    int settles = !writes || fences != __atomic_load_n(&l->settled, __ATOMIC_ACQUIRE);
    if (rma_await_requests(l, !writes) || (settles && rma_settle(l))) return l;
    if (settles) __atomic_store_n(&l->settled, fences, __ATOMIC_RELEASE);
    int64_t since = now_ns();
    while (nbytes) {
        uint64_t now = nbytes < most ? nbytes : most;
        now = rma_within_parts(f, offset, data, now);
        pthread_mutex_lock(&f->lock);
        int error = l->error ? l->error : rma_begin(f, l, offset, data, now, writes);
        if (error == EAGAIN && fabric_progress(f, ORIGIN)) since = now_ns();
        if (error == EAGAIN && far_is_late(since)) error = ETIMEDOUT;
        pthread_mutex_unlock(&f->lock);
        if (error == EAGAIN) {
            far_pause();
            if (writes && caller_interrupted()) return l;
            continue;
        }
        if (error) {
            if (error == ENOMEM && !rma_settle(l))
                link_refuse(); /* no memory, or not to be registered */
            else
                l->error = error;
            return l;
        }
        offset += now, data += now, nbytes -= now;
    }
    if (wait) return rma_wait(f, l) ? l : NULL;
    fabric_leave_to_server(f);
    return NULL;
}

/* The source of a put may be used again on return. */
INTERNAL link_t *rma_put(uint64_t place, const char *source, uint64_t nbytes) {
    return rma_move(place, (char *)source, nbytes, 1, nbytes > BOUNCE || region_of(far->fabric, source, 1));
}
/* As fabric_put, but the caller waits for the end after a request to the PE, which the provider may keep behind it. */
INTERNAL link_t *rma_put_before(uint64_t place, const char *source, uint64_t nbytes) {
    return rma_move(place, (char *)source, nbytes, 1, !link_to(place)->conn.carrier->keeps_writes());
}
INTERNAL link_t *rma_get(char *dest, uint64_t place, uint64_t nbytes, int wait) {
    return rma_move(place, dest, nbytes, 0, wait);
}

/* Frees what is kept for the next ones. */
INTERNAL void rma_close(fabric_t *f) {
    for (rma_t *a; (a = f->spare);) f->spare = a->next, free(a);
}
