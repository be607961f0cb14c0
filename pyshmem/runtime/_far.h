/* Far PEs, which are on other nodes: this side sends requests, and a service thread of the other PE executes them (_service.h).
 * _native.c includes this file.
 *
 * A place is the address of memory on a far PE: (PE + 1) << FAR_SHIFT, plus the offset in that PE's part of the CPU heap, or plus
 * FAR_GPU and the offset in its part of the GPU heap. All other addresses here are of CPU memory. There is one wire from each PE to
 * each far PE that it uses (_wire.h). The far PE executes the requests of a wire in order, so requests to one PE are always ordered
 * as by a fence. Every reply tells how many requests have been executed, which completes all of them.
 * All functions but the Python methods are called without the GIL. They return NULL, or the link that failed. */
enum { FAR_SHIFT = 48, STAGE = 1 << 18, CHUNK = 8192, SPIN_NS = 50000, LONG_SPIN_NS = 500000, QUEUE = 16, TOKEN = 16, PATIENCE_MS = 30000, NAP_US = 20 };

enum { PUT = 1, GET, PUT_STRIDED, GET_STRIDED, UPDATE, FETCH, POST, FLUSH, BYE }; /* operations of requests */
enum { OP_FETCH, OP_SET, OP_SWAP, OP_ADD, OP_AND, OP_OR, OP_XOR, OP_COMPARE_SWAP, OP_COUNT }; /* as in pyshmem.transport.far */

enum { BY_MPI = 1 };
#define FAR_GPU (UINT64_C(1) << 47) /* of an offset: it is in the GPU heap */

/* offset, nbytes: the memory at the target. asks: whether the target acknowledges the request at once. PUT: nbytes follow.
 * If detail is BY_MPI, the data of a PUT or a GET go as messages of MPI, see _messages.h; a GET is acknowledged then.
 * PUT_STRIDED: nbytes of items follow, which are `value` bytes apart at the target; detail: bytes of an item. GET_STRIDED alike.
 * UPDATE, FETCH: detail is operator * 16 + type. POST: cond is the offset of the word that tells whether the target sleeps. */
typedef struct { uint16_t op, asks; uint32_t detail; uint64_t offset, nbytes, value, cond; } request_t;
typedef struct { uint64_t executed, value, nbytes; } reply_t; /* nbytes follow */
typedef struct { char magic[8], token[TOKEN]; uint64_t job; int32_t pe, n_pes; } hello_t;
static const char MAGIC[8] = "pyshmem1"; /* the last character is the version of the protocol */

/* A reply with data, or with a value, that will come: request number `seq` asked for it. */
typedef struct { uint64_t seq, nbytes; char *dest; uint64_t step, item, *value; char *packed; } expected_t;

typedef struct {
    pthread_mutex_t lock;
    int pe, error; /* error: the errno that ended the wire, or 0 */
    wire_t wire;   /* open since the first request */
    uint64_t sent, asked, executed; /* numbers of requests: sent; the last that a reply was asked for; the last known to be executed */
    expected_t *queue;
    uint64_t first, count, room; /* the queue is a ring */
    char *into;                  /* where the rest of a reply goes */
    uint64_t rest, have;
    char in[CHUNK];
    struct sockaddr_storage address;
    socklen_t address_bytes;
} link_t;

typedef struct {
    int my_pe, n_pes, spins;
    int polls, naps; /* polls: all goes by MPI. naps: the service sleeps between two polls if nothing comes, since cores are short */
    char *base;
    uint64_t length; /* of this PE's part of the CPU heap, with the areas */
    int64_t limit;   /* of a wait without progress, in nanoseconds; 0: none */
    hello_t hello;
    link_t **links, **open; /* by PE; those with a wire */
    int n_open;
    pthread_mutex_t lock;
    char **hosts;      /* by PE */
    PyObject *refuse; /* refuse(routine, pe, errno) raises the error of a failed request */
    struct service *service;
    struct far_gpu *gpu; /* the GPU heap, or NULL; see _far_gpu.h */
    struct proxy *proxy; /* of this process's kernels, or NULL; see _proxy.h */
} far_t;
static far_t *far; /* of this process, between init and finalize; a pointer is enough for one job */

