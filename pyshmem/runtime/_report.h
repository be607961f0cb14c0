/* Tells why this process ends: by a file, by a line that pyshmemrun takes, or by a line for people. */
#pragma once
#include <fcntl.h>
#include <stdio.h>

static struct {
    char file[4096]; /* which pyshmemrun, on this host, prints at the end; empty: without pyshmemrun here */
    char mark[300];  /* how a line begins that tells pyshmemrun on another host; empty: without pyshmemrun */
    char who[300];   /* the PE */
} told;

/* Reports the end of this process. If the file exists, it has the program's own words. Takes no lock, so any thread
 * may. */
static void report_end(int status, const char *why) {
    int fd = told.file[0] ? open(told.file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : 2;
    if (fd < 0) return;
    if (told.file[0] && dprintf(fd, "%d\n%s: %s\n", status, told.who, why) < 0) fd = 2; /* the disk is full */
    if (told.file[0] && fd != 2) return;
    if (told.mark[0])
        dprintf(fd, "%s %d %s: %s\n", told.mark, status, told.who, why);
    else
        dprintf(fd, "%s: %s\n", told.who, why);
}
