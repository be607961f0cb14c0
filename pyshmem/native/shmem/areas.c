#include "areas.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../team/engine.h"
#include "alone.h"
#include "waits.h"

enum { MASK_WORDS = 16, RESERVED = 2 };
/* A split's offer to the other members: the areas that are free here, or that another split has its turn. */
typedef struct {
    uint64_t free[MASK_WORDS], stamp, waits;
} offer_t;
/* turn: the area of the parent whose split may offer, or -1. splitting: those of all parents that are split now. stamp:
 * of the last team. */
static struct {
    pthread_mutex_t lock;
    uint64_t free[MASK_WORDS], splitting[MASK_WORDS], stamp;
    int64_t turn;
} areas = {.lock = PTHREAD_MUTEX_INITIALIZER, .turn = -1};

static void set_bit(uint64_t *mask, int64_t at, int value) {
    uint64_t bit = UINT64_C(1) << (at & 63);
    mask[at >> 6] = value ? mask[at >> 6] | bit : mask[at >> 6] & ~bit;
}
static int64_t lowest(const uint64_t *mask) {
    for (int64_t i = 0; i < MASK_WORDS; i++)
        if (mask[i]) return 64 * i + __builtin_ctzll(mask[i]);
    return -1;
}

static char *area_at(int64_t index) { return (char *)alone.heap.system + (uint64_t)index * alone.area_bytes; }

static int enter(int64_t index, int64_t start, int64_t stride, int64_t size, int64_t me, int64_t contexts) {
    seat_t seat = {
        area_at(index),        (int64_t)alone.heap.stride * stride, me, size, areas.stamp, state.spins, state.timeout,
        (int (*)(void *))watch};
    void *native = pyshmem_engine.new_team(&seat);
    if (native) state.teams[index] = (team_t){0, native, me, start, stride, size, contexts};
    return native != NULL;
}

/* All areas are clear. */
INTERNAL void open_areas(uint64_t most_teams) {
    memset(areas.free, 0, sizeof areas.free), memset(areas.splitting, 0, sizeof areas.splitting);
    for (uint64_t i = RESERVED; i < most_teams; i++) set_bit(areas.free, (int64_t)i, 1);
    areas.stamp = 0, areas.turn = -1;
    alone.area_bytes = pyshmem_engine.area_bytes((uint64_t)state.n_pes);
    for (int64_t i = 0; i < RESERVED; i++) {
        if (!enter(i, 0, 1, state.n_pes, state.my_pe, 0)) abort();
        state.teams[i].handle = (uint64_t)i + 1;
    }
}

INTERNAL void end_team(int64_t index) {
    free(state.teams[index].native);
    state.teams[index] = (team_t){0};
    pthread_mutex_lock(&areas.lock);
    set_bit(areas.free, index, 1);
    pthread_mutex_unlock(&areas.lock);
}

INTERNAL void close_areas(void) {
    for (int64_t i = 0; i < MOST_TEAMS; i++)
        if (state.teams[i].native) end_team(i);
}

static void tell_all(const char *routine, team_t *team, const void *note, uint64_t nbytes, void *all) {
    uint64_t word = (uint64_t)WORD_SHARE << 56 | nbytes;
    complete(routine, state.calls->share(team->native, routine, word, note, nbytes, all), team);
}

static offer_t make_offer(int64_t parent) {
    offer_t offer = {.stamp = areas.stamp};
    pthread_mutex_lock(&areas.lock);
    set_bit(areas.splitting, parent, 1);
    if (areas.turn < 0 && parent == lowest(areas.splitting)) areas.turn = parent;
    offer.waits = areas.turn != parent;
    memcpy(offer.free, areas.free, sizeof offer.free);
    pthread_mutex_unlock(&areas.lock);
    return offer;
}

static void give_turn_up(int64_t parent, int ends) {
    pthread_mutex_lock(&areas.lock);
    if (areas.turn == parent) areas.turn = -1;
    if (ends) set_bit(areas.splitting, parent, 0);
    pthread_mutex_unlock(&areas.lock);
}

/* The lowest area that is free on all members, or -1. This split has its turn then, until give_turn_up. */
static int64_t agree_on_area(const char *routine, team_t *parent) {
    int64_t index = parent - state.teams;
    offer_t *all = malloc((size_t)parent->size * sizeof *all), common;
    if (!all) fail(routine, CALL_NO_MEMORY, parent);
    for (;;) {
        offer_t offer = make_offer(index);
        tell_all(routine, parent, &offer, sizeof offer, all);
        common = all[0];
        for (int64_t j = 1; j < parent->size; j++) {
            for (int i = 0; i < MASK_WORDS; i++) common.free[i] &= all[j].free[i];
            common.waits |= all[j].waits;
            if (all[j].stamp > common.stamp) common.stamp = all[j].stamp;
        }
        if (!common.waits) break;
        give_turn_up(index, 0);
    }
    free(all);
    areas.stamp = common.stamp + 1;
    return lowest(common.free);
}

INTERNAL int64_t form_team(const char *routine, team_t *parent, int64_t first, int64_t step, int64_t size,
                           int64_t contexts) {
    int64_t index = agree_on_area(routine, parent), apart = parent->me - first, made = NO_MEMBER, done = 0;
    int64_t me = size == 1 ? (apart ? -1 : 0) : apart % step ? -1 : apart / step;
    if (index >= 0 && me >= 0 && me < size) {
        int64_t start = parent->start + first * parent->stride;
        memset(area_at(index), 0, alone.area_bytes); /* an earlier team may have used it */
        if (!enter(index, start, parent->stride * step, size, me, contexts)) fail(routine, CALL_NO_MEMORY, parent);
        pthread_mutex_lock(&areas.lock);
        set_bit(areas.free, index, 0);
        pthread_mutex_unlock(&areas.lock);
        made = index;
    }
    give_turn_up(parent - state.teams, 1);
    if (index < 0) return NO_AREA;
    int64_t *all = malloc((size_t)parent->size * sizeof *all);
    if (!all) fail(routine, CALL_NO_MEMORY, parent);
    tell_all(routine, parent, &done, sizeof done, all);
    free(all);
    return made;
}

INTERNAL void name_team(const team_t *team, char *name, uint64_t room) {
    static const char *const names_of[] = {"TEAM_WORLD", "TEAM_SHARED"};
    long start = (long)team->start;
    if (team - state.teams < RESERVED)
        snprintf(name, room, "%s", names_of[team - state.teams]);
    else if (team->size == 1)
        snprintf(name, room, "team of PE %ld", start);
    else
        snprintf(name, room, "team of PEs %ld, %ld, ...", start, start + (long)team->stride);
}
