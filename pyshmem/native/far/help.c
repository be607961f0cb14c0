#include "help.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../base/spin.h"
#include "batch.h"
#include "server.h"

/* AWAY_NS: between two looks of a thread that has lost its core. BACKOFF_NS: how long calls sleep after that; twice as
 * long, up to MOST_BACKOFF_NS, if the core is lost again within as much time as they have slept. */
enum { AWAY_NS = 200000, BACKOFF_NS = 20000000, MOST_BACKOFF_NS = 640000000 };

static _Thread_local int64_t helping; /* when this thread has last looked, or 0 */

static void help_report(server_t *s, int events) {
    struct epoll_event e = {.events = (uint32_t)events, .data.ptr = s};
    epoll_ctl(s->outer, EPOLL_CTL_MOD, s->epoll, &e);
}

static void help_stop(server_t *s) {
    uint64_t one = 1;
    helping = 0;
    pthread_mutex_lock(&s->executing);
    int rest = server_rest(s), sooner = rest >= 0 && (s->rest < 0 || rest < s->rest);
    help_report(s, EPOLLIN);
    __atomic_store_n(&s->helped, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&s->executing);
    if (sooner && write(s->wake, &one, sizeof one) < 0) end_process();
}

/* Notes that a call has lost its core. */
static void help_lost_core(server_t *s, int64_t now) {
    int often = now < far->backoff_until + s->backoff_for;
    s->backoff_for = !often ? BACKOFF_NS : s->backoff_for < MOST_BACKOFF_NS ? 2 * s->backoff_for : MOST_BACKOFF_NS;
    __atomic_store_n(&far->backoff_until, now + s->backoff_for, __ATOMIC_RELAXED);
}

/* Sleeps until something comes, but not for long, as nothing tells of what near PEs store. */
static void help_sleep(server_t *s) {
    uint64_t count;
    struct pollfd p[2] = {{s->epoll, POLLIN, 0}, {s->timer, POLLIN, 0}};
    if (poll(p, 2, -1) > 0 && p[1].revents && read(s->timer, &count, sizeof count) < 0 && errno != EAGAIN)
        end_process(); /* EAGAIN: another thread has read it */
}

/* Executes what has come. ends: the wait is over, or goes on without this. Returns whether it has slept. The service
 * alone has the GPU's context. */
INTERNAL int help(int ends) {
    server_t *s = far ? far->server : NULL;
    if (!s) return 0;
    if (!ends) batch_flush_all();
    if (ends && !helping) return 0;
    if (ends) return help_stop(s), 0;
    int64_t now = now_ns();
    if (!helping) {
        if (far->spins <= CROWDED || __atomic_load_n(&far->gpu, __ATOMIC_ACQUIRE)) return 0;
        if (__atomic_exchange_n(&s->helped, 1, __ATOMIC_ACQ_REL)) return 0;
        help_report(s, 0);
    } else if (now - helping > AWAY_NS)
        help_lost_core(s, now);
    int sleeps = far_backs_off();
    if (sleeps) help_sleep(s);
    helping = sleeps ? now_ns() : now;
    if (pthread_mutex_trylock(&s->executing)) return sleeps;
    server_progress(s);
    server_execute(s);
    pthread_mutex_unlock(&s->executing);
    return sleeps;
}
