/* A call that waits executes the requests of far PEs itself, so that neither the service nor the call need be woken.
 *
 * The service sleeps in `outer`, which reports that something happens in `epoll`, unless a call looks there: then the
 * service sleeps on. At its end the call lets `outer` report again, also what has come already. One thread at a time
 * looks. None does where PEs share cores. A thread that polls loses its core to other programs, for milliseconds, and
 * one that sleeps gets it as soon as it is woken: so for some time after a loss the call sleeps in `epoll`. */
#pragma once
#include "_service.h"

/* AWAY_NS: between two looks of a thread that has lost its core. SHY_NS: how long calls sleep after that; twice as
 * long, up to MOST_SHY_NS, if the core is lost again within as much time as they have slept. */
enum { AWAY_NS = 200000, SHY_NS = 20000000, MOST_SHY_NS = 640000000 };

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

/* Notes that a call has lost its core. */
static void lose_core(service_t *s, int64_t now) {
    int often = now < s->shy_until + s->shy_for;
    s->shy_for = !often ? SHY_NS : s->shy_for < MOST_SHY_NS ? 2 * s->shy_for : MOST_SHY_NS;
    __atomic_store_n(&s->shy_until, now + s->shy_for, __ATOMIC_RELAXED);
}

/* Whether calls that wait sleep, because one has lost its core. */
static int is_shy(void) {
    service_t *s = far->service;
    return s && now_ns() < __atomic_load_n(&s->shy_until, __ATOMIC_RELAXED);
}

/* Sleeps until something comes, but not for long, as nothing tells of what near PEs store. */
static void doze(service_t *s) {
    uint64_t count;
    struct pollfd p[2] = {{s->epoll, POLLIN, 0}, {s->nap, POLLIN, 0}};
    if (poll(p, 2, -1) > 0 && p[1].revents && read(s->nap, &count, sizeof count) < 0 && errno != EAGAIN)
        end_pe(); /* EAGAIN: another thread has read it */
}

/* Executes what has come. ends: the wait is over, or goes on without this. Returns whether it has slept. The service
 * alone has the GPU's context. */
static int help(int ends) {
    service_t *s = far ? far->service : NULL;
    if (!s) return 0;
    if (!ends) send_all_held();
    if (ends && !helping) return 0;
    if (ends) return stop_helping(s), 0;
    int64_t now = now_ns();
    if (!helping) {
        if (far->spins <= CROWDED || __atomic_load_n(&far->gpu, __ATOMIC_ACQUIRE)) return 0;
        if (__atomic_exchange_n(&s->helped, 1, __ATOMIC_ACQ_REL)) return 0;
        report(s, 0);
    } else if (now - helping > AWAY_NS)
        lose_core(s, now);
    int sleeps = is_shy();
    if (sleeps) doze(s);
    helping = sleeps ? now_ns() : now;
    if (pthread_mutex_trylock(&s->seat)) return sleeps;
    fabric_serve(s);
    execute_round(s);
    pthread_mutex_unlock(&s->seat);
    return sleeps;
}
