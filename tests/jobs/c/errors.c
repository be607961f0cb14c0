/* One error of each kind. */
#include <shmem.h>
#include <string.h>

void begin(void) { shmem_init(); }

void fail(const char *what) {
    double private[4] = {0};
    shmem_team_t team;
    if (!strcmp(what, "before")) shmem_barrier_all();
    shmem_init();
    long *words = shmem_calloc(2, sizeof *words);
    if (!strcmp(what, "pe")) shmem_long_p(words, 1, 5);
    if (!strcmp(what, "private")) shmem_double_put(private, private, 4, 0);
    if (!strcmp(what, "lock")) shmem_clear_lock(words);
    if (!strcmp(what, "stride")) shmem_long_iput(words, words, 0, 1, 2, 0);
    if (!strcmp(what, "freed")) shmem_free(words), shmem_free(words);
    if (!strcmp(what, "reallocated")) shmem_free(words), shmem_realloc(words, 64);
    if (!strcmp(what, "never allocated")) shmem_free(private);
    if (!strcmp(what, "wait")) shmem_long_wait_until(words, SHMEM_CMP_EQ, 3);
    if (!strcmp(what, "team")) {
        shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 1, NULL, 0, &team);
        shmem_team_destroy(team);
        shmem_int_sum_reduce(team, (int *)words, (int *)words, 1);
    }
}

void differ(void) {
    shmem_init();
    long *words = shmem_calloc(8, sizeof *words);
    shmem_long_fcollect(SHMEM_TEAM_WORLD, words, words + 4, (size_t)shmem_my_pe() + 1);
    shmem_barrier_all();
}

/* PE 0 makes one of these calls, and PE 1 the next one. */
void differ_in_call(int first) {
    shmem_init();
    long *words = shmem_calloc(16, sizeof *words), *to = words + 8;
    switch ((first + shmem_my_pe()) % 7) {
    case 0: shmem_barrier_all(); break;
    case 1: shmem_long_sum_reduce(SHMEM_TEAM_WORLD, to, words, 2); break;
    case 2: shmem_sync_all(); break;
    case 3: shmem_long_fcollect(SHMEM_TEAM_WORLD, to, words, 2); break;
    case 4: shmem_malloc(8); break;
    case 5: shmem_long_alltoall(SHMEM_TEAM_WORLD, to, words, 2); break;
    default: shmem_long_broadcast(SHMEM_TEAM_WORLD, to, words, 2, 0);
    }
    shmem_barrier_all(); /* the root of a broadcast waits for nobody */
}

void differ_in_size(void) {
    shmem_init();
    shmem_calloc(8 + (size_t)shmem_my_pe(), 1);
}

void broadcast_other_than_root(void) {
    shmem_init();
    long *words = shmem_calloc(8, sizeof *words);
    shmem_long_broadcast(SHMEM_TEAM_WORLD, words, words + 4, (size_t)shmem_my_pe() + 1, 0);
    shmem_barrier_all();
}

int accepts_private_memory(void) {
    shmem_init();
    long private = 0;
    return shmem_long_atomic_fetch_inc(&private, 0) == 0 && private == 1;
}