static inline int is_far(uint64_t place) { return place >> FAR_SHIFT != 0 && place >> 63 == 0; }
static inline link_t *link_to(uint64_t place) { return far->links[(place >> FAR_SHIFT) - 1]; }
static inline uint64_t offset_of(uint64_t place) { return place & ((UINT64_C(1) << FAR_SHIFT) - 1); }

/* Copies from a buffer, in which a word may lie at any address. */
static void copy_bytes(char *to, const char *from, uint64_t nbytes) {
    uint64_t word;
    if (nbytes <= 8) from = memcpy(&word, from, nbytes);
    copy_item(to, from, nbytes);
}

static int link_fail(link_t *l, int error) {
    if (l->wire.fd >= 0) shutdown(l->wire.fd, SHUT_RDWR);
    l->error = error ? error : ECONNRESET;
    return -1;
}

/* ---- replies ---- */

static int expect(link_t *l, expected_t e) {
    if (l->count == l->room) {
        uint64_t room = l->room ? 2 * l->room : QUEUE;
        expected_t *queue = malloc(room * sizeof *queue);
        if (!queue) return link_fail(l, ENOMEM);
        for (uint64_t i = 0; i < l->count; i++) queue[i] = l->queue[(l->first + i) % l->room];
        free(l->queue);
        l->queue = queue, l->room = room, l->first = 0;
    }
    l->queue[(l->first + l->count++) % l->room] = e;
    return 0;
}

/* Ends the reply of the first expectation, whose data have all come. */
static void fulfil(link_t *l) {
    expected_t *e = &l->queue[l->first];
    if (e->packed) {
        for (uint64_t i = 0; i * e->item < e->nbytes; i++) copy_item(e->dest + i * e->step, e->packed + i * e->item, e->item);
        free(e->packed);
    }
    l->executed = e->seq;
    l->first = (l->first + 1) % l->room, l->count--;
}

/* Begins a reply, whose data follow at `data`, `here` bytes of them so far. Returns how many it has used, or -1. */
static int64_t begin_reply(link_t *l, const reply_t *reply, const char *data, uint64_t here) {
    expected_t *e = l->count ? &l->queue[l->first] : NULL;
    if (!e || e->seq != reply->executed) {
        if (reply->nbytes || reply->executed > l->sent) return link_fail(l, EPROTO);
        if (reply->executed > l->executed) l->executed = reply->executed;
        return 0;
    }
    if (reply->nbytes != e->nbytes) return link_fail(l, EPROTO);
    if (e->value) *e->value = reply->value;
    char *to = e->packed ? e->packed : e->dest;
    uint64_t now = here < e->nbytes ? here : e->nbytes;
    copy_bytes(to, data, now);
    l->into = to + now, l->rest = e->nbytes - now;
    if (!l->rest) fulfil(l);
    return (int64_t)now;
}

/* Reads what has come. Returns 1 if anything has, 0 if not, -1 if the wire has ended. */
static int link_read(link_t *l) {
    ssize_t k = l->rest ? wire_take(&l->wire, l->into, l->rest) : wire_take(&l->wire, l->in + l->have, sizeof l->in - l->have);
    if (k == 0) return link_fail(l, ECONNRESET);
    if (k < 0) return errno == EAGAIN || errno == EINTR ? 0 : link_fail(l, errno);
    if (l->rest) {
        l->into += k, l->rest -= (uint64_t)k;
        if (!l->rest) fulfil(l);
        return 1;
    }
    l->have += (uint64_t)k;
    uint64_t at = 0;
    reply_t reply;
    while (!l->rest && l->have - at >= sizeof reply) {
        memcpy(&reply, l->in + at, sizeof reply);
        /* a word that a reply carries is copied by one store, so it waits until it is whole */
        if (reply.nbytes <= 8 && l->have - at < sizeof reply + reply.nbytes) break;
        at += sizeof reply;
        int64_t used = begin_reply(l, &reply, l->in + at, l->have - at);
        if (used < 0) return -1;
        at += (uint64_t)used;
    }
    memmove(l->in, l->in + at, l->have - at);
    l->have -= at;
    return 1;
}

