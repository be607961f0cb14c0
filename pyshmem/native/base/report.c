#include "report.h"

#include <fcntl.h>
#include <stdio.h>

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
