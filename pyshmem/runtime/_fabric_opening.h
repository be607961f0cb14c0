/* Opening of a fabric: the provider, endpoints, registered memory and the addresses of the other PEs. */
#pragma once
#include "_far.h"

/* Asks for endpoints with what is needed here. provider: NULL for all. order: that of messages. Returns libfabric's
 * code.
 */
static int offers(const char *provider, const char *node, uint64_t order, int hmem, struct fi_info **found) {
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

static void forget_region(region_t *r) {
    if (r->mr[ORIGIN] && r->mr[ORIGIN] != r->mr[TARGET]) r->mr[ORIGIN]->fid.ops->close(&r->mr[ORIGIN]->fid);
    if (r->mr[TARGET]) r->mr[TARGET]->fid.ops->close(&r->mr[TARGET]->fid);
    free(r->keys), free(r->bases);
    *r = (region_t){0};
}

static void forget_regions(fabric_t *f) {
    for (; f->n_regions; f->n_regions--) forget_region(&f->regions[f->n_regions - 1]);
}

static void close_fabric(fabric_t *f) {
    if (!f) return;
    struct fid *parts[] = {f->ep[TARGET] ? &f->ep[TARGET]->fid : NULL,
                           f->ep[ORIGIN] ? &f->ep[ORIGIN]->fid : NULL,
                           f->heap ? &f->heap->fid : NULL,
                           f->bounces ? &f->bounces->fid : NULL,
                           f->letters[TARGET] ? &f->letters[TARGET]->fid : NULL,
                           f->letters[ORIGIN] ? &f->letters[ORIGIN]->fid : NULL,
                           f->cq[TARGET] ? &f->cq[TARGET]->fid : NULL,
                           f->cq[ORIGIN] ? &f->cq[ORIGIN]->fid : NULL,
                           f->av ? &f->av->fid : NULL,
                           f->domain ? &f->domain->fid : NULL,
                           f->fabric ? &f->fabric->fid : NULL};
    for (int i = 0; i < 2; i++) /* no registration outlives its endpoint, nor a domain its registrations */
        if (parts[i]) parts[i]->ops->close(parts[i]);
    forget_region(&f->next);
    forget_regions(f);
    for (size_t i = 2; i < sizeof parts / sizeof *parts; i++)
        if (parts[i]) parts[i]->ops->close(parts[i]);
    for (flight_t *a; (a = f->spare);) f->spare = a->next, free(a);
    if (f->info) libfabric.freeinfo(f->info);
    free(f->regions), free(f->messages[TARGET]), free(f->messages[ORIGIN]), free(f->remotes), free(f->bounce), free(f);
}

static int open_endpoint(fabric_t *f, int side) {
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD, .size = 1024};
    struct fid_domain *domain = f->domain;
    int sleeps = 1, code = domain->ops->cq_open(domain, &queue, &f->cq[side], NULL);
    if (code) { /* this provider has no descriptors */
        queue.wait_obj = FI_WAIT_NONE, sleeps = 0;
        code = domain->ops->cq_open(domain, &queue, &f->cq[side], NULL);
    }
    f->fd[side] = -1;
    if (!code) code = domain->ops->endpoint(domain, f->info, &f->ep[side], NULL);
    if (code) return code;
    struct fid *endpoint = &f->ep[side]->fid, *completions = &f->cq[side]->fid;
    code = endpoint->ops->bind(endpoint, completions, FI_TRANSMIT | FI_RECV);
    if (!code) code = endpoint->ops->bind(endpoint, &f->av->fid, 0);
    if (!code) code = endpoint->ops->control(endpoint, FI_ENABLE, NULL);
    return code || !sleeps ? code : completions->ops->control(completions, FI_GETWAIT, &f->fd[side]);
}

/* Makes the memory of an endpoint's messages. Returns libfabric's code. */
static int make_messages(fabric_t *f, int side, uint64_t key) {
    size_t receives = f->info->rx_attr->size < RECEIVES ? f->info->rx_attr->size : RECEIVES, n = receives + SENDS;
    if (posix_memalign((void **)&f->messages[side], 4096, n * sizeof(message_t))) return -ENOMEM;
    message_t *all = memset(f->messages[side], 0, n * sizeof(message_t));
    if (f->info->domain_attr->mr_mode & FI_MR_LOCAL) {
        int code =
            register_memory(f, (char *)all, n * sizeof(message_t), FI_SEND | FI_RECV, key, side, &f->letters[side]);
        if (code) return code;
    }
    for (size_t i = 0; i < n; i++)
        if (i < receives)
            post_receive(f, side, &all[i]);
        else
            all[i].next = f->unused[side], f->unused[side] = &all[i];
    return 0;
}

