/* Puts and gets by remote memory access of a fabric, through libfabric, which is loaded when the program runs.
 *
 * Each PE has two endpoints: one that far PEs write to and read from, and one from which it writes and reads. A fabric
 * with hardware for it needs nothing else of the target; for others the target's service makes progress, woken by the
 * descriptor of the completion queue. All writes are delivery-complete: a completion says that the data are in place,
 * which the self-test at init verifies. Requests travel over TCP, so nothing orders them after writes: a request to a
 * PE waits for this PE's writes to it, and a write or read waits for the requests before the last fence. */
#pragma once
#include <sys/epoll.h>

#include "_links.h"

#include "_libfabric.h"

#define TRIAL_NS INT64_C(10000000000) /* the limit of waits in the self-test */
/* BOUNCE: the most bytes of data that pass through memory which is registered already */
enum { BOUNCE = 8192, BOUNCES = 64, NAME = 256, FABRIC_SLICE_MS = 1, ARMED_NS = 100000000, MOST_AT_ONCE = 1 << 30 };

/* A write or a read under way. context belongs to the provider. bounce: its memory, or NULL; dest: where the data of a
 * read go then. mr: to be closed at the end, or NULL. */
typedef struct flight {
    struct fi_context2 context;
    struct flight *next;
    link_t *link;
    char *bounce, *dest;
    uint64_t nbytes;
    struct fid_mr *mr;
    int reads;
} flight_t;

typedef struct {
    uint64_t address;
    uint64_t key, base;
} remote_t;

typedef struct fabric {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq[2];
    struct fid_ep *ep[2]; /* TARGET, ORIGIN */
    struct fid_mr *heap, *bounces;
    int fd[2];
    remote_t *remotes;    /* by PE */
    pthread_mutex_t lock; /* of ORIGIN's completion queue and of the lists */
    char *bounce;         /* their memory */
    char *idle[BOUNCES];
    int n_idle, armed; /* armed: the service looks every FABRIC_SLICE_MS, until nothing flies for ARMED_NS */
    int64_t active;
    flight_t *spare;
    int64_t flying; /* writes and reads under way; each link counts its own too */
    uint64_t least; /* bytes of a put or a get that goes by the fabric; words of fewer may be torn by a provider */
} fabric_t;
enum { TARGET, ORIGIN };

static int by_fabric(uint64_t place, uint64_t nbytes) {
    fabric_t *f = far->fabric;
    return f && nbytes && nbytes >= f->least && !(offset_of(place) & FAR_GPU);
}

/* ---- progress ---- */

static void land(fabric_t *f, flight_t *a) {
    if (a->bounce && a->reads && a->dest) copy_bytes(a->dest, a->bounce, a->nbytes);
    if (a->bounce) f->idle[f->n_idle++] = a->bounce;
    if (a->mr) a->mr->fid.ops->close(&a->mr->fid);
    if (a->reads) __atomic_sub_fetch(&a->link->reading, 1, __ATOMIC_RELEASE);
    __atomic_sub_fetch(&a->link->flying, 1, __ATOMIC_RELEASE);
    __atomic_sub_fetch(&f->flying, 1, __ATOMIC_RELEASE);
    a->next = f->spare, f->spare = a;
}

/* Takes completions, with the lock. Returns how many. */
static int take_completions(fabric_t *f) {
    struct fi_cq_entry done[16];
    ssize_t n = f->cq[ORIGIN]->ops->read(f->cq[ORIGIN], done, 16);
    for (ssize_t i = 0; i < n; i++) land(f, done[i].op_context);
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry failed = {0};
        if (f->cq[ORIGIN]->ops->readerr(f->cq[ORIGIN], &failed, 0) != 1) return 0;
        flight_t *a = failed.op_context;
        __atomic_store_n(&a->link->error, failed.err ? failed.err : EIO, __ATOMIC_RELEASE);
        a->dest = NULL;
        land(f, a);
        return 1;
    }
    return n > 0 ? (int)n : 0;
}

