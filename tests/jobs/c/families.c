/* One call of each kind, from C: what a PE writes is what the PE that it names has, static data included. A check that
 * fails ends the job with its line. */
#include <complex.h>
#include <pthread.h>
#include <shmem.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

enum { N = 40 };
static int me, n, right, left;
static long word, words[64], lock, bits = -1;
static double real[N], moved[N];
static uint64_t signal;
static short initialized[3] = {7, 8, 9};

static void one_sided(void) {
    double source[N], back[N];
    for (int i = 0; i < N; i++) source[i] = 1000 * me + i, real[i] = moved[i] = -1;
    CHECK(initialized[0] == 7 && initialized[2] == 9);
    shmem_barrier_all();
    shmem_double_put(real, source, 10, right);
    shmem_double_p(&real[10], source[10], right);
    shmem_double_iput(&real[11], &source[11], 2, 3, 5, right);     /* 11, 13, ... from 11, 14, ... */
    shmem_double_ibput(&real[21], &source[21], 4, 3, 2, 2, right); /* 21, 22, 25, 26 from 21, 22, 24, 25 */
    shmem_putmem_nbi(&real[30], &source[30], 5 * sizeof(double), right);
    shmem_put64(&real[36], &source[36], 2, right);
    shmem_quiet();
    shmem_barrier_all();
    for (int i = 0; i < 11; i++) CHECK(real[i] == 1000 * left + i);
    for (int i = 0; i < 5; i++) CHECK(real[11 + 2 * i] == 1000 * left + 11 + 3 * i);
    CHECK(real[12] == -1 && real[20] == -1 && real[23] == -1 && real[35] == -1 && real[38] == -1);
    CHECK(real[21] == 1000 * left + 21 && real[25] == 1000 * left + 24 && real[26] == 1000 * left + 25);
    CHECK(real[30] == 1000 * left + 30 && real[34] == 1000 * left + 34 && real[37] == 1000 * left + 37);
    shmem_double_get(back, real, 10, right);
    CHECK(back[0] == 1000 * me && back[9] == 1000 * me + 9);
    CHECK(shmem_double_g(&real[3], right) == 1000 * me + 3);
    shmem_double_iget(moved, real, 3, 2, 4, right);
    CHECK(moved[3] == 1000 * me + 2 && moved[9] == 1000 * me + 6 && moved[1] == -1);
    shmem_getmem_nbi(moved, &real[4], sizeof(double), right);
    shmem_quiet();
    CHECK(moved[0] == 1000 * me + 4);
    shmem_put(initialized, (short[]){(short)(100 + me)}, 1, right); /* C11's generic name */
    shmem_barrier_all();
    CHECK(shmem_g(initialized, me) == 100 + left && initialized[1] == 8);
    int *theirs = shmem_ptr(&word, right);
    CHECK(shmem_ptr(&word, me) == &word && (theirs || n > 1) && !shmem_ptr(source, right));
    CHECK(shmem_addr_accessible(real, right) && !shmem_addr_accessible(source, right) && !shmem_pe_accessible(n));
}

static void atomics(void) {
    float *half = shmem_calloc(1, sizeof *half);
    word = 0;
    shmem_barrier_all();
    shmem_long_atomic_add(&word, me + 1, 0);
    long before = shmem_long_atomic_fetch_inc(&word, 0), later;
    CHECK(before >= me + 1);
    shmem_barrier_all();
    CHECK(shmem_long_atomic_fetch(&word, 0) == n * (n + 1) / 2 + n);
    shmem_barrier_all();
    shmem_ctx_long_atomic_set(SHMEM_CTX_DEFAULT, &word, 5, right);
    shmem_barrier_all();
    CHECK(shmem_long_atomic_swap(&word, 6, right) == 5 && shmem_long_atomic_compare_swap(&word, 6, 7, right) == 6);
    CHECK(shmem_long_cswap(&word, 6, 9, right) == 7 && shmem_long_fadd(&word, 2, right) == 7);
    shmem_long_atomic_fetch_add_nbi(&later, &word, 3, right);
    shmem_quiet();
    CHECK(later == 9 && shmem_long_g(&word, right) == 12);
    uint32_t *mask = (uint32_t *)&bits;
    CHECK(shmem_uint32_atomic_fetch_and(mask, 0xff, right) == 0xffffffff);
    shmem_atomic_or(mask, 0xf00u, right);
    CHECK(shmem_uint32_atomic_fetch_xor(mask, 1, right) == 0xfff && shmem_uint32_g(mask, right) == 0xffe);
    shmem_float_atomic_set(half, 1.5f, right);
    CHECK(shmem_float_atomic_swap(half, 2.5f, right) == 1.5f && shmem_float_atomic_fetch(half, right) == 2.5f);
    shmem_barrier_all();
    shmem_free(half);
}

