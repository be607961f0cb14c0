/* Tells why this process ends: by a file, by a line that pyshmemrun takes, or by a line for people. */
#pragma once
#include "internal.h"

typedef struct {
    char file[4096]; /* which pyshmemrun, on this host, prints at the end; empty: without pyshmemrun here */
    char mark[300];  /* how a line begins that tells pyshmemrun on another host; empty: without pyshmemrun */
    char who[300];   /* the PE */
} cause_t;
GLOBAL cause_t cause;

INTERNAL void report_end(int status, const char *why);
INTERNAL void let_read(void);
