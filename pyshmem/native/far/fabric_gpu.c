#include "fabric_gpu.h"

#include <errno.h>

#include "fabric_open.h"
#include "greeting.h"

static int region_register(fabric_t *f, region_t *r, uint64_t iface, uint64_t device, int end) {
    struct iovec v = {(char *)f->gpu + r->offset, r->nbytes};
    uint64_t key[2], access = FI_READ | FI_WRITE | (end == TARGET ? FI_REMOTE_READ | FI_REMOTE_WRITE : 0);
    size_t bytes = f->info->domain_attr->mr_key_size;
    if (fresh_nonce(key)) return -errno;
    if (bytes < 8) key[0] &= (UINT64_C(1) << 8 * bytes) - 1;
    struct {
        struct fi_mr_attr attributes;
        uint64_t later[8]; /* fields of later versions */
    } about = {.attributes = {.mr_iov = &v,
                              .iov_count = 1,
                              .access = access,
                              .requested_key = key[0],
                              .iface = (int)iface,
                              .device = device}};
    int code = f->domain->mr->regattr(&f->domain->fid, &about.attributes, 0, &r->mr[end]);
    if (code || !(f->info->domain_attr->mr_mode & FI_MR_ENDPOINT)) return code;
    struct fid *mr = &r->mr[end]->fid;
    code = mr->ops->bind(mr, &f->ep[end]->fid, 0);
    return code ? code : mr->ops->control(mr, FI_ENABLE, NULL);
}

/* Registers a part of the GPU heap, which begins at `heap`, for both endpoints. iface: of libfabric; 0 is CPU memory.
 * Returns libfabric's code. */
INTERNAL int region_prepare(fabric_t *f, uint64_t heap, const region_t *part, uint64_t iface, uint64_t device) {
    int bound = (f->info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
    region_forget(&f->next);
    f->gpu = heap, f->next = (region_t){.offset = part->offset, .nbytes = part->nbytes};
    int code = region_register(f, &f->next, iface, device, TARGET);
    if (!code && bound) code = region_register(f, &f->next, iface, device, ORIGIN);
    if (!bound) f->next.mr[ORIGIN] = f->next.mr[TARGET];
    if (code) region_forget(&f->next);
    return code;
}

/* Puts and gets use the part that has been prepared, whose keys and bases are filled. The proxy may look for a part
 * meanwhile. */
INTERNAL void region_admit(fabric_t *f) {
    f->regions[f->n_regions] = f->next, f->next = (region_t){0};
    __atomic_store_n(&f->n_regions, f->n_regions + 1, __ATOMIC_RELEASE);
}
