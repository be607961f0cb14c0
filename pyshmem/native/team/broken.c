#include "broken.h"

#include <stdlib.h>
#include <unistd.h>

#include "../base/word.h"
#include "../far/batch.h"

enum { MARK_NS = 2000000000 }; /* the longest wait for members on other nodes: a PE that stands still holds up nobody */

/* A request to store a mark in a far member's area. number: of the request, whose reply, into `old`, says that it has
 * been executed. Returns whether that failed. */
static int ask_to_mark(link_t *l, uint64_t place, uint64_t mark, uint64_t *old, uint64_t *number) {
    if (link_enter(l)) return 1;
    request_t r = {.op = FETCH, .detail = OP_swap * 16 + TYPE_uint64, .offset = place_offset(place), .value = mark};
    int failed =
        link_expect(l, (expected_t){.seq = l->sent + 1, .value = (char *)old, .item = 8}) || link_send(l, &r, NULL, 0);
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
        while (!(done = far_poll(l, numbers[j], begun)) && now_ns() - begun < MARK_NS) usleep(20);
        if (done == 1) continue;
        pthread_mutex_lock(&l->lock);
        link_abandon(l, numbers[j], numbers[j]);
        pthread_mutex_unlock(&l->lock);
    }
    free(numbers);
}

INTERNAL void team_leave(team_t *t) {
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
        team_release_turn(t);
        void *released = caller.released;
        int raised = caller.raised;
        caller.released = NULL, caller.raised = 0;
        mark_far(t, mark);
        caller.released = released, caller.raised = raised;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* the program's stores come later */
}

INTERNAL int64_t team_breaker(const team_t *t) { return (int64_t)(counters(t)->broken & ((1 << STAMP_BITS) - 1)) - 1; }
