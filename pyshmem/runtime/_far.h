/* Calls on the memory of far PEs, by requests (_links.h). */
#pragma once
#include "_atomics.h"
#include "_connecting.h"
#include "_fabric.h"

/* Sends a put with its data. The link is locked. */
static int send_put(link_t *l, uint64_t place, const char *source, uint64_t nbytes) {
    request_t r = {.op = PUT, .offset = offset_of(place), .nbytes = nbytes};
    return request(l, &r, source, nbytes);
}

static link_t *far_put(uint64_t place, const char *source, uint64_t nbytes) {
    link_t *l = link_to(place);
    if (by_fabric(place, nbytes)) return fabric_put(place, source, nbytes);
    if (link_enter(l)) return l;
    return link_leave(l, send_put(l, place, source, nbytes));
}

/* Sends a request for data, and does not wait for them. The link is locked. */
static int ask_for(link_t *l, uint64_t place, char *dest, uint64_t nbytes) {
    request_t r = {.op = GET, .offset = offset_of(place), .nbytes = nbytes};
    return expect(l, (expected_t){.seq = l->sent + 1, .nbytes = nbytes, .dest = dest}) || request(l, &r, NULL, 0);
}

/* wait: 0 for a get that quiet completes */
static link_t *far_get(char *dest, uint64_t place, uint64_t nbytes, int wait) {
    link_t *l = link_to(place);
    if (by_fabric(place, nbytes)) return fabric_get(dest, place, nbytes, wait);
    if (link_enter(l)) return l;
    int failed = ask_for(l, place, dest, nbytes);
    uint64_t number = l->sent;
    return link_leave(l, failed) || (wait && link_await(l, number, number)) ? l : NULL;
}

/* The two halves of a get: others may be asked for in between. number: of the request. */
static link_t *far_ask(char *dest, uint64_t place, uint64_t nbytes, uint64_t *number) {
    link_t *l = link_to(place);
    if (link_enter(l)) return l;
    int failed = ask_for(l, place, dest, nbytes);
    *number = l->sent;
    return link_leave(l, failed);
}

/* next: another number, of a request whose reply an exception drops too */
static link_t *await_request(uint64_t place, uint64_t number, uint64_t next) {
    link_t *l = link_to(place);
    if (!number) return fabric_settle(l) ? l : NULL; /* it goes by the fabric */
    if (!link_await(l, number, number)) return NULL;
    if (!link_enter(l)) abandon(l, next, next), link_leave(l, 0);
    return l;
}

/* Reads what has come of a request's reply. Returns 1 if all of it has come, 0 if not, -1 for a failure, such as no
 * progress within the limit. */
static int look_for(link_t *l, uint64_t number, int64_t since) {
    if (link_enter(l)) return -1;
    int failed = l->executed < number && ((!l->reads && link_read(l) < 0) || is_late(l, since));
    int here = l->executed >= number;
    link_leave(l, 0);
    return here ? 1 : failed ? -1 : 0;
}

static link_t *far_put_strided(uint64_t place, const char *source, uint64_t step, uint64_t own_step, uint64_t item,
                               uint64_t count) {
    link_t *l = link_to(place);
    char packed[CHUNK];
    uint64_t at_once = item <= CHUNK ? CHUNK / item : 1;
    int failed = 0, apart = item > CHUNK && by_fabric(place, item);
    for (uint64_t i = 0; apart && i < count; i++)
        if (fabric_put(place + i * step, source + i * own_step, item)) return l;
    if (apart) return NULL;
    if (link_enter(l)) return l;
    for (uint64_t i = 0; i < count && !failed; i += at_once) {
        uint64_t n = count - i < at_once ? count - i : at_once;
        if (item > CHUNK) {
            failed = send_put(l, place + i * step, source + i * own_step, item);
            continue;
        }
        request_t r = {.op = PUT_STRIDED,
                       .detail = (uint32_t)item,
                       .offset = offset_of(place + i * step),
                       .nbytes = n * item,
                       .value = n > 1 ? step : 0};
        for (uint64_t j = 0; j < n; j++) memcpy(packed + j * item, source + (i + j) * own_step, item);
        failed = request(l, &r, packed, n * item);
    }
    return link_leave(l, failed);
}

