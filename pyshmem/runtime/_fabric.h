/* Puts and gets by remote memory access of a fabric, through libfabric, which is loaded when the program runs.
 *
 * All writes are delivery-complete: a completion says that the data are in place, which the self-test at init verifies.
 * A write or a read waits for the requests before the last fence. A request to a PE waits for this PE's writes to it,
 * unless it goes by a message of the fabric and the provider keeps messages behind writes (FI_ORDER_SAW). */
#pragma once
#include "_wires.h"

/* The registered part of the GPU heap at an offset, or NULL. The parts leave no gaps. */
static region_t *region_at(fabric_t *f, uint64_t offset) {
    offset &= ~FAR_GPU;
    for (int i = __atomic_load_n(&f->n_regions, __ATOMIC_ACQUIRE) - 1; i >= 0; i--)
        if (offset >= f->regions[i].offset && offset - f->regions[i].offset < f->regions[i].nbytes)
            return &f->regions[i];
    return NULL;
}

/* The registered part of this PE's own GPU heap that has all of these bytes, or NULL. */
static region_t *own_region(fabric_t *f, const char *data, uint64_t nbytes) {
    uint64_t offset = (uint64_t)data - f->gpu;
    region_t *r = f->n_regions ? region_at(f, offset) : NULL;
    return r && nbytes <= r->nbytes - (offset - r->offset) ? r : NULL;
}

static int by_fabric(uint64_t place, uint64_t nbytes) {
    fabric_t *f = far->fabric;
    uint64_t offset = offset_of(place);
    return f && nbytes && nbytes >= f->least && (!(offset & FAR_GPU) || region_at(f, offset + nbytes - 1));
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
    region_t *own = a->bounce ? NULL : own_region(f, data, nbytes);
    *description = own ? own->mr[ORIGIN]->mem_desc : NULL;
    if (own || !(f->info->domain_attr->mr_mode & FI_MR_LOCAL)) return 0;
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
    int small = nbytes <= BOUNCE && !own_region(f, data, nbytes);
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
        region_t *part = offset & FAR_GPU ? region_at(f, offset) : NULL;
        uint64_t at = part ? part->bases[l->pe] + (offset & ~FAR_GPU) - part->offset : r->base + offset;
        uint64_t key = part ? part->keys[l->pe] : r->key;
        ssize_t code = writes ? e->rma->write(e, local, nbytes, description, r->address, at, key, a)
                              : e->rma->read(e, local, nbytes, description, r->address, at, key, a);
        error = (int)-code;
    }
    if (a->reads) __atomic_add_fetch(&l->reading, 1, __ATOMIC_RELEASE);
    __atomic_add_fetch(&l->flying, 1, __ATOMIC_RELEASE), __atomic_add_fetch(&f->flying, 1, __ATOMIC_SEQ_CST);
    if (error) a->dest = NULL, land(f, a);
    return error;
}

/* How many of the bytes are in one part of the GPU heap at both ends. */
static uint64_t within_parts(fabric_t *f, uint64_t offset, const char *data, uint64_t nbytes) {
    region_t *there = offset & FAR_GPU ? region_at(f, offset) : NULL, *here = own_region(f, data, 1);
    uint64_t end = there ? there->nbytes - ((offset & ~FAR_GPU) - there->offset) : nbytes;
    uint64_t own = here ? here->nbytes - ((uint64_t)data - f->gpu - here->offset) : nbytes;
    end = end < own ? end : own;
    return nbytes < end ? nbytes : end;
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
        now = within_parts(f, offset, data, now);
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
            if (error == ENOMEM && !fabric_settle(l))
                refuse_call(); /* no memory, or not to be registered */
            else
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
    return fly(place, (char *)source, nbytes, 1, nbytes > BOUNCE || own_region(far->fabric, source, 1));
}
/* As fabric_put, but the caller waits for the end after a request to the PE, which the provider may keep behind it. */
static link_t *fabric_put_before(uint64_t place, const char *source, uint64_t nbytes) {
    return fly(place, (char *)source, nbytes, 1, !follows_writes(link_to(place)));
}
static link_t *fabric_get(char *dest, uint64_t place, uint64_t nbytes, int wait) {
    return fly(place, dest, nbytes, 0, wait);
}
