/* A C library that Python calls: it begins the job, or finds it. */
#include <shmem.h>

void begin(void) { shmem_init(); }
void end(void) { shmem_finalize(); }
int number(void) { return shmem_my_pe(); }
int count(void) { return shmem_n_pes(); }

int has_begun(void) {
    int initialized;
    shmem_query_initialized(&initialized);
    return initialized;
}

long make(int n) {
    long *words = shmem_malloc((size_t)n * sizeof *words);
    for (int i = 0; i < n; i++) words[i] = -1;
    shmem_barrier_all();
    return (long)words;
}

void shift(long *array, int n) {
    long own[n];
    for (int i = 0; i < n; i++) own[i] = array[i];
    shmem_barrier_all();
    shmem_put(array, own, (size_t)n, (shmem_my_pe() + 1) % shmem_n_pes());
    shmem_barrier_all();
}

long sum(long value) {
    long *pair = shmem_malloc(2 * sizeof *pair);
    pair[0] = value;
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, pair + 1, pair, 1);
    value = pair[1];
    shmem_free(pair);
    return value;
}
