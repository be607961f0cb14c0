/* Tensors as arguments: one call reads address, size and type, by the C functions of DLPack's exchange table
 * (DLPack 1.3), which torch.Tensor provides. Reading them as attributes takes longer than the operation itself.
 * Arrays of NumPy are read by ndarrays.h. */
#pragma once
#include "../base/counts.h"
#include "conversions.h"
#include "ndarrays.h"

typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor_t;

enum { ON_CPU = 1 }; /* DLPack's device type */

typedef struct {
    uint64_t address, nbytes, item;
    int32_t device_type, device;
    uint8_t code;
    int is_ndarray, is_read_only;
} operand_t;
INTERNAL int read_dlpack(PyObject *views, PyObject *o, dl_tensor_t *t);
INTERNAL int read_tensor(PyObject *views, PyObject *o, operand_t *out, int contiguous);
INTERNAL int read_plain(PyObject *views, PyObject *o, operand_t *out);
INTERNAL int is_lazily_negated(PyObject *o, const operand_t *t);

typedef struct {
    dl_tensor_t tensor;
    void *context;
    void (*deleter)(void *);
    int64_t extent;
} dl_managed_t;
