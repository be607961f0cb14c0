/* The methods of the module, by the file of this folder that has them. */
#pragma once
#include "conversions.h"

/* clang-format off */
#define PARTS(X) \
    X(atomic) X(block) X(collective) X(copy) X(event) X(exit) \
    X(fabric) X(fabric_gpu) X(far) X(far_atomic) X(far_gpu) X(kernel_call) \
    X(launch) X(library) X(locating) X(ndarray) X(pool) X(proxy) \
    X(quick) X(range) X(service) X(several) X(tensor) X(wait)
/* clang-format on */
#define DECLARE_METHODS(PART) INTERNAL PyMethodDef *PART##_methods(void);
PARTS(DECLARE_METHODS)

INTERNAL int export_atomics(PyObject *module);
INTERNAL int export_reductions(PyObject *module);
INTERNAL int export_layout(PyObject *module);
