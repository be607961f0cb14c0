/* The service thread when MPI carries everything: it polls for packets.
 *
 * MPI cannot wake a thread. If there are too few cores, the service sleeps between two polls. */
#pragma once
#include <sys/prctl.h>

#include "_opening.h"

enum { SHORTEST_NAP_NS = 20000, LONGEST_NAP_NS = 2000000, PAUSES = 50 };

/* Sleeps for a hundredth of the time since something last came, so that what comes next is delayed by at most 1 % of
 * that time. A wake ends the sleep. Returns whether a wake has come. */
static int nap(int wake, int64_t idle_ns) {
    int64_t ns = idle_ns / 100;
    struct timespec length = {0, ns < SHORTEST_NAP_NS ? SHORTEST_NAP_NS : ns < LONGEST_NAP_NS ? ns : LONGEST_NAP_NS};
    uint64_t count;
    struct pollfd woken = {wake, POLLIN, 0};
    return ppoll(&woken, 1, &length, NULL) > 0 && read(wake, &count, sizeof count) > 0;
}

static int is_unfinished(const peer_t *p) { return p->moves || p->writing || wire_holds(&p->wire); }

/* How much a peer has been sent and how much of its data has been taken: it changes with each step. */
static uint64_t steps_of(const peer_t *p) { return p->wire.packets->sent + p->wire.packets->taken - p->rest; }

/* Serves a peer as far as its messages have come. Returns whether it has made progress. */
static int go_on(service_t *s, peer_t *p) {
    uint64_t before = steps_of(p);
    if (!attend(s, p, 0)) return 1;
    s->unfinished |= is_unfinished(p), s->full |= wire_holds(&p->wire);
    return steps_of(p) != before;
}

/* Takes a packet from one PE or from any, and serves its peer, which is created at its first packet. Returns 1 if a
 * packet has come, 0 if not, -1 for a failure. */
static int take_packet(service_t *s, int from) {
    packet_t *came = s->spare;
    int here = message_take(came, sizeof *came, from, REQUESTS);
    if (here <= 0 || came->pe < 0 || came->pe >= far->n_pes) return here <= 0 ? here : -1;
    peer_t *p = s->by_pe[came->pe];
    if (!p) {
        p = s->by_pe[came->pe] = new_peer(s, -1, came->pe);
        if (!p || open_packets(&p->wire, p->pe, REPLIES, 0)) return -1;
    }
    packets_t *k = p->wire.packets;
    s->spare = k->in, k->in = came, k->taken = 0;
    go_on(s, p);
    return 1;
}

/* Takes packets. While the last packet of a peer waits to be executed, no more are taken from it, so that the peer has
 * to wait too: then each other PE is probed by its number. Returns whether any packet has come, or -1 for a failure. */
static int take_packets(service_t *s) {
    if (!s->full) return take_packet(s, mpi.any_source);
    int came = 0;
    for (int pe = 0; pe < far->n_pes && came >= 0; pe++) {
        peer_t *p = s->by_pe[pe];
        if (!far->links[pe] || (p && wire_holds(&p->wire))) continue;
        int here = take_packet(s, pe);
        came = here < 0 ? -1 : came | here;
    }
    return came;
}

/* Serves all unfinished peers. Returns whether one of them has made progress. */
static int serve_packets(service_t *s) {
    int steps = 0;
    s->unfinished = s->full = 0;
    for (peer_t *p = s->peers, *next; p; p = next) {
        next = p->next;
        if (is_unfinished(p)) steps |= go_on(s, p);
    }
    return steps;
}

/* Waits between two polls that have found nothing. A long message moves only while a thread polls, and another thread
 * of the PE may want MPI's lock. */
static void pause_polling(service_t *s, int64_t idle) {
    if (far->naps && s->moving)
        sched_yield();
    else if (far->naps && idle > SHORTEST_NAP_NS)
        nap(s->wake, idle);
    else
        for (int i = 0; i < PAUSES; i++) CPU_RELAX();
}

static void *run_polling_service(void *arg) {
    service_t *s = arg;
    int64_t since = now_ns();
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); /* naps end on time */
    while (!__atomic_load_n(&s->stopped, __ATOMIC_ACQUIRE)) {
        free_gone(s), warm_gpu();
        int steps = s->unfinished ? serve_packets(s) : 0, came = take_packets(s);
        if (came < 0) {
            dprintf(2, "PE %d: MPI has failed to receive requests\n", far->my_pe);
            end_pe();
        }
        if (came || steps)
            since = now_ns();
        else
            pause_polling(s, now_ns() - since);
    }
    return NULL;
}

/* Ends the service of a program that has not called finalize, before MPI ends. Requests are executed until no PE makes
 * any more, because a reply that nobody receives could keep its sender in MPI_Finalize. */
static void end_polling(void) {
    if (!far || !far->polls) return;
    far_quiet();
    mpi.barrier(mpi.comm);
    stop_thread(far->service);
}

/* far_end_polling() */
static PyObject *py_far_end_polling(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    end_polling();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef polling_methods[] = {METHOD_NO_ARGUMENTS(far_end_polling), LAST_METHOD};
