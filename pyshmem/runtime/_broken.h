/* A call that ends on one member before its end, by an exception or a time-out, must not be combined with a later one.
 *
 * This member then tells all others, before the exception reaches the program, which may change the arrays: it stores a
 * mark into their areas. So a member whose call has read what the program changed finds the mark when its call ends.
 * Members that wait, or call later, find it too. A mark has the stamp of its team, because the area of a member may by
 * then belong to another team. */
#pragma once
#include "_teams.h"

enum { MARK_NS = 2000000000 }; /* the longest wait for members on other nodes: a PE that stands still holds up nobody */

/* A request to store a mark in a far member's area. number: of the request, whose reply, into `old`, says that it has
 * been executed. Returns whether that failed. */
static int ask_to_mark(link_t *l, uint64_t place, uint64_t mark, uint64_t *old, uint64_t *number) {
    if (link_enter(l)) return 1;
    request_t r = {.op = FETCH, .detail = OP_swap * 16 + TYPE_uint64, .offset = offset_of(place), .value = mark};
    int failed =
        expect(l, (expected_t){.seq = l->sent + 1, .value = (char *)old, .item = 8}) || request(l, &r, NULL, 0);
    *number = l->sent;
    return link_leave(l, failed) != NULL;
}

/* Marks the areas of far members, and waits until that is done. Signal handlers must not run meanwhile. */
static void mark_far(team_t *t, uint64_t mark) {
    static _Thread_local uint64_t old; /* of no use, but a late reply may come */
    uint64_t *numbers = calloc((uint64_t)t->n, sizeof *numbers);
    int64_t begun = now_ns();
    for (int64_t j = 0; numbers && j < t->n; j++) {
        uint64_t place = place_of(t, j, &counters(t)->broken);
        if (is_away(t, j) && ask_to_mark(link_to(place), place, mark, &old, &numbers[j])) numbers[j] = 0;
    }
    for (int64_t j = 0; numbers && j < t->n; j++) {
        if (!numbers[j]) continue;
        link_t *l = link_to(place_of(t, j, t->area));
        int done;
        while (!(done = look_for(l, numbers[j], begun)) && now_ns() - begun < MARK_NS) usleep(20);
        if (done == 1) continue;
        pthread_mutex_lock(&l->lock);
        abandon(l, numbers[j], numbers[j]);
        pthread_mutex_unlock(&l->lock);
    }
    free(numbers);
}

static void leave_team(team_t *t) {
    counters_t *own = counters(t);
    if (is_broken(t)) return;
    t->area[FACTS] = 0;
    uint64_t mark = own->refusals >> STAMP_BITS << STAMP_BITS | (uint64_t)(t->me + 1);
    for (int64_t k = 0; k < t->n; k++) {
        int64_t j = (t->me + k) % t->n;
        if (!is_away(t, j))
            __atomic_store_n(&((counters_t *)(area_of(t, j) + COUNTERS))->broken, mark, __ATOMIC_RELEASE);
    }
    if (t->nodes > 1) {
        release_gil(t);
        PyThreadState *released = caller.released;
        int raised = caller.raised;
        caller.released = NULL, caller.raised = 0;
        mark_far(t, mark);
        caller.released = released, caller.raised = raised;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* the program's stores come later */
}

static int64_t breaker_of(const team_t *t) { return (int64_t)(counters(t)->broken & ((1 << STAMP_BITS) - 1)) - 1; }

/* leave(team, timeout, spins, text): an exception has ended a call of this PE. text: which one, and why; at most FACTS.
 */
static PyObject *py_leave(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    char *text;
    Py_ssize_t length;
    if (!arity("leave", n, 4) || !to_team(args, &t) || PyBytes_AsStringAndSize(args[3], &text, &length)) return NULL;
    leave_team(&t);
    if (breaker_of(&t) == t.me) {
        uint64_t most = length < NOTE ? (uint64_t)length : NOTE - 1;
        memset(t.area + FACTS + most, 0, NOTE - most);
        memcpy(t.area + FACTS, text, most);
    }
    if (t.released) PyEval_RestoreThread(t.released);
    Py_RETURN_NONE;
}

/* breaker(team, timeout, spins) -> (member, text) of the member that has left a call, (-1, b"") if none has. text: what
 * it has given to leave, b"" if it has not yet, or has left the team. */
static PyObject *py_breaker(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    if (!arity("breaker", n, 3) || !to_team(args, &t)) return NULL;
    if (!is_broken(&t)) return Py_BuildValue("Ly", -1LL, "");
    int64_t member = breaker_of(&t);
    char facts[NOTE] = "";
    counters_t theirs = {0};
    read_from(&t, member, (char *)&theirs, t.area + COUNTERS, sizeof theirs);
    read_from(&t, member, facts, t.area + FACTS, sizeof facts);
    complete(&t);
    if (t.released) PyEval_RestoreThread(t.released);
    int stale = t.failed || theirs.refusals >> STAMP_BITS != counters(&t)->refusals >> STAMP_BITS;
    if (t.failed && caller.raised) return caller.raised = 0, NULL;
    facts[stale ? 0 : NOTE - 1] = 0;
    return Py_BuildValue("Ly", (long long)member, facts);
}

/* stamp(area, stamp): tells the team of an area, which has been cleared, from those that used the area before. */
static PyObject *py_stamp(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t area, stamp;
    if (!arity("stamp", n, 2) || !to_u64(args[0], &area) || !to_u64(args[1], &stamp)) return NULL;
    ((counters_t *)(area + COUNTERS))->refusals = stamp << STAMP_BITS;
    Py_RETURN_NONE;
}

static PyMethodDef broken_methods[] = {METHOD(leave), METHOD(breaker), METHOD(stamp), LAST_METHOD};
