#include "fabric.h"

#include <errno.h>
#include <unistd.h>

/* Takes completions, those of ORIGIN with the lock. Returns how many. */
INTERNAL int fabric_progress(fabric_t *f, int end) {
    struct fi_cq_entry done[16];
    ssize_t n = f->cq[end]->ops->read(f->cq[end], done, 16);
    for (ssize_t i = 0; i < n; i++) {
        operation_t *o = done[i].op_context;
        o->complete(f, end, o, 0);
    }
    if (n != -FI_EAVAIL) return n > 0 ? (int)n : 0;
    struct fi_cq_err_entry failed = {0};
    if (f->cq[end]->ops->readerr(f->cq[end], &failed, 0) != 1 || !failed.op_context) return 0;
    operation_t *o = failed.op_context;
    o->complete(f, end, o, failed.err ? failed.err : EIO);
    return 1;
}

/* Whether a thread may sleep until the queue's descriptor can be read. */
INTERNAL int fabric_may_sleep(fabric_t *f, int end) {
    struct fid *queue = &f->cq[end]->fid;
    return f->fd[end] < 0 || f->fabric->ops->trywait(f->fabric, &queue, 1) == 0;
}

/* Whether the provider makes progress itself. */
INTERNAL int fabric_is_auto(const fabric_t *f) { return f->info->domain_attr->data_progress == FI_PROGRESS_AUTO; }

/* Lets the server go on with what is under way, unless the provider does so itself. */
INTERNAL void fabric_leave_to_server(fabric_t *f) {
    uint64_t one = 1;
    if (fabric_is_auto(f) || __atomic_load_n(&f->armed, __ATOMIC_SEQ_CST)) return;
    f->armed = 1;
    if (write(far->wake, &one, sizeof one) < 0) f->armed = 0;
}

/* Registers memory, for the endpoint if the provider wants it. Returns libfabric's code. */
INTERNAL int fabric_register(fabric_t *f, char *data, uint64_t nbytes, uint64_t access, uint64_t key, int end,
                             struct fid_mr **mr) {
    int code = f->domain->mr->reg(&f->domain->fid, data, nbytes, access, 0, key, 0, mr, NULL);
    if (code || !(f->info->domain_attr->mr_mode & FI_MR_ENDPOINT)) return code;
    code = (*mr)->fid.ops->bind(&(*mr)->fid, &f->ep[end]->fid, 0);
    return code ? code : (*mr)->fid.ops->control(&(*mr)->fid, FI_ENABLE, NULL);
}