/* Waits until the connection can be read, or written too if `events` has POLLOUT; for packets, a moment. Returns -1 after the limit
 * without progress. */
static int link_poll(link_t *l, short events, int64_t *since) {
    struct pollfd p = {l->wire.fd, events, 0};
    if (l->wire.packets) usleep(NAP_US);
    else if (poll(&p, 1, 100) > 0) { *since = now_ns(); return 0; }
    if (far->limit && now_ns() - *since > far->limit) return link_fail(l, ETIMEDOUT);
    return 0;
}

/* Waits until request number `seq` has been executed and its reply has come. Returns 0, or -1 for a failure. */
static int link_await(link_t *l, uint64_t seq) {
    int64_t begun = now_ns(), since = begun;
    while (l->executed < seq) {
        int read = link_read(l);
        if (read < 0) return -1;
        if (read) { begun = since = now_ns(); continue; }
        if (now_ns() - begun > (far->polls ? LONG_SPIN_NS : SPIN_NS)) { if (link_poll(l, POLLIN, &since)) return -1; }
        else if (far->spins <= CROWDED) sched_yield();
        else CPU_RELAX();
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* later loads are not older than the reply */
    return 0;
}

/* ---- requests ---- */

/* Sends the buffers. If the wire is full, replies are read meanwhile: the target does not read requests while it cannot reply. */
static int link_write(link_t *l, struct iovec *v, int n) {
    int64_t since = now_ns();
    while (n) {
        ssize_t k = wire_send(&l->wire, v, n);
        if (k < 0 && errno != EAGAIN && errno != EINTR) return link_fail(l, errno);
        if (k < 0) {
            int read = link_read(l);
            if (read > 0) since = now_ns();
            if (read < 0 || (!read && link_poll(l, POLLIN | POLLOUT, &since))) return -1;
            continue;
        }
        since = now_ns();
        for (; n && (size_t)k >= v->iov_len; v++, n--) k -= (ssize_t)v->iov_len;
        if (n) v->iov_base = (char *)v->iov_base + k, v->iov_len -= (size_t)k;
    }
    return 0;
}

static int set_option(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }

/* How long this PE waits for a target that does not answer at all. */
static int patience_ms(void) { return far->limit && far->limit / 1000000 < PATIENCE_MS ? (int)(far->limit / 1000000) + 1 : PATIENCE_MS; }

/* A link that is down ends connections: by this limit if data wait for their acknowledgement, and by probes if none do. */
static void set_options(int fd) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, patience_ms());
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
}

/* Connects, shows the token and waits for the welcome, which is a reply whose value is the target's number. */
static int link_greet(link_t *l) {
    struct iovec v = {&far->hello, sizeof far->hello};
    uint64_t welcome = UINT64_MAX;
    socklen_t n = sizeof(int);
    int error = 0;
    l->wire.fd = socket(l->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->wire.fd < 0) return link_fail(l, errno);
    set_options(l->wire.fd);
    if (connect(l->wire.fd, (struct sockaddr *)&l->address, l->address_bytes) && errno != EINPROGRESS) return link_fail(l, errno);
    if (poll(&(struct pollfd){l->wire.fd, POLLOUT, 0}, 1, patience_ms()) == 0) return link_fail(l, ETIMEDOUT);
    if (getsockopt(l->wire.fd, SOL_SOCKET, SO_ERROR, &error, &n) || error) return link_fail(l, error ? error : errno);
    l->sent = 1; /* the greeting counts as a request */
    if (expect(l, (expected_t){.seq = 1, .value = &welcome}) || link_write(l, &v, 1) || link_await(l, 1)) {
        return link_fail(l, l->error == ECONNRESET ? EACCES : l->error); /* a target that does not know the token hangs up */
    }
    if (welcome != (uint64_t)l->pe) return link_fail(l, EPROTO);
    l->asked = 1;
    return 0;
}

