#include "fabric_open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "calls.h"
#include "carrier_fabric.h"
#include "carrier_tcp.h"
#include "greeting.h"
#include "rma.h"

/* Asks for endpoints with what is needed here. provider: NULL for all. order: that of messages. Returns libfabric's
 * code.
 */
INTERNAL int fabric_offers(const char *provider, const char *node, uint64_t order, int hmem, struct fi_info **found) {
    struct fi_info *wish = libfabric.dupinfo(NULL);
    if (!wish) return -ENOMEM;
    wish->ep_attr->type = FI_EP_RDM;
    wish->caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    wish->mode = FI_CONTEXT | FI_CONTEXT2;
    wish->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    if (hmem) wish->caps |= FI_HMEM, wish->domain_attr->mr_mode |= FI_MR_HMEM;
    wish->domain_attr->threading = FI_THREAD_SAFE;
    wish->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    wish->tx_attr->msg_order = wish->rx_attr->msg_order = order;
    wish->fabric_attr->prov_name = provider ? strdup(provider) : NULL;
    int here = !provider || wish->fabric_attr->prov_name; /* without a name all would be offered */
    int code = here ? libfabric.getinfo(FI_VERSION_1_14, node, NULL, node ? FI_SOURCE : 0, wish, found) : -ENOMEM;
    libfabric.freeinfo(wish);
    return code;
}

INTERNAL void region_forget(region_t *r) {
    if (r->mr[ORIGIN] && r->mr[ORIGIN] != r->mr[TARGET]) r->mr[ORIGIN]->fid.ops->close(&r->mr[ORIGIN]->fid);
    if (r->mr[TARGET]) r->mr[TARGET]->fid.ops->close(&r->mr[TARGET]->fid);
    free(r->keys), free(r->bases);
    *r = (region_t){0};
}

INTERNAL void regions_forget(fabric_t *f) {
    for (; f->n_regions; f->n_regions--) region_forget(&f->regions[f->n_regions - 1]);
}

INTERNAL void fabric_close(fabric_t *f) {
    if (!f) return;
    struct fid *parts[] = {f->ep[TARGET] ? &f->ep[TARGET]->fid : NULL,
                           f->ep[ORIGIN] ? &f->ep[ORIGIN]->fid : NULL,
                           f->heap ? &f->heap->fid : NULL,
                           f->bounces ? &f->bounces->fid : NULL,
                           f->message_memory[TARGET] ? &f->message_memory[TARGET]->fid : NULL,
                           f->message_memory[ORIGIN] ? &f->message_memory[ORIGIN]->fid : NULL,
                           f->cq[TARGET] ? &f->cq[TARGET]->fid : NULL,
                           f->cq[ORIGIN] ? &f->cq[ORIGIN]->fid : NULL,
                           f->av ? &f->av->fid : NULL,
                           f->domain ? &f->domain->fid : NULL,
                           f->fabric ? &f->fabric->fid : NULL};
    for (int i = 0; i < 2; i++) /* no registration outlives its endpoint, nor a domain its registrations */
        if (parts[i]) parts[i]->ops->close(parts[i]);
    region_forget(&f->next);
    regions_forget(f);
    for (size_t i = 2; i < sizeof parts / sizeof *parts; i++)
        if (parts[i]) parts[i]->ops->close(parts[i]);
    rma_close(f);
    if (f->info) libfabric.freeinfo(f->info);
    free(f->regions), free(f->messages[TARGET]), free(f->messages[ORIGIN]), free(f->remotes), free(f->bounce), free(f);
}

static int fabric_open_endpoint(fabric_t *f, int end) {
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD, .size = 1024};
    struct fid_domain *domain = f->domain;
    int sleeps = 1, code = domain->ops->cq_open(domain, &queue, &f->cq[end], NULL);
    if (code) { /* this provider has no descriptors */
        queue.wait_obj = FI_WAIT_NONE, sleeps = 0;
        code = domain->ops->cq_open(domain, &queue, &f->cq[end], NULL);
    }
    f->fd[end] = -1;
    if (!code) code = domain->ops->endpoint(domain, f->info, &f->ep[end], NULL);
    if (code) return code;
    struct fid *endpoint = &f->ep[end]->fid, *completions = &f->cq[end]->fid;
    code = endpoint->ops->bind(endpoint, completions, FI_TRANSMIT | FI_RECV);
    if (!code) code = endpoint->ops->bind(endpoint, &f->av->fid, 0);
    if (!code) code = endpoint->ops->control(endpoint, FI_ENABLE, NULL);
    return code || !sleeps ? code : completions->ops->control(completions, FI_GETWAIT, &f->fd[end]);
}

/* Takes a provider for GPU memory too, if `hmem` and it is offered, and the order that it keeps, out of `most`. Returns
 * libfabric's code. */
