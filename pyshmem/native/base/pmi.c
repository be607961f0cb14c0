#include "pmi.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

enum { ANSWER_MS = 60000 }; /* after which a launcher that stands still is taken for one of another protocol */

static int64_t number_of(const char *variable) {
    const char *text = getenv(variable);
    return text && *text && !text[strspn(text, "0123456789")] && strlen(text) < 9 ? atoll(text) : -1;
}

/* Intel's Hydra has not been tried. */
static int is_intels(void) {
    for (char **each = environ; *each; each++)
        if (!strncmp(*each, "I_MPI_", 6)) return 1;
    return 0;
}

INTERNAL int find_place(int64_t *me, int64_t *n) {
    static const char *const others[] = {"PMI_RANK",      "PMI_SIZE",    "PMI_FD",     "PMI_PORT",
                                         "SLURM_STEP_ID", "ALPS_APP_PE", "PALS_RANKID"};
    *me = number_of("PMI_RANK"), *n = number_of("PMI_SIZE");
    if (*n > 0 && *me >= 0 && *me < *n) return number_of("MPI_LOCALNRANKS") == *n && getenv("PMI_FD") && !is_intels();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (getenv(others[i])) return 0;
    *me = 0, *n = 1;
    return !(getenv("RANK") && getenv("WORLD_SIZE") && getenv("MASTER_ADDR") && getenv("MASTER_PORT"));
}

static int pmi_fd = -1;

INTERNAL int pmi_say(const char *request) {
    size_t length = strlen(request);
    return pmi_fd >= 0 && send(pmi_fd, request, length, MSG_NOSIGNAL) == (ssize_t)length;
}

INTERNAL int pmi_ask(const char *request, const char *answer, char line[PMI_LINE]) {
    size_t length = 0;
    if (!pmi_say(request)) return 0;
    while (length < PMI_LINE - 1 && poll(&(struct pollfd){pmi_fd, POLLIN, 0}, 1, ANSWER_MS) > 0 &&
           read(pmi_fd, line + length, 1) == 1 && line[length] != '\n')
        length++;
    line[length] = 0;
    return !strncmp(line, answer, strlen(answer));
}

INTERNAL int pmi_open(char *name, size_t room) {
    char line[PMI_LINE];
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
