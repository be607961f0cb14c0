#include "report.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { UNREAD_MS = 5000, PASSING_US = 200000 };

INTERNAL cause_t cause;

/* Reports the end of this process. If the file exists, it has the program's own words. Takes no lock, so any thread
 * may. */
INTERNAL void report_end(int status, const char *why) {
    int fd = cause.file[0] ? open(cause.file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : 2;
    if (fd < 0) return;
    if (cause.file[0] && dprintf(fd, "%d\n%s: %s\n", status, cause.who, why) < 0) fd = 2; /* the disk is full */
    if (cause.file[0] && fd != 2) return;
    if (cause.mark[0])
        dprintf(fd, "%s %d %s: %s\n", cause.mark, status, cause.who, why);
    else
        dprintf(fd, "%s: %s\n", cause.who, why);
}

/* Waits until what this process has written has been read, and for as long as it takes to be passed on: an abort kills
 * the processes that do. They may stand still on a busy machine. */
INTERNAL void let_read(void) {
    int unread = 1;
    for (int ms = 0; unread && ms < UNREAD_MS; ms += 10) {
        unread = 0;
        for (int fd = 1; fd <= 2; fd++) {
            struct stat file;
            int bytes;
            if (!fstat(fd, &file) && S_ISFIFO(file.st_mode) && !ioctl(fd, FIONREAD, &bytes)) unread |= bytes > 0;
        }
        if (unread) usleep(10000);
    }
    usleep(PASSING_US);
}