static void signals_and_waits(void) {
    int *flags = shmem_calloc(8, sizeof *flags), status[8] = {1};
    size_t indices[8];
    double data[2] = {me, 2.5};
    signal = 0;
    shmem_barrier_all();
    shmem_double_put_signal(moved, data, 2, &signal, 1, SHMEM_SIGNAL_SET, right);
    CHECK(shmem_signal_wait_until(&signal, SHMEM_CMP_GE, 1) == 1 && moved[0] == left && moved[1] == 2.5);
    shmem_barrier_all();
    shmem_signal_add(&signal, 4, right);
    shmem_uint64_wait_until(&signal, SHMEM_CMP_EQ, 5);
    CHECK(shmem_signal_fetch(&signal) == 5 && shmem_test(&signal, SHMEM_CMP_NE, 4ul));
    CHECK(!shmem_int_test(&flags[0], SHMEM_CMP_GT, 0));
    CHECK(shmem_int_wait_until_any(flags, 0, NULL, SHMEM_CMP_EQ, 0) == SIZE_MAX);
    CHECK(shmem_int_test_any(flags, 8, NULL, SHMEM_CMP_EQ, 3) == SIZE_MAX);
    shmem_barrier_all();
    for (int i = 1; i < 8; i += 3) shmem_int_p(&flags[i], i, right);
    CHECK(shmem_int_wait_until_some(flags, 8, indices, status, SHMEM_CMP_NE, 0) >= 1);
    shmem_int_wait_until(&flags[7], SHMEM_CMP_EQ, 7);
    int wanted[8] = {9, 1, 9, 9, 4, 9, 9, 7}, ignored[8] = {1, 0, 1, 1, 0, 1, 1, 0};
    shmem_int_wait_until_all_vector(flags, 8, ignored, SHMEM_CMP_EQ, wanted);
    CHECK(shmem_int_test_some(flags, 8, indices, status, SHMEM_CMP_GT, 3) == 2 && indices[0] == 4 && indices[1] == 7);
    size_t any = shmem_int_wait_until_any(flags, 8, NULL, SHMEM_CMP_GT, 3);
    CHECK((any == 4 || any == 7) && !shmem_int_test_all(flags, 8, NULL, SHMEM_CMP_EQ, 0));
    shmem_barrier_all();
    shmem_free(flags);
}