static link_t *far_get_strided(char *dest, uint64_t place, uint64_t own_step, uint64_t step, uint64_t item,
                               uint64_t count) {
    link_t *l = link_to(place);
    uint64_t at_once = item <= CHUNK ? CHUNK / item : 1;
    int apart = item > CHUNK && by_fabric(place, item);
    for (uint64_t i = 0; apart && i < count; i++)
        if (fabric_get(dest + i * own_step, place + i * step, item, i + 1 == count)) return l;
    if (!count || apart) return NULL; /* no reply would come */
    if (link_enter(l)) return l;
    uint64_t first = l->sent + 1, last;
    int failed = 0;
    for (uint64_t i = 0; i < count && !failed; i += at_once) {
        uint64_t n = count - i < at_once ? count - i : at_once;
        if (item > CHUNK) {
            failed = ask_for(l, place + i * step, dest + i * own_step, item);
            continue;
        }
        char *packed = malloc(n * item);
        request_t r = {.op = GET_STRIDED,
                       .detail = (uint32_t)item,
                       .offset = offset_of(place + i * step),
                       .nbytes = n * item,
                       .value = n > 1 ? step : 0};
        expected_t e = {l->sent + 1, n * item, dest + i * own_step, own_step, item, NULL, packed};
        failed = packed ? expect(l, e) : refuse_call();
        if (failed) free(packed);
        failed = failed || request(l, &r, NULL, 0);
    }
    last = l->sent; /* of a call that is refused, earlier replies come */
    link_leave(l, 0);
    return (last >= first && link_await(l, first, last)) || failed ? l : NULL;
}

/* Performs an atomic. old: where its previous value goes, a uint64_t or, without `wait`, a word of its type; NULL for
 * an atomic that fetches nothing. Without `wait` quiet completes it. */
static link_t *far_atomic(uint64_t place, uint32_t detail, uint64_t value, uint64_t cond, void *old, int wait) {
    link_t *l = link_to(place);
    if (link_enter(l)) return l;
    request_t r = {
        .op = old ? FETCH : UPDATE, .detail = detail, .offset = offset_of(place), .value = value, .cond = cond};
    int failed =
        old && expect(l, (expected_t){.seq = l->sent + 1, .value = old, .item = wait ? 8 : appliers[detail % 16].item});
    failed = failed || request(l, &r, NULL, 0);
    uint64_t number = l->sent;
    return link_leave(l, failed) || (wait && old && link_await(l, number, number)) ? l : NULL;
}

/* Whether a put goes by the fabric although a request follows it: up to CHUNK bytes travel with the request. */
static int goes_apart(uint64_t place, uint64_t nbytes) { return nbytes > CHUNK && by_fabric(place, nbytes); }

/* Puts, and then updates a uint64 there, by one message, or by the fabric and then a request. */
static link_t *far_put_signal(uint64_t place, const char *source, uint64_t nbytes, uint64_t word, uint32_t detail,
                              uint64_t value) {
    link_t *l = link_to(place);
    int apart = goes_apart(place, nbytes);
    if ((apart && fabric_put_before(place, source, nbytes)) || link_enter(l)) return l;
    request_t put = {.op = PUT, .offset = offset_of(place), .nbytes = nbytes};
    request_t update = {.op = UPDATE, .detail = detail, .offset = offset_of(word), .value = value};
    struct iovec v[3] = {{&put, sizeof put}, {(void *)source, nbytes}, {&update, sizeof update}};
    int skipped = apart ? 2 : 0;
    l->due = l->sent += apart ? 1 : 2;
    note_sent(l->pe, l->sent - !apart, l->sent);
    update.asks = l->asked <= l->executed;
    if (update.asks) l->asked = l->sent;
    link_t *failed = link_leave(l, link_write(l, v + skipped, 3 - skipped));
    return failed || !apart || !fabric_settle(l) ? failed : l; /* the source is free */
}

