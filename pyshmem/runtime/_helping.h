/* A call that waits executes the requests of far PEs itself, so that neither the service nor the call need be woken.
 *
 * The service sleeps in `outer`, which reports that something happens in `epoll`, unless a call looks there: then the
 * service sleeps on. At its end the call lets `outer` report again, also what has come already. One thread at a time
 * looks. None does where PEs share cores, or for some time after it has lost its core: the service is woken sooner. */
#pragma once
#include "_service.h"

/* AWAY_NS: between two looks of a thread that has lost its core. SHY_NS: how long no call looks then. */
enum { AWAY_NS = 200000, SHY_NS = 20000000 };

static _Thread_local int64_t helping; /* when this thread has last looked, or 0 */

static void report(service_t *s, int events) {
    struct epoll_event e = {.events = (uint32_t)events, .data.ptr = s};
    epoll_ctl(s->outer, EPOLL_CTL_MOD, s->epoll, &e);
}

static void stop_helping(service_t *s) {
    uint64_t one = 1;
    helping = 0;
    pthread_mutex_lock(&s->seat);
    int rest = rest_of(s), sooner = rest >= 0 && (s->rest < 0 || rest < s->rest);
    report(s, EPOLLIN);
    __atomic_store_n(&s->helped, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&s->seat);
    if (sooner && write(s->wake, &one, sizeof one) < 0) end_pe();
}

/* Executes what has come. ends: the wait is over, or goes on without the core. The service alone has the GPU's context.
 */
static void help(int ends) {
    service_t *s = far ? far->service : NULL;
    if (!s) return;
    if (!ends) send_all_held();
    if (ends && !helping) return;
    int64_t now = now_ns();
    int away = helping && now - helping > AWAY_NS;
    if (away) __atomic_store_n(&s->shy, now + SHY_NS, __ATOMIC_RELAXED);
    if (ends || away) {
        stop_helping(s);
        return;
    }
    if (!helping) {
        if (far->spins <= CROWDED || __atomic_load_n(&far->gpu, __ATOMIC_ACQUIRE)) return;
        if (now < __atomic_load_n(&s->shy, __ATOMIC_RELAXED) || __atomic_exchange_n(&s->helped, 1, __ATOMIC_ACQ_REL))
            return;
        report(s, 0);
    }
    helping = now;
    if (pthread_mutex_trylock(&s->seat)) return;
    fabric_serve(s);
    execute_round(s);
    pthread_mutex_unlock(&s->seat);
}
