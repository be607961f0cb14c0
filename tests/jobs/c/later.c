/* Non-blocking fetching atomics return although their far target stands still, and quiet waits for the values. */
#define _GNU_SOURCE
#include <sched.h>
#include <shmem.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"

static long word = 5, process;
static int me, half = 7;

static void stop(pid_t pid) {
    char path[40], state = ' ';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    CHECK(kill(pid, SIGSTOP) == 0);
    while (state != 'T') {
        FILE *file = fopen(path, "r");
        CHECK(file && fscanf(file, "%*d %*s %c", &state) == 1);
        fclose(file);
        sched_yield();
    }
}

int main(void) {
    shmem_init();
    me = shmem_my_pe();
    if (me == 1) shmem_long_p(&process, getpid(), 0);
    shmem_barrier_all();
    if (me == 0) {
        long old = -1;
        int halves[3] = {-1, -1, -1};
        stop((pid_t)process);
        shmem_long_atomic_fetch_add_nbi(&old, &word, 3, 1);
        shmem_int_atomic_compare_swap_nbi(&halves[1], &half, 7, 9, 1);
        CHECK(old == -1 && halves[1] == -1);
        CHECK(kill((pid_t)process, SIGCONT) == 0);
        shmem_quiet();
        CHECK(old == 5 && halves[0] == -1 && halves[1] == 7 && halves[2] == -1);
        CHECK(shmem_long_g(&word, 1) == 8 && shmem_int_g(&half, 1) == 9);
        puts("later");
    }
    shmem_finalize();
    return 0;
}
