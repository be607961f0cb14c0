/* Members of a team, as threads of this process whose areas are neighbours. */
#include <pthread.h>
#include <unistd.h>

#include "../../pyshmem/native/team/collectives.h"
#include "../../pyshmem/native/team/reductions.h"
#include "../../pyshmem/native/team/streamed.h"
#include "check.h"

enum { MEMBERS = 4, STRIDE = 1 << 16, DATA = 1 << 15, ROUNDS = 200 };
static _Alignas(64) char areas[MEMBERS][STRIDE];

static team_t member(int64_t me, double timeout) {
    return (team_t){.area = areas[me], .stride = STRIDE, .me = me, .n = MEMBERS, .spin = spin_begin(timeout, 50)};
}

/* Runs a function on all members at once. */
static void on_all(void *(*run)(void *)) {
    pthread_t threads[MEMBERS];
    memset(areas, 0, sizeof areas);
    for (intptr_t i = 0; i < MEMBERS; i++) CHECK(!pthread_create(&threads[i], NULL, run, (void *)i));
    for (int i = 0; i < MEMBERS; i++) CHECK(!pthread_join(threads[i], NULL));
}

static uint64_t arrived;

static void *meet_often(void *me) {
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        team_t t = member((int64_t)me, 60);
        __atomic_add_fetch(&arrived, 1, __ATOMIC_RELAXED);
        CHECK(team_begin_rooted(&t, 1, -1) && barrier_disseminate(&t) && t.left == DONE && !t.failed);
        CHECK(__atomic_load_n(&arrived, __ATOMIC_RELAXED) >= MEMBERS * round);
    }
    return NULL;
}

void barriers_let_nobody_pass(void) {
    arrived = 0;
    on_all(meet_often);
    CHECK(arrived == MEMBERS * ROUNDS);
}

static void *sum_often(void *me) {
    for (int64_t round = 0; round < ROUNDS; round++) {
        team_t t = member((int64_t)me, 60);
        int64_t own[3] = {t.me, round, 1}, *sum = (int64_t *)(t.area + DATA);
        fold_t f;
        CHECK(reduction_prepare(&t, REDUCE, REDUCE_sum, KIND_int64, &f) && team_begin_rooted(&t, 2, -1));
        reduction_run(&t, &f, (char *)sum, (char *)own, 3, 0);
        CHECK(t.left == DONE && sum[0] == 6 && sum[1] == MEMBERS * round && sum[2] == MEMBERS);
    }
    return NULL;
}

void small_reductions_combine_all_members(void) { on_all(sum_often); }

static void *spread_often(void *me) {
    for (int64_t round = 0; round < ROUNDS; round++) {
        team_t t = member((int64_t)me, 60);
        int64_t root = round % MEMBERS, source = 100 * round, *dest = (int64_t *)(t.area + DATA + 8 * (round % 64));
        CHECK(team_begin_rooted(&t, 3, root));
        collective_broadcast(&t, root, (char *)dest, (char *)&source, sizeof source, PRIVATE_SOURCE);
        CHECK(t.left == DONE && *dest == source);
        team_t all = member((int64_t)me, 60); /* a root may be calls ahead: what it overwrites has been read */
        if (round % 16 == 15) CHECK(team_begin_rooted(&all, 1, -1) && barrier_disseminate(&all));
    }
    return NULL;
}

void broadcasts_reach_all_members(void) { on_all(spread_often); }

static void *call_differently(void *me) {
    team_t t = member((int64_t)me, 60);
    if (team_begin_rooted(&t, (int64_t)me == 2 ? 5 : 4, -1)) barrier_disseminate(&t);
    CHECK(t.left == DIFFERENT);
    return NULL;
}

void calls_that_differ_are_refused_on_all_members(void) { on_all(call_differently); }

void a_member_that_does_not_come_is_waited_for_in_time(void) {
    memset(areas, 0, sizeof areas);
    team_t t = member(0, 0.05);
    CHECK(team_begin_rooted(&t, 1, -1) && !barrier_disseminate(&t) && t.spin.failed == 1);
}
