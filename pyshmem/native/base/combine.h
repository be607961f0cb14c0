/* The loops of reductions: each combines two arrays of an element type by an operator. Nothing here knows Python. */
#pragma once
#include "internal.h"
#include "word.h"
#include <stdint.h>
#include <string.h>

typedef void (*combine_t)(void *, const void *, uint64_t);

/* ---- the tables of operators and of element types: numbers are places in them ---- */

#define REDUCTIONS(X) X(sum) X(prod) X(min) X(max) X(and) X(or) X(xor)
#define REDUCTION_NUMBER(OP) REDUCE_##OP,
enum { REDUCTIONS(REDUCTION_NUMBER) OPERATORS };

/* code: DLPack's. item: bytes of an element; wide: of one while it is combined. combine: NULL where an operator is not
 * defined. */
typedef struct {
    const char *name;
    uint8_t code;
    uint64_t item, wide;
    combine_t combine[OPERATORS], widen, narrow;
} kind_t;
/* X(name, its row, which combine.c has the macros for). Python has no long double, which comes last. */
#define KIND_ROWS(X)                                 \
    X(int8, INTEGER_KIND(DL_INT, int8, uint8))       \
    X(uint8, INTEGER_KIND(DL_UINT, uint8, uint8))    \
    X(int16, INTEGER_KIND(DL_INT, int16, uint16))    \
    X(uint16, INTEGER_KIND(DL_UINT, uint16, uint16)) \
    X(int32, INTEGER_KIND(DL_INT, int32, uint32))    \
    X(uint32, INTEGER_KIND(DL_UINT, uint32, uint32)) \
    X(int64, INTEGER_KIND(DL_INT, int64, uint64))    \
    X(uint64, INTEGER_KIND(DL_UINT, uint64, uint64)) \
    X(float32, REAL_KIND(float32))                   \
    X(float64, REAL_KIND(float64))                   \
    X(complex64, COMPLEX_KIND(complex64, 8))         \
    X(complex128, COMPLEX_KIND(complex128, 16))      \
    X(float16, HALF_KIND(DL_FLOAT, float16))         \
    X(bfloat16, HALF_KIND(DL_BFLOAT, bfloat16))      \
    X(longdouble, REAL_KIND(longdouble))
#define KIND_NUMBER(NAME, ...) KIND_##NAME,
enum { KIND_ROWS(KIND_NUMBER) KINDS };
GLOBAL const kind_t kinds[KINDS];
