/* Calls of each kind on memory of the GPU heap, which this program reads and writes by calls alone. */
#include <shmem.h>
#include <shmemx.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

enum { N = 40 };
static int me, n, right, left;
static double here[N]; /* symmetric, in CPU memory */
static uint64_t flag;

/* Zeroed memory of the GPU heap. */
static void *memory(size_t nbytes) {
    char *made = shmem_malloc_with_hints(nbytes, PYSHMEM_HINT_GPU), *zeros = calloc(nbytes, 1);
    shmem_putmem(made, zeros, nbytes, me);
    free(zeros);
    shmem_barrier_all();
    return made;
}

static double at(const double *where) { return shmem_double_g(where, me); }
static long word_at(const long *where) { return shmem_long_g(where, me); }

static void copies(double *a, double *b) {
    double source[N], back[N];
    for (int i = 0; i < N; i++) source[i] = 1000 * me + i;
    shmem_double_put(a, source, N, right); /* from private memory */
    shmem_barrier_all();
    CHECK(at(&a[0]) == 1000 * left && at(&a[N - 1]) == 1000 * left + N - 1);
    shmem_double_get(back, a, N, right); /* to private memory */
    CHECK(back[0] == 1000 * me && back[N - 1] == 1000 * me + N - 1);
    shmem_double_put(b, a, 10, right); /* from GPU memory */
    shmem_double_put_nbi(&b[10], &a[10], 10, right);
    shmem_double_put(here, a, 5, right); /* to CPU memory */
    shmem_quiet();
    shmem_barrier_all();
    int before = (left + n - 1) % n;
    CHECK(at(&b[0]) == 1000 * before && at(&b[19]) == 1000 * before + 19 && at(&b[20]) == 0);
    CHECK(here[0] == 1000 * before && here[4] == 1000 * before + 4 && here[5] == 0);
    shmem_double_get(&b[20], a, 3, right);           /* to GPU memory */
    shmem_double_get_nbi(&b[23], &here[1], 1, left); /* from CPU memory */
    shmem_quiet();
    CHECK(at(&b[20]) == 1000 * me && at(&b[22]) == 1000 * me + 2 && at(&b[23]) == 1000 * ((before + n - 1) % n) + 1);
    shmem_barrier_all();
    shmem_double_p(&a[1], 0.5 + me, right);
    shmem_double_iput(&b[24], source, 2, 3, 3, right);      /* from private memory */
    shmem_double_iput(&b[30], &b[20], 3, 1, 2, me);         /* from GPU memory */
    shmem_double_ibput(&b[34], &source[4], 3, 2, 2, 2, me); /* 34, 35, 37, 38 from 4, 5, 6, 7 */
    shmem_barrier_all();
    CHECK(at(&a[1]) == 0.5 + left && at(&b[24]) == 1000 * left && at(&b[28]) == 1000 * left + 6 && at(&b[25]) == 0);
    CHECK(at(&b[30]) == at(&b[20]) && at(&b[33]) == at(&b[21]) && at(&b[35]) == source[5] && at(&b[37]) == source[6]);
    shmem_double_iget(back, b, 1, 2, 3, me);
    CHECK(back[1] == at(&b[2]) && back[2] == at(&b[4]));
    CHECK(shmem_ptr(a, me) == a && shmem_addr_accessible(a, right));
}

static void atomics(long *words) {
    float *half = memory(sizeof *half);
    uint32_t *mask = memory(sizeof *mask);
    long later = 0;
    shmem_long_atomic_add(words, me + 1, 0);
    CHECK(shmem_long_atomic_fetch_inc(&words[1], 0) < n);
    shmem_barrier_all();
    CHECK(shmem_long_atomic_fetch(words, 0) == n * (n + 1) / 2 && shmem_long_g(&words[1], 0) == n);
    shmem_long_atomic_set(&words[2], -5, right);
    shmem_barrier_all();
    CHECK(shmem_long_atomic_swap(&words[2], 6, right) == -5);
    CHECK(shmem_long_atomic_compare_swap(&words[2], 6, -7, right) == 6 && shmem_long_g(&words[2], right) == -7);
    shmem_long_atomic_fetch_add_nbi(&later, &words[2], 3, right);
    shmem_quiet();
    CHECK(later == -7 && shmem_long_g(&words[2], right) == -4);
    shmem_uint32_atomic_set(mask, 0xffffffff, right);
    CHECK(shmem_uint32_atomic_fetch_and(mask, 0xfffff0ff, right) == 0xffffffff);
    shmem_uint32_atomic_or(mask, 0x700, right);
    CHECK(shmem_uint32_atomic_fetch_xor(mask, 1, right) == 0xfffff7ff && shmem_uint32_g(mask, right) == 0xfffff7fe);
    shmem_float_atomic_set(half, -1.5f, right);
    CHECK(shmem_float_atomic_swap(half, 2.5f, right) == -1.5f && shmem_float_atomic_fetch(half, right) == 2.5f);
    shmem_barrier_all();
    shmem_free(half);
    shmem_free(mask);
}

