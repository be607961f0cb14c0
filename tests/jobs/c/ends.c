/* Ends of a C program: without finalize, by exit in the middle, by a signal that it handles itself. */
#include <shmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t handled;
static void handle(int number) { handled = number; }

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    signal(SIGUSR1, handle);
    shmem_init();
    long *word = shmem_calloc(1, sizeof *word);
    if (!strcmp(what, "exit") && shmem_my_pe() == 1) exit(7);
    if (!strcmp(what, "exit")) shmem_long_wait_until(word, SHMEM_CMP_EQ, 1); /* for ever */
    raise(SIGUSR1);
    if (handled != SIGUSR1) return 5;
    printf("PE %d ends\n", shmem_my_pe());
    return 0; /* without finalize */
}
