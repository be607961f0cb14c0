#include "settings.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

extern char **environ;

/* Parsers return whether they understand the text: Python knows more forms, and has words for texts without meaning. */

static int parse_size(const char *text, void *to) {
    static const char units[] = "kmgt";
    char *end;
    if (!isdigit((unsigned char)*text) || strlen(text) > 15) return 0;
    uint64_t number = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
    if (*end && (!unit || end[1])) return 0;
    int bits = unit ? 10 * (int)(unit - units + 1) : 0;
    if (number > UINT64_MAX >> 1 >> bits) return 0;
    *(uint64_t *)to = number << bits;
    return 1;
}

static int parse_flag(const char *text, void *to) {
    static const char *const negations[] = {"0", "no", "off", "false"};
    uint64_t flag = 1;
    if (strpbrk(text, " \t\n\v\f\r")) return 0;
    for (size_t i = 0; i < sizeof negations / sizeof *negations; i++) flag &= strcasecmp(text, negations[i]) != 0;
    *(uint64_t *)to = flag;
    return 1;
}

static int parse_seconds(const char *text, void *to) {
    char *end;
    if (text[strspn(text, "0123456789.")]) return 0;
    double seconds = strtod(text, &end);
    if (end == text || *end || seconds >= 1e9) return 0;
    *(double *)to = seconds > 0 && seconds < 1e-3 ? 1e-3 : seconds;
    return 1;
}

static int parse_count(const char *text, void *to) {
    if (!*text || text[strspn(text, "0123456789")] || strlen(text) > 9) return 0;
    *(uint64_t *)to = strtoull(text, NULL, 10);
    return 1;
}

static int parse_heap(const char *text, void *to) {
    *(uint64_t *)to = 1;
    return !strcmp(text, "cpu");
}

static int parse_off(const char *text, void *to) {
    uint64_t flag = 1;
    (void)to;
    return parse_flag(text, &flag) && !flag;
}

static int parse_start(const char *text, void *to) { return (void)to, !strcmp(text, "auto"); }
static int accept_any(const char *text, void *to) { return (void)text, (void)to, 1; }

#define AT(FIELD) offsetof(settings_t, FIELD)
static const struct {
    const char *name;
    int (*parse)(const char *text, void *to);
    size_t place;
} rows[] = {
    {"SHMEM_SYMMETRIC_SIZE", parse_size, AT(heap)},
    {"SHMEM_VERSION", parse_flag, AT(version)},
    {"SHMEM_DEBUG", parse_off, 0},
    {"SHMEM_INFO", parse_off, 0},
    {"PYSHMEM_HEAP", parse_heap, AT(on_cpu)},
    {"PYSHMEM_WAIT_TIMEOUT", parse_seconds, AT(timeout)},
    {"PYSHMEM_WAIT_NOTICE", parse_seconds, AT(notice)},
    {"PYSHMEM_MAX_TEAMS", parse_count, AT(most_teams)},
    {"PYSHMEM_CHECK", parse_flag, AT(check)},
    {"PYSHMEM_REPORT", parse_off, 0},
    {"PYSHMEM_NVTX", parse_off, 0},
    {"PYSHMEM_TRACE_TORCH", parse_off, 0},
    {"PYSHMEM_QUIET", accept_any, 0}, /* C programs print no notes */
    {"PYSHMEM_C_START", parse_start, 0},
    {"PYSHMEM_SYMMETRIC_LIBS", accept_any, 0},
    {"PYSHMEM_PYTHON", accept_any, 0},
    {"PYSHMEM_CC", accept_any, 0},
    {"PYSHMEM_JOB_PE", accept_any, 0}, /* of pyshmemrun */
    {"PYSHMEM_JOB_DIR", accept_any, 0},
};

/* SMA_x is SHMEM_x, if that is not set. */
static int names(const char *variable, size_t length, const char *row) {
    if (strlen(row) == length && !strncmp(variable, row, length)) return 1;
    return length > 4 && !strncmp(variable, "SMA_", 4) && !strncmp(row, "SHMEM_", 6) && strlen(row) == length + 2 &&
           !strncmp(variable + 4, row + 6, length - 4) && !(getenv(row) && *getenv(row));
}

static int understands(const char *variable, settings_t *s) {
    size_t length = strcspn(variable, "=");
    const char *text = variable + length + 1;
    if (!variable[length] || !*text) return 1; /* blanked by modulefiles */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (names(variable, length, rows[i].name)) return rows[i].parse(text, (char *)s + rows[i].place);
    return !strncmp(variable, "SMA_", 4); /* an alias whose variable is set */
}

/* What says that the processes are connected in another way than by Hydra on one host. */
static const char *const foreign[] = {"TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK"};

INTERNAL const char *read_settings(settings_t *s) {
    static const char *const devices[] = {"/dev/nvidiactl", "/dev/kfd", "/dev/dxg"};
    *s = (settings_t){.heap = UINT64_MAX, .most_teams = 64, .check = 1, .timeout = 300, .notice = 30};
    for (char **each = environ; *each; each++) {
        int ours = !strncmp(*each, "SHMEM_", 6) || !strncmp(*each, "SMA_", 4) || !strncmp(*each, "PYSHMEM_", 8);
        if (ours && !understands(*each, s)) return *each;
    }
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (getenv(foreign[i])) return foreign[i];
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (!s->on_cpu && !access(devices[i], F_OK)) return devices[i];
    const char *site = getenv("PYSHMEM_CONFIG");
    return !site && !access("/etc/pyshmem.toml", F_OK) ? "/etc/pyshmem.toml" : NULL;
}