static void collectives(void) {
    int *all = shmem_calloc((size_t)n * 4, sizeof *all), *own = shmem_calloc((size_t)n * 4, sizeof *own);
    for (int i = 0; i < 4 * n; i++) own[i] = 100 * me + i;
    shmem_barrier_all();
    CHECK(shmem_int_fcollect(SHMEM_TEAM_WORLD, all, own, 2) == 0);
    for (int pe = 0; pe < n; pe++) CHECK(all[2 * pe] == 100 * pe && all[2 * pe + 1] == 100 * pe + 1);
    shmem_collect(SHMEM_TEAM_WORLD, all, own, (size_t)(me % 2));
    for (int pe = 1; pe < n; pe += 2) CHECK(all[pe / 2] == 100 * pe);
    shmem_barrier_all();
    shmem_int_alltoall(SHMEM_TEAM_WORLD, all, own, 2);
    for (int pe = 0; pe < n; pe++) CHECK(all[2 * pe] == 100 * pe + 2 * me && all[2 * pe + 1] == 100 * pe + 2 * me + 1);
    shmem_barrier_all();
    shmem_int_alltoalls(SHMEM_TEAM_WORLD, all, own, 2, 1, 2);
    for (int pe = 0; pe < n; pe++) CHECK(all[4 * pe] == 100 * pe + 2 * me && all[4 * pe + 2] == 100 * pe + 2 * me + 1);
    shmem_barrier_all();
    shmem_broadcast(SHMEM_TEAM_WORLD, all, own, 3, n - 1);
    CHECK(all[0] == 100 * (n - 1) && all[2] == 100 * (n - 1) + 2);
    static long double total, part;
    static double complex product, factor;
    part = me + 0.5L, factor = I;
    shmem_longdouble_sum_reduce(SHMEM_TEAM_WORLD, &total, &part, 1);
    CHECK(total == n * (n - 1) / 2 + 0.5L * n);
    shmem_complexd_prod_reduce(SHMEM_TEAM_WORLD, &product, &factor, 1);
    CHECK(product == (double complex[]){1, I, -1, -I}[n % 4]);
    shmem_int_max_reduce(SHMEM_TEAM_WORLD, own, own, 4); /* in place */
    CHECK(own[3] == 100 * (n - 1) + 3);
    own[0] = me + 1;
    shmem_int_sum_exscan(SHMEM_TEAM_WORLD, all, own, 1);
    CHECK(all[0] == me * (me + 1) / 2);
    shmem_int_sum_inscan(SHMEM_TEAM_WORLD, all, own, 1);
    CHECK(all[0] == (me + 1) * (me + 2) / 2);
    shmem_free(own);
    shmem_free(all);
}

static void active_sets(void) {
    static long sync[SHMEM_COLLECT_SYNC_SIZE];
    static int work[SHMEM_REDUCE_MIN_WRKDATA_SIZE], all[128], own[2];
    own[0] = me, own[1] = 10 * me, all[0] = -1;
    shmem_barrier_all();
    shmem_int_sum_to_all(all, own, 2, 0, 0, n, work, sync);
    CHECK(all[0] == n * (n - 1) / 2 && all[1] == 10 * all[0]);
    shmem_collect32(all, own, (size_t)(1 + me % 2), 0, 0, n, sync);
    for (int pe = 0, at = 0; pe < n; at += 1 + pe++ % 2) CHECK(all[at] == pe);
    all[0] = -1;
    shmem_barrier(0, 0, n, sync);
    shmem_broadcast32(all, own, 1, 0, 0, 0, n, sync);
    CHECK(all[0] == (me ? 0 : -1)); /* the root's dest stays as it is */
    static int parts[64], exchanged[64];
    for (int pe = 0; pe < n; pe++) parts[pe] = 100 * me + pe;
    shmem_alltoall32(exchanged, parts, 1, 0, 0, n, sync);
    for (int pe = 0; pe < n; pe++) CHECK(exchanged[pe] == 100 * pe + me);
    int half = (n + 1) / 2, last = 2 * (half - 1), sum = half * (half - 1);
    if (me % 2 == 0) { /* a set of some of the PEs */
        shmem_int_sum_to_all(all, own, 1, 0, 1, half, work, sync);
        CHECK(all[0] == sum);
        shmem_sync(0, 1, half, sync);
        shmem_broadcast32(all, own, 1, half - 1, 0, 1, half, sync);
        CHECK(all[0] == (me == last ? sum : last));
        shmem_fcollect32(all, own, 1, 0, 1, half, sync);
        for (int i = 0; i < half; i++) CHECK(all[i] == 2 * i);
    }
    CHECK(sync[0] == 0 && sync[1] == 0 && sync[2] == 0);
}

