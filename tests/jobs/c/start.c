/* Programs of which the tests compare the runs with and without Python. */
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void differ(void), differ_in_call(int first), differ_in_size(void), broadcast_other_than_root(void);
void fail(const char *what);

/* Whether Python is in this process. */
static int has_python(void) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, "libpython") != NULL;
    if (maps) fclose(maps);
    return found;
}

static void say_python(void) {
    shmem_init();
    printf("PE %d of %d: %s\n", shmem_my_pe(), shmem_n_pes(), has_python() ? "Python" : "C");
    fflush(stdout);
    shmem_finalize();
}

/* The offsets of allocations, as random calls make and end them: the same on all PEs. */
static void allocate(void) {
    enum { SLOTS = 40, CALLS = 600 };
    char *slots[SLOTS] = {NULL};
    uint64_t random = 1;
    shmem_init();
    char *base = shmem_malloc(1);
    for (int i = 0; i < CALLS; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int slot = (int)(random >> 33) % SLOTS, what = (int)(random >> 50) % 4;
        size_t size = (random >> 20) % (what == 3 ? 3000000 : 70000);
        if (what == 0) shmem_free(slots[slot]), slots[slot] = NULL;
        if (what == 1) shmem_free(slots[slot]), slots[slot] = shmem_align(UINT64_C(8) << (random >> 60), size);
        if (what > 1) {
            char *made = shmem_realloc(slots[slot], size);
            if (made || !size) slots[slot] = made;
        }
        if (!shmem_my_pe()) printf("%ld\n", slots[slot] ? (long)(slots[slot] - base) : -1);
    }
    shmem_finalize();
}

/* Teams until there are no more, and splits that are refused. */
static void split(void) {
    shmem_team_t made[80], x, y;
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), count = 0;
    while (count < 80 && !shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &made[count])) count++;
    int refused = shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0, &x);
    while (count) shmem_team_destroy(made[--count]), refused += count == 5 ? 100 : 0;
    int failed = shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, NULL, 0, &x, NULL, 0, &y);
    shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, NULL, 0, &made[0]); /* in the opposite order */
    int *sums = shmem_calloc(3, sizeof *sums), *mine = shmem_malloc(sizeof *mine);
    *mine = me + 1;
    shmem_int_sum_reduce(x, sums, mine, 1);
    shmem_int_sum_reduce(y, sums + 1, mine, 1);
    shmem_int_sum_reduce(made[0], sums + 2, mine, 1);
    printf("%d: %d %d; %d of %d, %d of %d, %d; %d %d %d\n", me, refused, failed, shmem_team_my_pe(x),
           shmem_team_n_pes(x), shmem_team_my_pe(y), shmem_team_n_pes(y), shmem_team_my_pe(made[0]), sums[0], sums[1],
           sums[2]);
    shmem_finalize();
}

/* Jobs one after the other, of which static data keep their values. */
static void leave_others_in_a_barrier(void) {
    shmem_init();
    if (shmem_my_pe() == 1) shmem_global_exit(3);
    shmem_barrier_all();
    shmem_barrier_all();
}

static void again(void) {
    static long box;
    for (int job = 1; job < 4; job++) {
        shmem_init();
        shmem_init();
        int me = shmem_my_pe(), n = shmem_n_pes();
        shmem_long_atomic_add(&box, job * (me + 1), (me + 1) % n);
        shmem_barrier_all();
        shmem_finalize();
        shmem_finalize();
        int begun;
        shmem_query_initialized(&begun);
        printf("job %d: %ld %d\n", job, box, begun);
    }
}

/* Large copies, at all distances from a word to a line within a page. */
static void copy(void) {
    enum { ROOM = 20000, NBYTES = 9001 };
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, wrong = 0;
    char *shared = shmem_align(4096, ROOM), *own = aligned_alloc(4096, ROOM / 4096 * 4096 + 4096);
    for (int at = 0; at < 128; at += 8) {
        for (int i = 0; i < NBYTES; i++) own[at + i] = (char)(i % 251 + me);
        shmem_barrier_all();
        shmem_putmem(shared + 128 - at, own + at, NBYTES, next);
        shmem_barrier_all();
        memset(own, 0, ROOM);
        shmem_getmem(own + at, shared + 128 - at, NBYTES, next);
        for (int i = 0; i < NBYTES; i++) wrong += own[at + i] != (char)(i % 251 + me);
    }
    printf("PE %d: %d wrong\n", me, wrong);
    shmem_finalize();
}

/* PE 1 comes to its end, for which PE 0 waits in vain. */
static void leave(void) {
    shmem_init();
    long *word = shmem_calloc(1, sizeof *word);
    if (shmem_my_pe() != 1) shmem_long_wait_until(word, SHMEM_CMP_EQ, 1);
}

int main(int count, char **words) {
    const char *what = words[1];
    if (count > 2 && getenv("PMI_RANK") && !strcmp(getenv("PMI_RANK"), "1")) putenv(words[2]);
    if (!strcmp(what, "python")) say_python();
    if (!strcmp(what, "allocate")) allocate();
    if (!strcmp(what, "split")) split();
    if (!strcmp(what, "again")) again();
    if (!strcmp(what, "copy")) copy();
    if (!strcmp(what, "leave")) leave();
    if (!strcmp(what, "exit")) leave_others_in_a_barrier();
    if (!strcmp(what, "fail")) fail(words[2]);
    if (!strcmp(what, "differ")) differ();
    if (!strcmp(what, "differ in size")) differ_in_size();
    if (!strcmp(what, "unlike")) broadcast_other_than_root();
    if (!strncmp(what, "call ", 5)) differ_in_call(atoi(what + 5));
    return 0;
}