/* Opens the wire. MPI knows who sends a packet, so packets need no greeting. */
static int link_connect(link_t *l) {
    int error = far->polls ? open_packets(&l->wire, l->pe, REQUESTS, REPLIES) : 0;
    if (error) return link_fail(l, error);
    if (!far->polls && link_greet(l)) return -1;
    pthread_mutex_lock(&far->lock);
    far->open[far->n_open++] = l;
    pthread_mutex_unlock(&far->lock);
    return 0;
}

/* Locks the link, and connects it if it is not. Returns 0; or -1 for a failure, and it is not locked then. */
static int link_enter(link_t *l) {
    pthread_mutex_lock(&l->lock);
    if (l->error || (!wire_is_open(&l->wire) && link_connect(l))) { pthread_mutex_unlock(&l->lock); return -1; }
    return 0;
}

static link_t *link_leave(link_t *l, int failed) {
    pthread_mutex_unlock(&l->lock);
    return failed ? l : NULL;
}

/* Sends a request with its data. The link is locked. */
static int request(link_t *l, request_t *r, const void *data, uint64_t nbytes) {
    struct iovec v[2] = {{r, sizeof *r}, {(void *)data, nbytes}};
    /* The first request since the last reply asks for one, so that a single put needs no second request when it is completed. */
    if (r->op != GET && r->op != GET_STRIDED && r->op != FETCH) r->asks = r->op == FLUSH || l->asked <= l->executed;
    l->sent++;
    if (r->asks || r->op == GET || r->op == GET_STRIDED || r->op == FETCH) l->asked = l->sent;
    return link_write(l, v, nbytes ? 2 : 1);
}

/* Sends or receives the data of a request as messages. Replies are read meanwhile, which also shows that the PE is still there. */
static int carry(link_t *l, int op, char *data, uint64_t nbytes) {
    int64_t since = now_ns();
    while (nbytes) {
        message_t m;
        int ended = message_begin(&m, op == PUT ? SEND : RECEIVE, data, nbytes < MESSAGE ? nbytes : MESSAGE, l->pe, op);
        while (!ended && !(ended = message_ended(&m))) {
            int read = link_read(l);
            if (read < 0) return -1;
            if (read) since = now_ns();
            if (far->limit && now_ns() - since > far->limit) return link_fail(l, ETIMEDOUT);
            if (far->spins <= CROWDED) sched_yield();
        }
        if (ended < 0) return link_fail(l, EIO);
        since = now_ns();
        data += m.nbytes, nbytes -= m.nbytes;
    }
    return 0;
}

/* Sends a put with its data. The link is locked. */
static int send_put(link_t *l, uint64_t place, const char *source, uint64_t nbytes) {
    request_t r = {.op = PUT, .detail = is_large(nbytes) ? BY_MPI : 0, .offset = offset_of(place), .nbytes = nbytes};
    if (!r.detail) return request(l, &r, source, nbytes);
    return request(l, &r, NULL, 0) || carry(l, PUT, (char *)source, nbytes);
}

static link_t *far_put(uint64_t place, const char *source, uint64_t nbytes) {
    link_t *l = link_to(place);
    if (link_enter(l)) return l;
    return link_leave(l, send_put(l, place, source, nbytes));
}

/* Sends a request for data, without the wait for them; data that go as messages are here on return, since MPI would not move them
 * meanwhile. The link is locked. */
static int ask_for(link_t *l, uint64_t place, char *dest, uint64_t nbytes) {
    request_t r = {.op = GET, .detail = is_large(nbytes) ? BY_MPI : 0, .offset = offset_of(place), .nbytes = nbytes};
    if (r.detail) return request(l, &r, NULL, 0) || carry(l, GET, dest, nbytes);
    return expect(l, (expected_t){.seq = l->sent + 1, .nbytes = nbytes, .dest = dest}) || request(l, &r, NULL, 0);
}

