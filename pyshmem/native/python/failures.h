/* Errors of requests to far PEs, as exceptions. */
#pragma once
#include "../base/host.h"
#include "../far/link.h"
#include "conversions.h"

GLOBAL PyObject *refuse_request;
INTERNAL PyObject *far_result(void *released, link_t *failed, const char *routine);