static void teams_and_contexts(void) {
    shmem_team_t odd, same, row, column;
    shmem_team_config_t config = {3};
    shmem_ctx_t ctx;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, &config, SHMEM_TEAM_NUM_CONTEXTS, &same) == 0);
    CHECK(shmem_team_my_pe(same) == n - 1 - me && shmem_team_translate_pe(same, 0, SHMEM_TEAM_WORLD) == n - 1);
    config.num_contexts = 0;
    CHECK(shmem_team_get_config(same, SHMEM_TEAM_NUM_CONTEXTS, &config) == 0 && config.num_contexts == 3);
    CHECK(shmem_team_create_ctx(same, 0, &ctx) == 0);
    word = -1;
    shmem_team_sync(same);
    shmem_ctx_long_p(ctx, &word, me, shmem_team_my_pe(same)); /* itself, by its number in the team */
    shmem_ctx_quiet(ctx);
    CHECK(word == me);
    shmem_ctx_destroy(ctx);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 1, 2, n / 2, NULL, 0, &odd) == (n < 2));
    CHECK((odd != SHMEM_TEAM_INVALID) == me % 2 && (me % 2 || shmem_team_n_pes(odd) == -1));
    if (me % 2) {
        static int sum, one = 1;
        shmem_sum_reduce(odd, &sum, &one, 1);
        CHECK(sum == n / 2);
    }
    CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, NULL, 0, &row, NULL, 0, &column) == 0);
    CHECK(shmem_team_my_pe(row) == me % 2 && shmem_team_my_pe(column) == me / 2);
    shmem_team_destroy(column);
    shmem_team_destroy(row);
    shmem_team_destroy(odd);
    shmem_team_destroy(same);
    shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &row);
    CHECK(row != same);
    shmem_team_destroy(row);
}

static void *add_alone(void *turns) {
    for (int i = 0; i < *(int *)turns; i++) {
        shmem_set_lock(&lock);
        shmem_long_p(&words[1], shmem_long_g(&words[1], 0) + 1, 0);
        shmem_clear_lock(&lock);
    }
    return NULL;
}

static void locks_and_threads(void) {
    pthread_t thread;
    int turns = 20;
    words[1] = 0;
    shmem_barrier_all();
    pthread_create(&thread, NULL, add_alone, &turns);
    add_alone(&turns);
    pthread_join(thread, NULL);
    shmem_barrier_all();
    CHECK(shmem_long_g(&words[1], 0) == 2 * turns * n);
    shmem_barrier_all();
    CHECK(me || (shmem_test_lock(&lock) == 0 && shmem_test_lock(&lock) == 1));
    if (!me) shmem_clear_lock(&lock);
}

static void memory(void) {
    char *block = shmem_malloc(100), *aligned = shmem_align(4096, 10), *cleared = shmem_calloc(10, 10);
    CHECK(block && (uintptr_t)aligned % 4096 == 0 && cleared[99] == 0 && !shmem_malloc(0) && !shmem_malloc(1ul << 45));
    memset(block, me + 1, 100);
    block = shmem_realloc(block, 100000);
    CHECK(block[99] == me + 1);
    shmem_free(cleared);
    shmem_free(aligned);
    shmem_free(block);
    shmem_free(NULL);
}

int main(void) {
    int provided, initialized, major, minor;
    char name[SHMEM_MAX_NAME_LEN];
    shmem_query_initialized(&initialized);
    CHECK(!initialized && shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0);
    shmem_init(); /* counted */
    me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    shmem_info_get_version(&major, &minor);
    shmem_info_get_name(name);
    CHECK(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION && !strcmp(name, SHMEM_VENDOR_STRING));
    memory();
    one_sided();
    atomics();
    signals_and_waits();
    collectives();
    active_sets();
    teams_and_contexts();
    locks_and_threads();
    shmem_finalize();
    shmem_query_initialized(&initialized);
    CHECK(initialized);
    word = 41 + me;
    shmem_finalize();
    shmem_query_initialized(&initialized);
    if (initialized || word != 41 + me) return 4;
    printf("PE %d of %d: all families\n", me, n);
    return 0;
}