/* Takes a provider for GPU memory too, if `hmem` and it is offered, and the order that it keeps, out of `most`. Returns
 * libfabric's code. */
static int select_order(fabric_t *f, const char *provider, const char *node, uint64_t most, int hmem) {
    const uint64_t orders[] = {FI_ORDER_SAS | FI_ORDER_SAW, FI_ORDER_SAS, 0};
    int code = -ENODATA;
    for (int i = hmem ? 0 : 3; i < 6 && code; i++) {
        f->order = orders[i % 3] & most, f->hmem = i < 3;
        code = offers(provider, node, f->order, f->hmem, &f->info);
    }
    return code;
}

/* Returns libfabric's code, and says what has failed. */
static int open_fabric(fabric_t *f, const char *provider, const char *node, uint64_t order, int hmem,
                       const char **what) {
    struct fi_av_attr table = {.type = FI_AV_TABLE};
    uint64_t key[4], access = FI_READ | FI_WRITE;
    *what = "fi_getinfo";
    int code = select_order(f, provider, node, order, hmem);
    if (code) return code;
    *what = "fi_domain";
    if ((code = libfabric.fabric(f->info->fabric_attr, &f->fabric, NULL))) return code;
    if ((code = f->fabric->ops->domain(f->fabric, f->info, &f->domain, NULL))) return code;
    if ((code = f->domain->ops->av_open(f->domain, &table, &f->av, NULL))) return code;
    *what = "fi_endpoint";
    for (int side = 0; side < 2; side++)
        if ((code = open_endpoint(f, side))) return code;
    *what = "fi_mr_reg";
    if (fresh_nonce(key) || fresh_nonce(key + 2)) return -errno;
    size_t bytes = f->info->domain_attr->mr_key_size;
    for (int i = 0; i < 4; i++)
        if (bytes < 8) key[i] &= (UINT64_C(1) << 8 * bytes) - 1;
    if (posix_memalign((void **)&f->bounce, 4096, BOUNCE * BOUNCES)) return -ENOMEM;
    for (f->n_idle = 0; f->n_idle < BOUNCES; f->n_idle++) f->idle[f->n_idle] = f->bounce + BOUNCE * f->n_idle;
    code =
        register_memory(f, far->base, far->length, access | FI_REMOTE_READ | FI_REMOTE_WRITE, key[0], TARGET, &f->heap);
    if (!code) code = register_memory(f, f->bounce, BOUNCE * BOUNCES, access, key[1], ORIGIN, &f->bounces);
    for (int side = 0; side < 2 && !code; side++) code = make_messages(f, side, key[2 + side]);
    return code;
}

/* What a message of one PE to the side of another one has, and what no other process can compute. */
static uint64_t pass_of(int from, int to, int side) {
    uint64_t words[] = {(uint64_t)from, (uint64_t)to, (uint64_t)side, far->hello.job};
    return sip_hash(far->token, words, sizeof words / sizeof *words);
}

static int no_fabric(const char *why) {
    PyErr_SetString(PyExc_OSError, why);
    return 0;
}

/* fabric_providers(path) -> (major, minor, names) of the library there, of providers with what is needed here. */
static PyObject *py_fabric_providers(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    struct fi_info *found = NULL;
    if (!arity("fabric_providers", n, 1)) return NULL;
    const char *path = PyUnicode_AsUTF8AndSize(args[0], NULL);
    if (!path || (!load_libfabric(path) && !no_fabric("no libfabric from 1.9 on can be loaded"))) return NULL;
    PyObject *names = PyList_New(0);
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = offers(NULL, NULL, 0, 0, &found);
    Py_END_ALLOW_THREADS
    for (struct fi_info *each = code ? NULL : found; names && each; each = each->next) {
        PyObject *name = PyUnicode_FromString(each->fabric_attr->prov_name);
        if (!name || PyList_Append(names, name)) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    if (found) libfabric.freeinfo(found);
    return names ? Py_BuildValue("(IIN)", libfabric.version() >> 16, libfabric.version() & 0xffff, names) : NULL;
}

/* fabric_open(path, provider, node, order, hmem) -> (order, addresses, key, base): registers the heap of the running
 * service. node: the address of the network interface, or "". order: what pyshmem may use of what the provider
 * promises. hmem: there is a GPU heap. */
static PyObject *py_fabric_open(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    const char *text[3], *what = "";
    uint64_t order, hmem;
    if (!arity("fabric_open", n, 5) || !to_u64(args[3], &order) || !to_u64(args[4], &hmem)) return NULL;
    for (int i = 0; i < 3; i++)
        if (!(text[i] = PyUnicode_AsUTF8AndSize(args[i], NULL))) return NULL;
    if (!far || far->fabric || !load_libfabric(text[0]))
        return no_fabric("no libfabric from 1.9 on can be loaded"), NULL;
    fabric_t *f = calloc(1, sizeof *f);
    char name[2][NAME] = {{0}};
    size_t length[2] = {NAME, NAME};
    if (!f) return PyErr_NoMemory();
    pthread_mutex_init(&f->lock, NULL);
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = open_fabric(f, text[1], *text[2] ? text[2] : NULL, order, hmem != 0, &what);
    for (int side = 0; side < 2 && !code; side++)
        what = "fi_getname", code = f->ep[side]->cm->getname(&f->ep[side]->fid, name[side], &length[side]);
    Py_END_ALLOW_THREADS
    if (code) {
        close_fabric(f);
        return PyErr_Format(PyExc_OSError, "%s: %s", what, libfabric.strerror(-code));
    }
    f->least = UINT64_MAX;
    uint64_t base = f->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)far->base : 0;
    far->opening = f;
    return Py_BuildValue("(Ky#y#KK)", f->order, name[TARGET], (Py_ssize_t)length[TARGET], name[ORIGIN],
                         (Py_ssize_t)length[ORIGIN], f->heap->key, base);
}

