#include "pmi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE = 4096 };
static int pmi_fd = -1;

static int pmi_say(const char *request) {
    size_t length = strlen(request);
    return pmi_fd >= 0 && send(pmi_fd, request, length, MSG_NOSIGNAL) == (ssize_t)length;
}

/* Sends a request, and reads the line that answers it. */
static int pmi_ask(const char *request, const char *answer, char line[LINE]) {
    size_t length = 0;
    if (!pmi_say(request)) return 0;
    while (length < LINE - 1 && read(pmi_fd, line + length, 1) == 1 && line[length] != '\n') length++;
    line[length] = 0;
    return !strncmp(line, answer, strlen(answer));
}

INTERNAL int pmi_open(char *name, size_t room) {
    char line[LINE];
    const char *number = getenv("PMI_FD"), *found;
    if (!number) return 0;
    pmi_fd = atoi(number);
    if (!pmi_ask("cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init", line) || !strstr(line, "rc=0") ||
        !pmi_ask("cmd=get_my_kvsname\n", "cmd=my_kvsname", line) || !(found = strstr(line, "kvsname=")))
        return pmi_fd = -1, 0;
    found += strlen("kvsname=");
    size_t length = strcspn(found, " ");
    return snprintf(name, room, "%.*s", (int)length, found) < (int)room && !strchr(name, '/');
}

/* Ends all processes of the job. */
INTERNAL void pmi_abort(int status) {
    char request[64];
    snprintf(request, sizeof request, "cmd=abort exitcode=%d\n", status);
    if (pmi_say(request))
        for (;;) pause(); /* the launcher kills this process */
}

INTERNAL void pmi_finalize(void) {
    char line[LINE];
    pmi_ask("cmd=finalize\n", "cmd=finalize_ack", line);
    pmi_fd = -1;
}
