/* Calls on the memory of far PEs (far/calls.h) for Python, and the self-test of a fabric. */
#pragma once
#include "../far/calls.h"
#include "../far/rma.h"
#include "failures.h"

INTERNAL int words_of(const char *name, PyObject *const *args, Py_ssize_t n, Py_ssize_t want, uint64_t *words);
