#include "thread.h"

#include <signal.h>

/* Starts a thread that gets no signals, which are for the program's threads. Returns an errno. */
INTERNAL int start_thread(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
