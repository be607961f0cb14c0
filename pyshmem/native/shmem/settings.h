/* The environment variables of a job that the C library opens without Python. */
#pragma once
#include <stdint.h>

#include "../base/internal.h"

/* heap: the bytes asked for, UINT64_MAX for none. */
typedef struct {
    uint64_t heap, most_teams, check, version, on_cpu;
    double timeout, notice;
} settings_t;

/* Reads them. Returns why Python has to start, as the name of a variable or a file; or NULL. */
INTERNAL const char *read_settings(settings_t *s);
