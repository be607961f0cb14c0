/* Puts and gets by remote memory access of a fabric, through libfabric, which is loaded when the program runs.
 *
 * All writes are delivery-complete: a completion says that the data are in place, which the self-test at init verifies.
 * A write or a read waits for the requests before the last fence. A request to a PE waits for this PE's writes to it,
 * unless it goes by a message of the fabric and the provider keeps messages behind writes (FI_ORDER_SAW). */
#pragma once
#include "_wires.h"

static int by_fabric(uint64_t place, uint64_t nbytes) {
    fabric_t *f = far->fabric;
    return f && nbytes && nbytes >= f->least && !(offset_of(place) & FAR_GPU);
}

/* ---- puts and gets ---- */

/* Waits until requests to the PE have been executed: those before the last fence, or all. The link is not locked. */
static int after_requests(link_t *l, int all) {
    if (pthread_mutex_lock(&l->lock)) return -1;
    uint64_t last = all ? l->sent : l->fenced;
    request_t flush = {.op = FLUSH};
    int failed = l->error != 0;
    if (!failed && l->executed < last && l->asked < last) failed = request(l, &flush, NULL, 0);
    if (l->asked > last) last = l->asked;
    int waits = !failed && l->executed < last && (all || l->executed < l->fenced);
    pthread_mutex_unlock(&l->lock);
    return failed || (waits && link_await(l, UINT64_MAX, last)) ? -1 : 0;
}

static int register_memory(fabric_t *f, char *data, uint64_t nbytes, uint64_t access, uint64_t key, int side,
                           struct fid_mr **mr) {
    int code = f->domain->mr->reg(&f->domain->fid, data, nbytes, access, 0, key, 0, mr, NULL);
    if (code || !(f->info->domain_attr->mr_mode & FI_MR_ENDPOINT)) return code;
    code = (*mr)->fid.ops->bind(&(*mr)->fid, &f->ep[side]->fid, 0);
    return code ? code : (*mr)->fid.ops->control(&(*mr)->fid, FI_ENABLE, NULL);
}

/* Finds what a provider needs to access local memory. Registers it if necessary. Returns an errno. */
static int describe(fabric_t *f, flight_t *a, char *data, uint64_t nbytes, uint64_t access, void **description) {
    *description = NULL;
    if (!(f->info->domain_attr->mr_mode & FI_MR_LOCAL)) return 0;
    struct fid_mr *mr = a->bounce ? f->bounces : NULL;
    int bound = (f->info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0; /* the heap's to TARGET */
    if (!bound && data >= far->base && data + nbytes <= far->base + far->length) mr = f->heap;
    if (!mr) { /* providers that register slowly keep registrations themselves */
        int code = register_memory(f, data, nbytes, access, 0, ORIGIN, &a->mr);
        if (code) return -code;
        mr = a->mr;
    }
    *description = mr->mem_desc;
    return 0;
}

/* Begins one write or read. Called with the lock. Returns 0, EAGAIN, or an errno. */
static int take_off(fabric_t *f, link_t *l, uint64_t offset, char *data, uint64_t nbytes, int writes) {
    flight_t *a = f->spare ? f->spare : calloc(1, sizeof *a);
    if (!a) return ENOMEM;
    if (f->spare) f->spare = a->next;
    int small = nbytes <= BOUNCE;
    *a = (flight_t){.kind = FLIGHT, .link = l, .dest = writes ? NULL : data, .nbytes = nbytes, .reads = !writes};
    int error = small && !f->n_idle ? EAGAIN : 0;
    if (!error && small) a->bounce = f->idle[--f->n_idle];
    if (a->bounce && writes) memcpy(a->bounce, data, nbytes);
    char *local = a->bounce ? a->bounce : data;
    void *description;
    if (!error) error = describe(f, a, local, nbytes, writes ? FI_WRITE : FI_READ, &description);
    const remote_t *r = &f->remotes[l->pe];
    if (!error) {
        struct fid_ep *e = f->ep[ORIGIN];
        uint64_t at = r->base + offset;
        ssize_t code = writes ? e->rma->write(e, local, nbytes, description, r->address, at, r->key, a)
                              : e->rma->read(e, local, nbytes, description, r->address, at, r->key, a);
        error = (int)-code;
    }
    if (a->reads) __atomic_add_fetch(&l->reading, 1, __ATOMIC_RELEASE);
    __atomic_add_fetch(&l->flying, 1, __ATOMIC_RELEASE), __atomic_add_fetch(&f->flying, 1, __ATOMIC_SEQ_CST);
    if (error) a->dest = NULL, land(f, a);
    return error;
}

/* Begins a write or a read of any size, and waits for its end if `wait`. */
static link_t *fly(uint64_t place, char *data, uint64_t nbytes, int writes, int wait) {
    fabric_t *f = far->fabric;
    link_t *l = link_to(place);
    uint64_t offset = offset_of(place), most = f->info->ep_attr->max_msg_size;
    if (most > MOST_AT_ONCE) most = MOST_AT_ONCE;
    if (after_requests(l, !writes) || (!writes && fabric_settle(l))) return l;
    int64_t since = now_ns();
    while (nbytes) {
        uint64_t now = nbytes < most ? nbytes : most;
        pthread_mutex_lock(&f->lock);
        int error = l->error ? l->error : take_off(f, l, offset, data, now, writes);
        if (error == EAGAIN && take_completions(f, ORIGIN)) since = now_ns();
        int64_t limit = wait_limit();
        if (error == EAGAIN && limit && now_ns() - since > limit) error = ETIMEDOUT;
        pthread_mutex_unlock(&f->lock);
        if (error == EAGAIN) {
            if (far->spins <= CROWDED) sched_yield();
            if (writes && check_signals()) return l;
            continue;
        }
        if (error) {
            l->error = error;
            return l;
        }
        offset += now, data += now, nbytes -= now;
    }
    if (wait) return fabric_wait(f, l) ? l : NULL;
    leave_to_service(f);
    return NULL;
}

/* The source of a put may be used again on return. */
static link_t *fabric_put(uint64_t place, const char *source, uint64_t nbytes) {
    return fly(place, (char *)source, nbytes, 1, nbytes > BOUNCE);
}
/* As fabric_put, but the caller waits for the end after a request to the PE, which the provider may keep behind it. */
static link_t *fabric_put_before(uint64_t place, const char *source, uint64_t nbytes) {
    return fly(place, (char *)source, nbytes, 1, !follows_writes(link_to(place)));
}
static link_t *fabric_get(char *dest, uint64_t place, uint64_t nbytes, int wait) {
    return fly(place, dest, nbytes, 0, wait);
}
