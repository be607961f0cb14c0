#include "calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/spin.h"
#include "../base/word.h"
#include "../trace/carried.h"
#include "batch.h"
#include "carrier_tcp.h"
#include "rma.h"

/* Waits for writes and reads by the fabric, if nothing else orders them before a request. Locks the link, and connects
 * it if necessary. Returns 0, or -1 for a failure, after which it is not locked. */
INTERNAL int link_enter(link_t *l) {
    if ((!l->conn.carrier->keeps_writes() && rma_settle(l)) || pthread_mutex_lock(&l->lock)) return -1;
    if (l->error || (l->conn.fd < 0 && tcp_connect(l))) {
        pthread_mutex_unlock(&l->lock);
        return -1;
    }
    return 0;
}

INTERNAL link_t *link_leave(link_t *l, int failed) {
    pthread_mutex_unlock(&l->lock);
    return failed ? l : NULL;
}

/* Sends a put with its data. The link is locked. */
static int far_send_put(link_t *l, uint64_t place, const char *source, uint64_t nbytes) {
    request_t r = {.op = PUT, .offset = place_offset(place), .nbytes = nbytes};
    return link_send(l, &r, source, nbytes);
}

INTERNAL link_t *far_put(uint64_t place, const char *source, uint64_t nbytes) {
    link_t *l = link_to(place);
    if (rma_takes(place, nbytes)) return rma_put(place, source, nbytes);
    if (link_enter(l)) return l;
    return link_leave(l, far_send_put(l, place, source, nbytes));
}

/* Sends a request for data, and does not wait for them. The link is locked. */
static int far_send_get(link_t *l, uint64_t place, char *dest, uint64_t nbytes) {
    request_t r = {.op = GET, .offset = place_offset(place), .nbytes = nbytes};
    return link_expect(l, (expected_t){.seq = l->sent + 1, .nbytes = nbytes, .dest = dest}) ||
           link_send(l, &r, NULL, 0);
}

/* wait: 0 for a get that quiet completes */
INTERNAL link_t *far_get(char *dest, uint64_t place, uint64_t nbytes, int wait) {
    link_t *l = link_to(place);
    if (rma_takes(place, nbytes)) return rma_get(dest, place, nbytes, wait);
    if (link_enter(l)) return l;
    int failed = far_send_get(l, place, dest, nbytes);
    uint64_t number = l->sent;
    return link_leave(l, failed) || (wait && link_await(l, number, number)) ? l : NULL;
}

/* The two halves of a get: others may be asked for in between. number: of the request. */
INTERNAL link_t *far_ask(char *dest, uint64_t place, uint64_t nbytes, uint64_t *number) {
    link_t *l = link_to(place);
    if (link_enter(l)) return l;
    int failed = far_send_get(l, place, dest, nbytes);
    *number = l->sent;
    return link_leave(l, failed);
}

/* next: another number, of a request whose reply an exception drops too */
INTERNAL link_t *far_await(uint64_t place, uint64_t number, uint64_t next) {
    link_t *l = link_to(place);
    if (!number) return rma_settle(l) ? l : NULL; /* it goes by the fabric */
    if (!link_await(l, number, number)) return NULL;
    if (!link_enter(l)) link_abandon(l, next, next), link_leave(l, 0);
    return l;
}

/* Reads what has come of a request's reply. Returns 1 if all of it has come, 0 if not, -1 for a failure, such as no
 * progress within the limit. */
INTERNAL int far_poll(link_t *l, uint64_t number, int64_t since) {
    if (link_enter(l)) return -1;
    int failed = l->executed < number && ((!l->reads && link_read(l) < 0) || link_is_late(l, since));
    int here = l->executed >= number;
    link_leave(l, 0);
    return here ? 1 : failed ? -1 : 0;
}

INTERNAL link_t *far_put_strided(uint64_t place, const char *source, uint64_t step, uint64_t own_step, uint64_t item,
                                 uint64_t count) {
    link_t *l = link_to(place);
    char packed[CHUNK];
    uint64_t at_once = item <= CHUNK ? CHUNK / item : 1;
    int failed = 0, apart = item > CHUNK && rma_takes(place, item);
    for (uint64_t i = 0; apart && i < count; i++)
        if (rma_put(place + i * step, source + i * own_step, item)) return l;
    if (apart) return NULL;
    if (link_enter(l)) return l;
    for (uint64_t i = 0; i < count && !failed; i += at_once) {
        uint64_t n = count - i < at_once ? count - i : at_once;
        if (item > CHUNK) {
            failed = far_send_put(l, place + i * step, source + i * own_step, item);
            continue;
        }
        request_t r = {.op = PUT_STRIDED,
                       .detail = (uint32_t)item,
                       .offset = place_offset(place + i * step),
                       .nbytes = n * item,
                       .value = n > 1 ? step : 0};
        for (uint64_t j = 0; j < n; j++) memcpy(packed + j * item, source + (i + j) * own_step, item);
        failed = link_send(l, &r, packed, n * item);
    }
    return link_leave(l, failed);
}