/* wait: 0 for a get that quiet completes */
static link_t *far_get(char *dest, uint64_t place, uint64_t nbytes, int wait) {
    link_t *l = link_to(place);
    if (link_enter(l)) return l;
    return link_leave(l, ask_for(l, place, dest, nbytes) || (wait && link_await(l, l->sent)));
}

/* The two halves of a get, between which others may be asked for. number: of the request. */
static link_t *far_ask(char *dest, uint64_t place, uint64_t nbytes, uint64_t *number) {
    link_t *l = link_to(place);
    if (link_enter(l)) return l;
    int failed = ask_for(l, place, dest, nbytes);
    *number = l->sent;
    return link_leave(l, failed);
}

static link_t *await_request(uint64_t place, uint64_t number) {
    link_t *l = link_to(place);
    if (link_enter(l)) return l;
    return link_leave(l, link_await(l, number));
}

/* Reads what has come of a request's reply. Returns 1 if all of it has, 0 if not, -1 for a failure, as after the limit without progress. */
static int look_for(link_t *l, uint64_t number, int64_t *since) {
    if (link_enter(l)) return -1;
    int read = l->executed < number ? link_read(l) : 1;
    if (read > 0) *since = now_ns();
    else if (!read && far->limit && now_ns() - *since > far->limit) read = link_fail(l, ETIMEDOUT);
    int here = l->executed >= number;
    link_leave(l, 0);
    return here ? 1 : read < 0 ? -1 : 0;
}

static link_t *far_put_strided(uint64_t place, const char *source, uint64_t step, uint64_t own_step, uint64_t item, uint64_t count) {
    link_t *l = link_to(place);
    char packed[CHUNK];
    uint64_t at_once = item <= CHUNK ? CHUNK / item : 1;
    if (link_enter(l)) return l;
    int failed = 0;
    for (uint64_t i = 0; i < count && !failed; i += at_once) {
        uint64_t n = count - i < at_once ? count - i : at_once;
        if (item > CHUNK) { failed = send_put(l, place + i * step, source + i * own_step, item); continue; }
        request_t r = {.op = PUT_STRIDED, .detail = (uint32_t)item, .offset = offset_of(place + i * step), .nbytes = n * item, .value = step};
        for (uint64_t j = 0; j < n; j++) memcpy(packed + j * item, source + (i + j) * own_step, item);
        failed = request(l, &r, packed, n * item);
    }
    return link_leave(l, failed);
}

static link_t *far_get_strided(char *dest, uint64_t place, uint64_t own_step, uint64_t step, uint64_t item, uint64_t count) {
    link_t *l = link_to(place);
    uint64_t at_once = item <= CHUNK ? CHUNK / item : 1;
    if (!count) return NULL; /* no reply would come */
    if (link_enter(l)) return l;
    int failed = 0;
    for (uint64_t i = 0; i < count && !failed; i += at_once) {
        uint64_t n = count - i < at_once ? count - i : at_once;
        if (item > CHUNK) { failed = ask_for(l, place + i * step, dest + i * own_step, item); continue; }
        char *packed = malloc(n * item);
        request_t r = {.op = GET_STRIDED, .detail = (uint32_t)item, .offset = offset_of(place + i * step), .nbytes = n * item, .value = step};
        if (!packed) failed = link_fail(l, ENOMEM);
        else failed = expect(l, (expected_t){l->sent + 1, n * item, dest + i * own_step, own_step, item, NULL, packed}) || request(l, &r, NULL, 0);
    }
    return link_leave(l, failed || link_await(l, l->sent));
}

/* Performs an atomic. old: where its previous value goes; NULL for an atomic that fetches nothing, which quiet completes. */
static link_t *far_atomic(uint64_t place, uint32_t detail, uint64_t value, uint64_t cond, uint64_t *old) {
    link_t *l = link_to(place);
    if (link_enter(l)) return l;
    request_t r = {.op = old ? FETCH : UPDATE, .detail = detail, .offset = offset_of(place), .value = value, .cond = cond};
    int failed = old && expect(l, (expected_t){.seq = l->sent + 1, .value = old});
    return link_leave(l, failed || request(l, &r, NULL, 0) || (old && link_await(l, l->sent)));
}

