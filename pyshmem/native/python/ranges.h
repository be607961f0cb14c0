/* What calls read and write: a range of memory is an event of its own, which begins as the call does. */
#pragma once
#include "../trace/file.h"
#include "tensors.h"

/* What `size` says of the arrays of a call: nothing; that data have the bytes of the event; something else than their
 * bytes. */
enum { SIZE_OF_NOTHING, SIZE_OF_DATA, SIZE_OF_PARTS };

enum { LEAST_RANGE = 4096 }; /* bytes; smaller ones take no time, and would fill the file */
typedef struct {
    event_file_t file;
    int openings;
    PyObject *views;
} recording_t;
GLOBAL recording_t recording;
INTERNAL void note_range(const event_t *call, uint8_t op, uint64_t address, uint64_t nbytes);
INTERNAL void note_argument(const event_t *call, uint8_t op, PyObject *o, uint64_t most);

INTERNAL void forget_results(void);
INTERNAL void note_result(const event_t *call, PyObject *o, PyObject *const *arguments, Py_ssize_t n);