static int fabric_select(fabric_t *f, const char *provider, const char *node, uint64_t most, int hmem) {
    const uint64_t orders[] = {FI_ORDER_SAS | FI_ORDER_SAW, FI_ORDER_SAS, 0};
    int code = -ENODATA;
    for (int i = hmem ? 0 : 3; i < 6 && code; i++) {
        f->order = orders[i % 3] & most, f->hmem = i < 3;
        code = fabric_offers(provider, node, f->order, f->hmem, &f->info);
    }
    return code;
}

/* Returns libfabric's code, and says what has failed. */
INTERNAL int fabric_open(fabric_t *f, const char *provider, const char *node, uint64_t order, int hmem,
                         const char **what) {
    struct fi_av_attr table = {.type = FI_AV_TABLE};
    uint64_t key[4], access = FI_READ | FI_WRITE;
    *what = "fi_getinfo";
    int code = fabric_select(f, provider, node, order, hmem);
    if (code) return code;
    *what = "fi_domain";
    if ((code = libfabric.fabric(f->info->fabric_attr, &f->fabric, NULL))) return code;
    if ((code = f->fabric->ops->domain(f->fabric, f->info, &f->domain, NULL))) return code;
    if ((code = f->domain->ops->av_open(f->domain, &table, &f->av, NULL))) return code;
    *what = "fi_endpoint";
    for (int end = 0; end < 2; end++)
        if ((code = fabric_open_endpoint(f, end))) return code;
    *what = "fi_mr_reg";
    if (fresh_nonce(key) || fresh_nonce(key + 2)) return -errno;
    size_t bytes = f->info->domain_attr->mr_key_size;
    for (int i = 0; i < 4; i++)
        if (bytes < 8) key[i] &= (UINT64_C(1) << 8 * bytes) - 1;
    if (posix_memalign((void **)&f->bounce, 4096, BOUNCE * BOUNCES)) return -ENOMEM;
    for (f->n_idle = 0; f->n_idle < BOUNCES; f->n_idle++) f->idle[f->n_idle] = f->bounce + BOUNCE * f->n_idle;
    code =
        fabric_register(f, far->base, far->length, access | FI_REMOTE_READ | FI_REMOTE_WRITE, key[0], TARGET, &f->heap);
    if (!code) code = fabric_register(f, f->bounce, BOUNCE * BOUNCES, access, key[1], ORIGIN, &f->bounces);
    for (int end = 0; end < 2 && !code; end++) code = messages_open(f, end, key[2 + end]);
    return code;
}

/* The addresses of a PE's endpoints, as this PE's endpoints use them. Returns 0 if one is refused. */
INTERNAL int fabric_know(fabric_t *f, int pe, const char *address[2], uint64_t key, uint64_t base) {
    remote_t *r = &f->remotes[pe];
    r->key = key, r->base = base;
    if (f->av->ops->insert(f->av, address[TARGET], 1, &r->address, 0, NULL) != 1 ||
        f->av->ops->insert(f->av, address[ORIGIN], 1, &r->replies, 0, NULL) != 1)
        return 0;
    messages_know(f, pe);
    return 1;
}

/* From now on the server makes progress. Returns an errno. */
INTERNAL int fabric_serve(fabric_t *f) {
    struct epoll_event served = {.events = EPOLLIN, .data.ptr = f};
    uint64_t one = 1;
    far->opening = NULL;
    __atomic_store_n(&far->fabric, f, __ATOMIC_RELEASE);
    if ((f->fd[TARGET] >= 0 && epoll_ctl(far->epoll, EPOLL_CTL_ADD, f->fd[TARGET], &served)) ||
        write(far->wake, &one, sizeof one) < 0)
        return errno;
    return 0;
}

/* Ends the connection of a link, on which the self-test may have failed. The next request opens another one. */
static void restart_link(link_t *l) {
    link_say_bye(l);
    for (; l->count; l->first = (l->first + 1) % l->room, l->count--) free(l->queue[l->first].packed);
    messages_forget(&l->conn);
    l->error = 0, l->pending = l->pending_reads = 0, l->batch_bytes = 0, l->fences = l->settled = 0;
    l->sent = l->asked = l->executed = l->fenced = l->rest = l->have = 0;
    for (int i = 0; i < far->n_open; i++)
        if (far->open[i] == l) far->open[i] = far->open[--far->n_open];
}

/* Puts and gets of at least so many bytes go by the fabric, and requests if messaging; those so far have been executed.
 * trial: the self-test goes on. After one that has failed, with UINT64_MAX, the links are used without the fabric. */
INTERNAL void fabric_use(fabric_t *f, uint64_t least, int trial, int messaging) {
    far->carrier = messaging ? &fabric_carrier : &tcp_carrier;
    for (int pe = 0; pe < far->n_pes; pe++) {
        link_t *l = far->links[pe];
        if (l && least == UINT64_MAX) restart_link(l);
        if (l) l->conn.carrier = l->conn.fd >= 0 ? far->carrier : &tcp_carrier;
    }
    f->least = least, far->trial = trial, f->messaging = messaging;
}