/* Puts, and then updates a uint64 there, by one message. */
static link_t *far_put_signal(uint64_t place, const char *source, uint64_t nbytes, uint64_t word, uint32_t detail, uint64_t value) {
    link_t *l = link_to(place);
    if (link_enter(l)) return l;
    request_t put = {.op = PUT, .offset = offset_of(place), .nbytes = nbytes};
    request_t update = {.op = UPDATE, .detail = detail, .offset = offset_of(word), .value = value};
    struct iovec v[3] = {{&put, sizeof put}, {(void *)source, nbytes}, {&update, sizeof update}};
    if (is_large(nbytes)) return link_leave(l, send_put(l, place, source, nbytes) || request(l, &update, NULL, 0));
    l->sent += 2;
    update.asks = l->asked <= l->executed;
    if (update.asks) l->asked = l->sent;
    return link_leave(l, link_write(l, v, 3));
}

/* Puts, and then stores an epoch into a word of an area by the same message, see post in _collectives.h. nbytes may be 0. */
static link_t *far_post(uint64_t place, const char *source, uint64_t nbytes, uint64_t word, uint64_t epoch, uint64_t asleep) {
    link_t *l = link_to(word);
    if (link_enter(l)) return l;
    request_t put = {.op = PUT, .offset = offset_of(place), .nbytes = nbytes};
    request_t post = {.op = POST, .offset = offset_of(word), .value = epoch, .cond = offset_of(asleep)};
    struct iovec v[3] = {{&put, sizeof put}, {(void *)source, nbytes}, {&post, sizeof post}};
    if (is_large(nbytes)) {
        if (send_put(l, place, source, nbytes)) return link_leave(l, -1);
        nbytes = 0;
    }
    int skipped = nbytes ? 0 : 2;
    l->sent += nbytes ? 2 : 1;
    return link_leave(l, link_write(l, v + skipped, 3 - skipped));
}

/* Completes all requests to the links, which are open. First every target is asked, and then the answers are awaited. */
static link_t *complete_links(link_t **links, int n) {
    for (int wait = 0; wait < 2; wait++)
        for (int i = 0; i < n; i++) {
            link_t *l = links[i];
            pthread_mutex_lock(&l->lock);
            request_t flush = {.op = FLUSH};
            int failed = l->error != 0;
            if (!failed && !wait && l->asked < l->sent) failed = request(l, &flush, NULL, 0);
            if (!failed && wait) failed = link_await(l, l->asked);
            if (link_leave(l, failed)) return l;
        }
    return NULL;
}

static link_t *far_quiet(void) {
    pthread_mutex_lock(&far->lock);
    int n = far->n_open;
    pthread_mutex_unlock(&far->lock);
    return complete_links(far->open, n);
}

/* ---- methods ---- */

/* Takes the GIL back, and raises the error of a link that failed. */
static PyObject *far_result(PyThreadState *released, link_t *failed, const char *routine) {
    PyEval_RestoreThread(released);
    if (!failed) Py_RETURN_NONE;
    PyObject *none = PyObject_CallFunction(far->refuse, "sii", routine, failed->pe, failed->error);
    if (none) { Py_DECREF(none); PyErr_SetString(PyExc_OSError, "the connection to a far PE has failed"); }
    return NULL;
}

