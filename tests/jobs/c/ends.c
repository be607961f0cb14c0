/* Ends of a C program: without finalize, by exit in the middle, by a signal, by errors; and signals that it handles
 * itself, in the middle of a wait too. */
#include <shmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static volatile sig_atomic_t handled;
static void handle(int number) { handled = number; }
static long *released;
static void release(int number) { shmem_long_p(released, number == SIGALRM, shmem_my_pe()); }

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    signal(SIGUSR1, handle);
    shmem_init();
    long *word = shmem_calloc(1, sizeof *word);
    if (!strcmp(what, "exit") && shmem_my_pe() == 1) exit(7);
    if (!strcmp(what, "kill") && shmem_my_pe() == 1) raise(SIGKILL);
    if (!strcmp(what, "differ")) shmem_malloc(8 + (size_t)shmem_my_pe());
    static long never;
    if (!strcmp(what, "static")) shmem_long_wait_until(&never, SHMEM_CMP_NE, 0);
    if (!strcmp(what, "sync") && !shmem_my_pe()) shmem_sync_all();
    if (*what && strcmp(what, "return")) shmem_long_wait_until(word, SHMEM_CMP_EQ, 1); /* for ever */
    signal(SIGALRM, release), released = word;
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 1000}, NULL);
    shmem_long_wait_until(word, SHMEM_CMP_EQ, 1); /* the handler ends it */
    raise(SIGUSR1);
    if (handled != SIGUSR1) return 5;
    printf("PE %d ends\n", shmem_my_pe());
    return 0; /* without finalize */
}
