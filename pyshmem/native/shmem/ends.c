#include "ends.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "../base/pmi.h"
#include "../base/report.h"

static pid_t own; /* the PE, and not a child that it has forked */

INTERNAL void tell_phase(const char *phase) {
    const char *text = getenv("PYSHMEM_JOB_PE");
    char pipe[64];
    int pe, pid, fd;
    if (!text || sscanf(text, "%d %d %63s", &pe, &pid, pipe) != 3 || pid != getpid()) return;
    if ((fd = open(pipe, O_WRONLY | O_CLOEXEC)) < 0) return; /* it is not there in a container */
    dprintf(fd, "%s\n", phase);
    close(fd);
}

/* Names this process for the line that says how it has ended: exits.name_pe. */
static void name_end(int64_t pe) {
    const char *folder = getenv("PYSHMEM_JOB_DIR"), *slash = folder ? strrchr(folder, '/') : NULL;
    struct utsname host;
    struct stat found;
    char prefix[400];
    snprintf(cause.who, sizeof cause.who, "PE %ld", (long)pe);
    cause.file[0] = cause.mark[0] = 0;
    if (!slash || uname(&host)) return;
    snprintf(prefix, sizeof prefix, "pyshmemrun-%s-", host.nodename);
    int here = !strncmp(slash + 1, prefix, strlen(prefix)) && !stat(folder, &found) && S_ISDIR(found.st_mode);
    if (here && snprintf(cause.file, sizeof cause.file, "%s/reported-%ld", folder, (long)pe) < (int)sizeof cause.file)
        return;
    cause.file[0] = 0;
    snprintf(cause.mark, sizeof cause.mark, "%.200s %ld failed", slash + 1, (long)pe);
    snprintf(cause.who, sizeof cause.who, "PE %ld on %.200s", (long)pe, host.nodename);
}

/* Whether the program has loaded MPI since, and started it: then the launcher hears of the end from MPI. */
static int has_mpi(void) {
    int begun = 0, (*initialized)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "MPI_Initialized");
    return initialized && !initialized(&begun) && begun;
}

/* Ends all processes of the job, this one too. */
static void end_all(int status) {
    char request[64];
    snprintf(request, sizeof request, "cmd=abort exitcode=%d\n", status);
    for (int told = pmi_say(request); told;) pause();
}

static void at_end(int status, void *unused) {
    char why[40], line[PMI_LINE];
    (void)unused;
    if (getpid() != own) return;
    status &= 255; /* what a parent sees of it */
    if (!status) {
        tell_phase("ends");
        if (!has_mpi()) pmi_ask("cmd=finalize\n", "cmd=finalize_ack", line);
        return;
    }
    snprintf(why, sizeof why, "exited with status %d", status);
    fflush(NULL);
    report_end(status, why);
    let_read();
    end_all(status);
}

INTERNAL void watch_end(int64_t pe) {
    name_end(pe);
    if (!own) on_exit(at_end, NULL);
    own = getpid();
}

INTERNAL void abort_job(int status) {
    fflush(NULL);
    let_read();
    end_all(status);
    _exit(status);
}