INTERNAL link_t *far_get_strided(char *dest, uint64_t place, uint64_t own_step, uint64_t step, uint64_t item,
                                 uint64_t count) {
    link_t *l = link_to(place);
    uint64_t at_once = item <= CHUNK ? CHUNK / item : 1;
    int apart = item > CHUNK && rma_takes(place, item);
    for (uint64_t i = 0; apart && i < count; i++)
        if (rma_get(dest + i * own_step, place + i * step, item, i + 1 == count)) return l;
    if (!count || apart) return NULL; /* no reply would come */
    if (link_enter(l)) return l;
    uint64_t first = l->sent + 1, last;
    int failed = 0;
    for (uint64_t i = 0; i < count && !failed; i += at_once) {
        uint64_t n = count - i < at_once ? count - i : at_once;
        if (item > CHUNK) {
            failed = far_send_get(l, place + i * step, dest + i * own_step, item);
            continue;
        }
        char *packed = malloc(n * item);
        request_t r = {.op = GET_STRIDED,
                       .detail = (uint32_t)item,
                       .offset = place_offset(place + i * step),
                       .nbytes = n * item,
                       .value = n > 1 ? step : 0};
        expected_t e = {l->sent + 1, n * item, dest + i * own_step, own_step, item, NULL, packed};
        failed = packed ? link_expect(l, e) : link_refuse();
        if (failed) free(packed);
        failed = failed || link_send(l, &r, NULL, 0);
    }
    last = l->sent; /* of a call that is refused, earlier replies come */
    link_leave(l, 0);
    return (last >= first && link_await(l, first, last)) || failed ? l : NULL;
}

/* Performs an atomic. old: where its previous value goes, a uint64_t or, without `wait`, a word of its type; NULL for
 * an atomic that fetches nothing. Without `wait` quiet completes it. */
INTERNAL link_t *far_atomic(uint64_t place, uint32_t detail, uint64_t value, uint64_t cond, void *old, int wait) {
    link_t *l = link_to(place);
    if (link_enter(l)) return l;
    request_t r = {
        .op = old ? FETCH : UPDATE, .detail = detail, .offset = place_offset(place), .value = value, .cond = cond};
    int failed =
        old &&
        link_expect(l, (expected_t){.seq = l->sent + 1, .value = old, .item = wait ? 8 : appliers[detail % 16].item});
    failed = failed || link_send(l, &r, NULL, 0);
    uint64_t number = l->sent;
    return link_leave(l, failed) || (wait && old && link_await(l, number, number)) ? l : NULL;
}

/* Whether a put goes by the fabric although a request follows it: up to CHUNK bytes travel with the request. */
static int far_goes_apart(uint64_t place, uint64_t nbytes) { return nbytes > CHUNK && rma_takes(place, nbytes); }

/* Puts, and then updates a uint64 there, by one message, or by the fabric and then a request. */
INTERNAL link_t *far_put_signal(uint64_t place, const char *source, uint64_t nbytes, uint64_t word, uint32_t detail,
                                uint64_t value) {
    link_t *l = link_to(place);
    int apart = far_goes_apart(place, nbytes);
    if ((apart && rma_put_before(place, source, nbytes)) || link_enter(l)) return l;
    request_t put = {.op = PUT, .offset = place_offset(place), .nbytes = nbytes};
    request_t update = {.op = UPDATE, .detail = detail, .offset = place_offset(word), .value = value};
    struct iovec v[3] = {{&put, sizeof put}, {(void *)source, nbytes}, {&update, sizeof update}};
    int skipped = apart ? 2 : 0;
    l->due = l->sent += apart ? 1 : 2;
    carried_note_sent(l->conn.pe, l->sent - !apart, l->sent);
    update.asks = l->asked <= l->executed;
    if (update.asks) l->asked = l->sent;
    link_t *failed = link_leave(l, link_write(l, v + skipped, 3 - skipped));
    return failed || !apart || !rma_settle(l) ? failed : l; /* the source is free */
}

/* Puts, and by the same message then stores an epoch into a word of an area, see post in team.h. nbytes may be 0.
 * The target waits for both, so quiet need not. */