/* Whether a thread may sleep until the queue's descriptor can be read. */
static int may_sleep(fabric_t *f, int side) {
    struct fid *queue = &f->cq[side]->fid;
    return f->fd[side] < 0 || f->fabric->ops->trywait(f->fabric, &queue, 1) == 0;
}

/* Whether the provider makes progress itself. */
static int is_auto(const fabric_t *f) { return f->info->domain_attr->data_progress == FI_PROGRESS_AUTO; }

/* The service's part: progress for far PEs, and for writes of this PE that no call waits for. Returns how long it may
 * sleep, as rest_of does. */
static int fabric_serve(void) {
    fabric_t *f = __atomic_load_n(&far->fabric, __ATOMIC_ACQUIRE);
    struct fi_cq_entry none[8];
    if (!f) return -1;
    while (f->cq[TARGET]->ops->read(f->cq[TARGET], none, 8) > 0) {}
    if (!may_sleep(f, TARGET)) return 0;
    int most = f->fd[TARGET] < 0 && !is_auto(f) ? FABRIC_SLICE_MS : -1;
    if (!__atomic_load_n(&f->armed, __ATOMIC_ACQUIRE)) return most;
    if (!__atomic_load_n(&f->flying, __ATOMIC_ACQUIRE)) {
        if (now_ns() - f->active < ARMED_NS) return FABRIC_SLICE_MS;
        __atomic_store_n(&f->armed, 0, __ATOMIC_SEQ_CST);
        if (!__atomic_load_n(&f->flying, __ATOMIC_SEQ_CST)) return most;
        __atomic_store_n(&f->armed, 1, __ATOMIC_SEQ_CST);
    }
    f->active = now_ns();
    if (!pthread_mutex_trylock(&f->lock)) {
        while (take_completions(f)) {}
        pthread_mutex_unlock(&f->lock);
    }
    return FABRIC_SLICE_MS;
}

/* Lets the service go on with what is under way, unless the provider does so itself. */
static void leave_to_service(fabric_t *f) {
    uint64_t one = 1;
    if (is_auto(f) || __atomic_load_n(&f->armed, __ATOMIC_SEQ_CST)) return;
    f->armed = 1;
    if (write(far->wake, &one, sizeof one) < 0) f->armed = 0;
}

/* Waits for the writes and reads of this PE to and from another one. Returns -1 for a failure; if that is an exception,
 * no reads are under way any more. */