/* Puts, and by the same message then stores an epoch into a word of an area, see post in _teams.h. nbytes may be 0.
 * The target waits for both, so quiet need not. */
static link_t *far_post(uint64_t place, const char *source, uint64_t nbytes, uint64_t word, uint64_t epoch,
                        uint64_t asleep) {
    link_t *l = link_to(word);
    int apart = goes_apart(place, nbytes);
    if ((apart && fabric_put(place, source, nbytes)) || link_enter(l)) return l;
    request_t put = {.op = PUT, .offset = offset_of(place), .nbytes = nbytes};
    request_t post = {.op = POST, .offset = offset_of(word), .value = epoch, .cond = offset_of(asleep)};
    struct iovec v[3] = {{&put, sizeof put}, {(void *)source, nbytes}, {&post, sizeof post}};
    int skipped = apart || !nbytes ? 2 : 0;
    l->fenced = l->sent += skipped ? 1 : 2;
    note_sent(l->pe, l->sent - !skipped, l->sent);
    return link_leave(l, link_write(l, v + skipped, 3 - skipped));
}

/* Completes all requests on these links: asks every target first, and then waits for the answers. The buffers of
 * non-blocking gets outlive an exception. */
static link_t *complete_links(link_t **links, int n) {
    for (int wait = 0; wait < 2; wait++)
        for (int i = 0; i < n; i++) {
            link_t *l = links[i];
            if (pthread_mutex_lock(&l->lock)) return l;
            request_t flush = {.op = FLUSH};
            uint64_t asked = l->asked;
            int failed = l->error || l->refused, waits = wait && l->executed < l->due;
            if (!failed && !wait && asked < l->due) failed = request(l, &flush, NULL, 0);
            if (link_leave(l, failed) || (waits && link_await(l, UINT64_MAX, asked))) return l;
        }
    return NULL;
}

static link_t *far_quiet(void) {
    pthread_mutex_lock(&far->lock);
    int n = far->n_open;
    pthread_mutex_unlock(&far->lock);
    link_t *failed = fabric_quiet();
    return failed ? failed : complete_links(far->open, n);
}

/* Later writes and reads by the fabric wait for the requests so far; requests are in order anyway. */
static link_t *far_fence(void) {
    __atomic_add_fetch(&far->fences, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&far->lock);
    int n = far->fabric ? far->n_open : 0;
    pthread_mutex_unlock(&far->lock);
    for (int i = 0; i < n; i++) {
        link_t *l = far->open[i];
        if (pthread_mutex_lock(&l->lock)) return l;
        l->fenced = l->sent;
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

static void say_goodbye(link_t *l) {
    request_t bye = {.op = BYE};
    l->wire.on = 0, l->n_held = 0; /* all requests have been completed, unless a call was refused */
    if (l->fd >= 0 && (!l->error || far->trial)) link_write(l, &(struct iovec){&bye, sizeof bye}, 1);
    end_connection(&l->fd);
}

/* Ends the links that expect data: an exception has ended a call whose arrays they would be written into. */
static void end_gets(void) {
    pthread_mutex_lock(&far->lock);
    int n = far->n_open;
    pthread_mutex_unlock(&far->lock);
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&far->open[i]->lock);
        if (far->open[i]->count) link_fail(far->open[i], EINTR);
        pthread_mutex_unlock(&far->open[i]->lock);
    }
}

/* Takes the GIL back, and raises the error of a link that failed, if no signal handler has raised one. */
static PyObject *far_result(PyThreadState *released, link_t *failed, const char *routine) {
    PyEval_RestoreThread(released);
    caller.released = NULL;
    if (!failed) Py_RETURN_NONE;
    int raised = caller.raised;
    caller.raised = 0;
    if (raised) return NULL;
    PyObject *none = PyObject_CallFunction(far->refuse, "sii", routine, failed->pe, take_error(failed));
    if (none) {
        Py_DECREF(none);
        PyErr_SetString(PyExc_OSError, "the connection to a far PE has failed");
    }
    return NULL;
}