INTERNAL link_t *far_post(uint64_t place, const char *source, uint64_t nbytes, uint64_t word, uint64_t epoch,
                          uint64_t asleep) {
    link_t *l = link_to(word);
    int apart = far_goes_apart(place, nbytes);
    if ((apart && rma_put(place, source, nbytes)) || link_enter(l)) return l;
    request_t put = {.op = PUT, .offset = place_offset(place), .nbytes = nbytes};
    request_t post = {.op = POST, .offset = place_offset(word), .value = epoch, .cond = place_offset(asleep)};
    struct iovec v[3] = {{&put, sizeof put}, {(void *)source, nbytes}, {&post, sizeof post}};
    int skipped = apart || !nbytes ? 2 : 0;
    l->fenced = l->sent += skipped ? 1 : 2;
    carried_note_sent(l->conn.pe, l->sent - !skipped, l->sent);
    return link_leave(l, link_write(l, v + skipped, 3 - skipped));
}

/* Completes all requests on these links: asks every target first, and then waits for the answers. The buffers of
 * non-blocking gets outlive an exception. */
static link_t *far_complete(link_t **links, int n) {
    for (int wait = 0; wait < 2; wait++)
        for (int i = 0; i < n; i++) {
            link_t *l = links[i];
            if (pthread_mutex_lock(&l->lock)) return l;
            request_t flush = {.op = FLUSH};
            uint64_t asked = l->asked;
            int failed = l->error || l->refused, waits = wait && l->executed < l->due;
            if (!failed && !wait && asked < l->due) failed = link_send(l, &flush, NULL, 0);
            if (link_leave(l, failed) || (waits && link_await(l, UINT64_MAX, asked))) return l;
        }
    return NULL;
}

INTERNAL link_t *far_quiet(void) {
    pthread_mutex_lock(&far->lock);
    int n = far->n_open;
    pthread_mutex_unlock(&far->lock);
    link_t *failed = rma_quiet();
    return failed ? failed : far_complete(far->open, n);
}

/* Later writes and reads by the fabric wait for the requests so far, and for the writes so far, which pass each other;
 * requests are in order anyway. */
INTERNAL link_t *far_fence(void) {
    __atomic_add_fetch(&far->fences, 1, __ATOMIC_RELAXED);
    rma_fence();
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

/* Ends a connection, by TCP in any case. All requests have been completed, unless a call was refused. */
INTERNAL void link_say_bye(link_t *l) {
    request_t bye = {.op = BYE};
    l->conn.carrier = &tcp_carrier, l->batch_bytes = 0;
    if (l->conn.fd >= 0 && (!l->error || far->trial)) link_write(l, &(struct iovec){&bye, sizeof bye}, 1);
    tcp_close(&l->conn);
}

/* Ends the links that expect data: an exception has ended a call whose arrays they would be written into. */
INTERNAL void far_end_gets(void) {
    pthread_mutex_lock(&far->lock);
    int n = far->n_open;
    pthread_mutex_unlock(&far->lock);
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&far->open[i]->lock);
        if (far->open[i]->count) link_fail(far->open[i], EINTR);
        pthread_mutex_unlock(&far->open[i]->lock);
    }
}

INTERNAL link_t *far_quiet_pe(uint64_t pe) {
    link_t *l = far->links[pe];
    return l && (rma_settle(l) || far_complete(&l, 1)) ? l : NULL; /* without a connection nothing is under way */
}

/* The self-test of a fabric writes a word while the target's server stands still for `ms`. A provider that says
 * meanwhile that the word is in place must be right at the end. verdict: 0 if it lies. */
INTERNAL link_t *far_try(uint64_t place, uint64_t ms, uint64_t value, uint64_t *verdict) {
    link_t *l = link_to(place);
    uint64_t found = 0, number;
    request_t hold = {.op = HOLD, .offset = place_offset(place), .value = ms};
    if (link_enter(l)) return l;
    int failed = link_expect(l, (expected_t){.seq = l->sent + 1, .value = (char *)&found, .item = 8}) ||
                 link_send(l, &hold, NULL, 0);
    number = l->sent;
    if (link_leave(l, failed)) return l;
    usleep((useconds_t)ms * 250); /* now it stands still */
    if (rma_put(place, (char *)&value, 8) || rma_settle(l)) {
        link_await(l, number, number);
        return l;
    }
    int early = !far_poll(l, number, now_ns());
    if (link_await(l, number, number)) return l;
    *verdict = !early || found == value;
    return NULL;
}