/* Reads n arguments, which are unsigned integers. */
static int words_of(const char *name, PyObject *const *args, Py_ssize_t n, Py_ssize_t want, uint64_t *words) {
    if (!arity(name, n, want)) return 0;
    for (Py_ssize_t i = 0; i < n; i++)
        if (!to_u64(args[i], &words[i])) return 0;
    if (!far) PyErr_SetString(PyExc_RuntimeError, "there are no far PEs");
    return far != NULL;
}
#define FAR_METHOD(NAME, ROUTINE, COUNT, CALL)                                                                   \
    static PyObject *py_##NAME(PyObject *self, PyObject *const *args, Py_ssize_t n) {                            \
        (void)self;                                                                                              \
        uint64_t a[COUNT + 1];                                                                                   \
        if (!words_of(#NAME, args, n, COUNT, a)) return NULL;                                                    \
        PyThreadState *released = PyEval_SaveThread();                                                           \
        return far_result(released, CALL, ROUTINE);                                                              \
    }
FAR_METHOD(far_put, "put", 3, far_put(a[0], (char *)a[1], a[2]))
FAR_METHOD(far_get, "get", 3, far_get((char *)a[0], a[1], a[2], 1))
FAR_METHOD(far_get_nbi, "get_nbi", 3, far_get((char *)a[0], a[1], a[2], 0))
FAR_METHOD(far_put_strided, "iput", 6, far_put_strided(a[0], (char *)a[1], a[2], a[3], a[4], a[5]))
FAR_METHOD(far_get_strided, "iget", 6, far_get_strided((char *)a[0], a[1], a[2], a[3], a[4], a[5]))
FAR_METHOD(far_put_signal, "put_signal", 6, far_put_signal(a[0], (char *)a[1], a[2], a[3], (uint32_t)a[4], a[5]))
FAR_METHOD(far_quiet, "quiet", 0, far_quiet())
FAR_METHOD(far_await, "get", 2, await_request(a[0], a[1]))

/* far_ask(dest, place, nbytes) -> the number of a request for data, which are in dest after far_await(place, number). */
static PyObject *py_far_ask(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t a[4], number = 0;
    if (!words_of("far_ask", args, n, 3, a)) return NULL;
    PyThreadState *released = PyEval_SaveThread();
    PyObject *done = far_result(released, far_ask((char *)a[0], a[1], a[2], &number), "get");
    if (!done) return NULL;
    Py_DECREF(done);
    return PyLong_FromUnsignedLongLong(number);
}

/* far_quiet_pe(pe) */
static link_t *quiet_pe(uint64_t pe) {
    link_t *l = far->links[pe];
    return !l || !wire_is_open(&l->wire) ? NULL : complete_links(&l, 1);
}
FAR_METHOD(far_quiet_pe, "pe_quiet", 1, a[0] < (uint64_t)far->n_pes ? quiet_pe(a[0]) : NULL)

/* far_fetch_<type>(operator, place[, value]) -> the previous value, with (operator, place, cond, value) for a compare-and-swap;
 * far_update_<type>(operator, place, value) -> None. */
enum { TYPE_int32, TYPE_int64, TYPE_uint32, TYPE_uint64, TYPE_float32, TYPE_float64, TYPES };
#define FAR_ATOMICS(T, B)                                                                                        \
    static PyObject *far_atomic_##T(PyObject *const *args, Py_ssize_t n, int fetches) {                          \
        uint64_t operator, place, old = 0;                                                                       \
        T##_t first = 0, second = 0;                                                                             \
        if (!far || n < 2 || n > 4) { PyErr_SetString(PyExc_TypeError, "far atomics take 2 to 4 arguments"); return NULL; } \
        if (!to_u64(args[0], &operator) || !to_u64(args[1], &place)) return NULL;                                \
        if ((n > 2 && !to_##T(args[2], &first)) || (n > 3 && !to_##T(args[3], &second))) return NULL;            \
        PyThreadState *released = PyEval_SaveThread();                                                           \
        link_t *failed = far_atomic(place, (uint32_t)operator * 16 + TYPE_##T, bits_##T(n > 3 ? second : first), \
                                    bits_##T(first), fetches ? &old : NULL);                                     \
        PyObject *done = far_result(released, failed, "atomic");                                                 \
        if (!done || !fetches) return done;                                                                      \
        Py_DECREF(done);                                                                                         \
        return from_##T(value_##T((B##_t)old));                                                                  \
    }                                                                                                            \
    static PyObject *py_far_fetch_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) { (void)self; return far_atomic_##T(args, n, 1); } \
    static PyObject *py_far_update_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) { (void)self; return far_atomic_##T(args, n, 0); }
INTEGERS(FAR_ATOMICS) FLOATS(FAR_ATOMICS)