/* fabric_connect(known): known has (addresses, key, base) by PE, None for near PEs. From now on the service makes
 * progress. */
static PyObject *py_fabric_connect(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    fabric_t *f = far ? far->opening : NULL;
    if (!arity("fabric_connect", n, 1)) return NULL;
    if (!f) return no_fabric("no fabric is open"), NULL;
    if (!(f->remotes = calloc((size_t)far->n_pes, sizeof *f->remotes))) return PyErr_NoMemory();
    for (int pe = 0; pe < far->n_pes; pe++) {
        PyObject *known = PyTuple_GetItem(args[0], pe);
        char *address[2];
        Py_ssize_t length[2];
        remote_t *r = &f->remotes[pe];
        if (!known || (known != Py_None && !PyArg_ParseTuple(known, "y#y#KK", &address[0], &length[0], &address[1],
                                                             &length[1], &r->key, &r->base)))
            return NULL;
        if (known == Py_None) continue;
        if (f->av->ops->insert(f->av, address[TARGET], 1, &r->address, 0, NULL) != 1 ||
            f->av->ops->insert(f->av, address[ORIGIN], 1, &r->replies, 0, NULL) != 1)
            return no_fabric("an address is refused"), NULL;
        for (int side = 0; side < 2; side++) /* side: where a message leaves, or arrives */
            r->pass[side] = pass_of(far->my_pe, pe, !side), r->expected[side] = pass_of(pe, far->my_pe, side);
    }
    struct epoll_event served = {.events = EPOLLIN, .data.ptr = f};
    uint64_t one = 1;
    far->opening = NULL;
    __atomic_store_n(&far->fabric, f, __ATOMIC_RELEASE);
    if ((f->fd[TARGET] >= 0 && epoll_ctl(far->epoll, EPOLL_CTL_ADD, f->fd[TARGET], &served)) ||
        write(far->wake, &one, sizeof one) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

/* Ends the connection of a link, on which the self-test may have failed. The next request opens another one. */
static void restart_link(link_t *l) {
    say_goodbye(l);
    for (; l->count; l->first = (l->first + 1) % l->room, l->count--) free(l->queue[l->first].packed);
    empty_wire(far->fabric, ORIGIN, &l->wire);
    l->error = 0, l->flying = l->reading = 0, l->n_held = 0;
    l->sent = l->asked = l->executed = l->fenced = l->rest = l->have = 0;
    for (int i = 0; i < far->n_open; i++)
        if (far->open[i] == l) far->open[i] = far->open[--far->n_open];
}

/* fabric_use(least, trial, messaging): puts and gets of at least so many bytes go by the fabric, and requests if
 * messaging; those so far have been executed. trial: the self-test goes on. After one that has failed, the links are
 * used without the fabric. */
static PyObject *py_fabric_use(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t least, trial, messaging;
    if (!arity("fabric_use", n, 3) || !to_u64(args[0], &least) || !to_u64(args[1], &trial) ||
        !to_u64(args[2], &messaging))
        return NULL;
    if (!far || !far->fabric) Py_RETURN_NONE;
    for (int pe = 0; pe < far->n_pes; pe++) {
        link_t *l = far->links[pe];
        if (l && least == UINT64_MAX) restart_link(l);
        if (l) l->wire.on = messaging && l->fd >= 0;
    }
    far->fabric->least = least, far->trial = trial != 0, far->fabric->messaging = messaging != 0;
    Py_RETURN_NONE;
}

static PyMethodDef fabric_methods[] = {METHOD(fabric_providers), METHOD(fabric_open), METHOD(fabric_connect),
                                       METHOD(fabric_use), LAST_METHOD};