static void signals_and_waits(double *a, long *words) {
    uint64_t *signal = memory(2 * sizeof *signal);
    double source[2] = {me, 2.5};
    size_t indices[4];
    long wanted[4] = {9, 9, 4, 9};
    int ignored[4] = {1, 1, 0, 1};
    shmem_double_put_signal(a, source, 2, signal, 7, SHMEM_SIGNAL_SET, right); /* all in GPU memory */
    CHECK(shmem_signal_wait_until(signal, SHMEM_CMP_GE, 7) == 7 && at(a) == left && at(&a[1]) == 2.5);
    shmem_barrier_all();
    shmem_double_put_signal(&here[10], source, 2, signal, 1, SHMEM_SIGNAL_ADD, right); /* data in CPU memory */
    shmem_uint64_wait_until(signal, SHMEM_CMP_EQ, 8);
    CHECK(here[10] == left && here[11] == 2.5 && shmem_signal_fetch(signal) == 8);
    shmem_double_put_signal_nbi(&a[2], a, 2, &flag, 3, SHMEM_SIGNAL_SET, right); /* the signal in CPU memory */
    shmem_uint64_wait_until(&flag, SHMEM_CMP_EQ, 3);
    CHECK(at(&a[2]) == (left + n - 1) % n && at(&a[3]) == 2.5);
    shmem_barrier_all();
    shmem_double_p(&a[4], 8.5, right);
    shmem_fence();
    shmem_uint64_p(&signal[1], 1, right);
    shmem_uint64_wait_until(&signal[1], SHMEM_CMP_EQ, 1);
    CHECK(at(&a[4]) == 8.5);
    CHECK(!shmem_long_test(&words[4], SHMEM_CMP_NE, 0) && shmem_long_test(&words[4], SHMEM_CMP_EQ, 0));
    CHECK(shmem_long_test_any(&words[4], 4, NULL, SHMEM_CMP_EQ, 4) == SIZE_MAX);
    shmem_barrier_all();
    shmem_long_p(&words[6], 4, right);
    CHECK(shmem_long_wait_until_any(&words[4], 4, NULL, SHMEM_CMP_GT, 0) == 2);
    shmem_long_wait_until_all_vector(&words[4], 4, ignored, SHMEM_CMP_EQ, wanted);
    CHECK(shmem_long_test_some(&words[4], 4, indices, NULL, SHMEM_CMP_GT, 0) == 1 && indices[0] == 2);
    CHECK(shmem_long_test_all_vector(&words[4], 4, ignored, SHMEM_CMP_EQ, wanted));
    shmem_barrier_all();
    shmem_free(signal);
}

static void collectives(void) {
    long *all = memory((size_t)n * 4 * sizeof *all), *own = memory((size_t)n * 4 * sizeof *own), values[4 * n];
    for (int i = 0; i < 4 * n; i++) values[i] = 100 * me + i;
    shmem_long_put(own, values, (size_t)n * 4, me);
    shmem_long_fcollect(SHMEM_TEAM_WORLD, all, own, 2);
    CHECK(word_at(&all[2 * right]) == 100 * right && word_at(&all[2 * left + 1]) == 100 * left + 1);
    shmem_barrier_all();
    shmem_long_collect(SHMEM_TEAM_WORLD, all, own, (size_t)(1 + me % 2));
    CHECK(word_at(&all[right + right / 2]) == 100 * right);
    shmem_barrier_all();
    shmem_long_alltoall(SHMEM_TEAM_WORLD, all, own, 2);
    CHECK(word_at(&all[2 * right + 1]) == 100 * right + 2 * me + 1);
    shmem_barrier_all();
    shmem_long_alltoalls(SHMEM_TEAM_WORLD, all, own, 2, 1, 2);
    CHECK(word_at(&all[4 * left + 2]) == 100 * left + 2 * me + 1);
    shmem_barrier_all();
    shmem_long_broadcast(SHMEM_TEAM_WORLD, all, own, 3, n - 1);
    CHECK(word_at(&all[2]) == 100 * (n - 1) + 2);
    shmem_barrier_all();
    shmem_long_max_reduce(SHMEM_TEAM_WORLD, all, own, 4);
    CHECK(word_at(&all[3]) == 100 * (n - 1) + 3);
    shmem_barrier_all();
    shmem_long_sum_inscan(SHMEM_TEAM_WORLD, all, own, 1);
    CHECK(word_at(all) == 50 * me * (me + 1));
    shmem_free(own);
    shmem_free(all);
}

int main(void) {
    shmem_init();
    me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    double *a = memory(N * sizeof *a), *b = memory(N * sizeof *b);
    long *words = memory(8 * sizeof *words), *lock = memory(sizeof *lock);
    copies(a, b);
    atomics(words);
    signals_and_waits(a, words);
    collectives();
    for (int i = 0; i < 3; i++) {
        shmem_set_lock(lock);
        shmem_long_p(&words[7], shmem_long_g(&words[7], 0) + 1, 0);
        shmem_clear_lock(lock);
    }
    shmem_barrier_all();
    CHECK(shmem_long_g(&words[7], 0) == 3 * n);
    shmem_double_p(a, 4.5, me);
    a = shmem_realloc(a, 100 * N * sizeof *a);
    CHECK(at(a) == 4.5);
    shmem_free(lock);
    shmem_free(words);
    shmem_free(b);
    shmem_free(a);
    printf("PE %d of %d: all on the GPU heap\n", me, n);
    shmem_finalize();
    return 0;
}