static int fabric_wait(fabric_t *f, link_t *l) {
    int64_t since = now_ns();
    while (__atomic_load_n(&l->flying, __ATOMIC_ACQUIRE) > 0) {
        pthread_mutex_lock(&f->lock);
        int came = take_completions(f);
        int sleeps = !came && f->fd[ORIGIN] >= 0 && now_ns() - since > SPIN_NS && may_sleep(f, ORIGIN);
        pthread_mutex_unlock(&f->lock);
        if (came) since = now_ns();
        if (sleeps) poll(&(struct pollfd){f->fd[ORIGIN], POLLIN, 0}, 1, FABRIC_SLICE_MS);
        if (!came && !sleeps && far->spins <= CROWDED) sched_yield();
        if (check_signals() && !__atomic_load_n(&l->reading, __ATOMIC_ACQUIRE)) return -1;
        int64_t limit = far->trial ? TRIAL_NS : far->limit;
        if (limit && now_ns() - since > limit) l->error = ETIMEDOUT;
        if (l->error == ETIMEDOUT) return -1;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return l->error || caller.raised ? -1 : 0;
}

/* Waits for the writes and reads of this PE to and from another one. */
static int fabric_settle(link_t *l) {
    return __atomic_load_n(&l->flying, __ATOMIC_ACQUIRE) > 0 ? fabric_wait(far->fabric, l) : 0;
}

/* Waits for all of them. Returns a link that has failed, or NULL. */
static link_t *fabric_quiet(void) {
    fabric_t *f = far->fabric;
    link_t *failed = NULL;
    for (int pe = 0; f && f->flying && pe < far->n_pes && !failed; pe++)
        if (far->links[pe] && fabric_settle(far->links[pe])) failed = far->links[pe];
    return failed;
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
    *a = (flight_t){.link = l, .dest = writes ? NULL : data, .nbytes = nbytes, .reads = !writes};
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
        if (error == EAGAIN && take_completions(f)) since = now_ns();
        int64_t limit = far->trial ? TRIAL_NS : far->limit;
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
static link_t *fabric_get(char *dest, uint64_t place, uint64_t nbytes, int wait) {
    return fly(place, dest, nbytes, 0, wait);
}

/* ---- opening ---- */

/* Asks for endpoints with what is needed here. provider: NULL for all. Returns libfabric's code. */
static int offers(const char *provider, const char *node, struct fi_info **found) {
    struct fi_info *wish = libfabric.dupinfo(NULL);
    if (!wish) return -ENOMEM;
    wish->ep_attr->type = FI_EP_RDM;
    wish->caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    wish->mode = FI_CONTEXT | FI_CONTEXT2;
    wish->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    wish->domain_attr->threading = FI_THREAD_SAFE;
    wish->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    wish->fabric_attr->prov_name = provider ? strdup(provider) : NULL;
    int code = libfabric.getinfo(FI_VERSION_1_14, node, NULL, node ? FI_SOURCE : 0, wish, found);
    libfabric.freeinfo(wish);
    return code;
}

static void close_fabric(fabric_t *f) {
    if (!f) return;
    struct fid *parts[] = {f->ep[TARGET] ? &f->ep[TARGET]->fid : NULL,
                           f->ep[ORIGIN] ? &f->ep[ORIGIN]->fid : NULL,
                           f->heap ? &f->heap->fid : NULL,
                           f->bounces ? &f->bounces->fid : NULL,
                           f->cq[TARGET] ? &f->cq[TARGET]->fid : NULL,
                           f->cq[ORIGIN] ? &f->cq[ORIGIN]->fid : NULL,
                           f->av ? &f->av->fid : NULL,
                           f->domain ? &f->domain->fid : NULL,
                           f->fabric ? &f->fabric->fid : NULL};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i]) parts[i]->ops->close(parts[i]);
    for (flight_t *a; (a = f->spare);) f->spare = a->next, free(a);
    if (f->info) libfabric.freeinfo(f->info);
    free(f->remotes), free(f->bounce), free(f);
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

/* Returns libfabric's code, and says what has failed. */
static int open_fabric(fabric_t *f, const char *provider, const char *node, const char **what) {
    struct fi_av_attr table = {.type = FI_AV_TABLE};
    uint64_t key[2], access = FI_READ | FI_WRITE;
    *what = "fi_getinfo";
    int code = offers(provider, node, &f->info);
    if (code) return code;
    *what = "fi_domain";
    if ((code = libfabric.fabric(f->info->fabric_attr, &f->fabric, NULL))) return code;
    if ((code = f->fabric->ops->domain(f->fabric, f->info, &f->domain, NULL))) return code;
    if ((code = f->domain->ops->av_open(f->domain, &table, &f->av, NULL))) return code;
    *what = "fi_endpoint";
    for (int side = 0; side < 2; side++)
        if ((code = open_endpoint(f, side))) return code;
    *what = "fi_mr_reg";
    if (fresh_nonce(key)) return -errno;
    size_t bytes = f->info->domain_attr->mr_key_size;
    if (bytes < 8) key[0] &= (UINT64_C(1) << 8 * bytes) - 1, key[1] &= (UINT64_C(1) << 8 * bytes) - 1;
    if (posix_memalign((void **)&f->bounce, 4096, BOUNCE * BOUNCES)) return -ENOMEM;
    for (f->n_idle = 0; f->n_idle < BOUNCES; f->n_idle++) f->idle[f->n_idle] = f->bounce + BOUNCE * f->n_idle;
    code =
        register_memory(f, far->base, far->length, access | FI_REMOTE_READ | FI_REMOTE_WRITE, key[0], TARGET, &f->heap);
    return code ? code : register_memory(f, f->bounce, BOUNCE * BOUNCES, access, key[1], ORIGIN, &f->bounces);
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
    code = offers(NULL, NULL, &found);
    Py_END_ALLOW_THREADS
    for (struct fi_info *each = code ? NULL : found; names && each; each = each->next) {
        PyObject *name = PyUnicode_FromString(each->fabric_attr->prov_name);
        if (!name || PyList_Append(names, name)) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    if (found) libfabric.freeinfo(found);
    return names ? Py_BuildValue("(IIN)", libfabric.version() >> 16, libfabric.version() & 0xffff, names) : NULL;
}

/* fabric_open(path, provider, node) -> (its name, address, key, base): registers the heap of the running service. node:
 * the address of the network interface, or "". */
static PyObject *py_fabric_open(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    const char *text[3], *what = "";
    if (!arity("fabric_open", n, 3)) return NULL;
    for (int i = 0; i < 3; i++)
        if (!(text[i] = PyUnicode_AsUTF8AndSize(args[i], NULL))) return NULL;
    if (!far || far->fabric || !load_libfabric(text[0]))
        return no_fabric("no libfabric from 1.9 on can be loaded"), NULL;
    fabric_t *f = calloc(1, sizeof *f);
    char name[NAME];
    size_t length = sizeof name;
    if (!f) return PyErr_NoMemory();
    pthread_mutex_init(&f->lock, NULL);
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = open_fabric(f, text[1], *text[2] ? text[2] : NULL, &what);
    if (!code) what = "fi_getname", code = f->ep[TARGET]->cm->getname(&f->ep[TARGET]->fid, name, &length);
    Py_END_ALLOW_THREADS
    if (code) {
        close_fabric(f);
        return PyErr_Format(PyExc_OSError, "%s: %s", what, libfabric.strerror(-code));
    }
    f->least = UINT64_MAX;
    uint64_t base = f->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)far->base : 0;
    far->opening = f;
    return Py_BuildValue("(sy#KK)", f->info->fabric_attr->prov_name, name, (Py_ssize_t)length, f->heap->key, base);
}

/* fabric_connect(known): known has (address, key, base) by PE, None for near PEs. From now on the service makes
 * progress. */
static PyObject *py_fabric_connect(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    fabric_t *f = far ? far->opening : NULL;
    if (!arity("fabric_connect", n, 1)) return NULL;
    if (!f || !(f->remotes = calloc((size_t)far->n_pes, sizeof *f->remotes)))
        return no_fabric("no fabric is open"), NULL;
    for (int pe = 0; pe < far->n_pes; pe++) {
        PyObject *known = PyTuple_GetItem(args[0], pe);
        char *address;
        Py_ssize_t length;
        remote_t *r = &f->remotes[pe];
        if (!known || (known != Py_None && !PyArg_ParseTuple(known, "y#KK", &address, &length, &r->key, &r->base)))
            return NULL;
        if (known != Py_None && f->av->ops->insert(f->av, address, 1, &r->address, 0, NULL) != 1)
            return no_fabric("an address is refused"), NULL;
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

/* fabric_use(least, trial): puts and gets of at least so many bytes go by the fabric. trial: the self-test goes on.
 * After one that has failed, the links are used without the fabric. */
static PyObject *py_fabric_use(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t least, trial;
    if (!arity("fabric_use", n, 2) || !to_u64(args[0], &least) || !to_u64(args[1], &trial)) return NULL;
    if (!far || !far->fabric) Py_RETURN_NONE;
    far->fabric->least = least, far->trial = trial != 0;
    for (int pe = 0; least == UINT64_MAX && pe < far->n_pes; pe++) {
        link_t *l = far->links[pe];
        if (l) l->error = 0, l->flying = l->reading = 0;
    }
    Py_RETURN_NONE;
}

static PyMethodDef fabric_methods[] = {METHOD(fabric_providers), METHOD(fabric_open), METHOD(fabric_connect),
                                       METHOD(fabric_use), LAST_METHOD};
