/* Atomics on words in CPU memory, for host calls, and by number for requests of far PEs.
 *
 * The tables here are the only ones of operators and of their types. Numbers in requests are places in them. All
 * atomics are sequentially consistent, because the spec's AMOs from one PE to one word are in program order and a fetch
 * is also used as a poll. Nothing here knows Python: the library of the C names has the same code. */
#pragma once
#include <stdint.h>
#include <string.h>

#include "internal.h"

/* DLPack's codes of types */
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6 };

typedef double float64_t;
typedef float float32_t;

/* X(T, B), where B is the unsigned type of the same width; types of 4 and of 8 bytes take turns */
#define INTEGERS(X) X(int32, uint32) X(int64, uint64) X(uint32, uint32) X(uint64, uint64)
#define FLOATS(X) X(float32, uint32) X(float64, uint64)
#define ATOMIC_TYPES(X) \
    INTEGERS(X)         \
    FLOATS(X)

/* X(operator, arguments with the address, ...). A new operator is a row here and a function seq_<operator>_<type>
 * below. */
/* clang-format off */
#define OF_NUMBERS(X, ...)          \
    X(fetch, 1, __VA_ARGS__)        \
    X(set, 2, __VA_ARGS__)          \
    X(swap, 2, __VA_ARGS__)         \
    X(add, 2, __VA_ARGS__)          \
    X(compare_swap, 3, __VA_ARGS__)
#define OF_INTEGERS(X, ...)         \
    X(and, 2, __VA_ARGS__)          \
    X(or, 2, __VA_ARGS__)           \
    X(xor, 2, __VA_ARGS__)
/* clang-format on */

#define NUMBER_OF_TYPE(T, B) TYPE_##T,
enum { ATOMIC_TYPES(NUMBER_OF_TYPE) TYPES };
#define NUMBER_OF_OPERATOR(OP, ...) OP_##OP,
enum { OF_NUMBERS(NUMBER_OF_OPERATOR, ) OF_INTEGERS(NUMBER_OF_OPERATOR, ) OP_COUNT };

#define BITS_OF(T, B)                        \
    static inline B##_t bits_##T(T##_t v) {  \
        B##_t b;                             \
        memcpy(&b, &v, sizeof b);            \
        return b;                            \
    }                                        \
    static inline T##_t value_##T(B##_t b) { \
        T##_t v;                             \
        memcpy(&v, &b, sizeof v);            \
        return v;                            \
    }
ATOMIC_TYPES(BITS_OF)

/* Each returns what was there before, but set, which returns v. */
#define SEQ(OP, T, B) static inline T##_t seq_##OP##_##T(B##_t *p, T##_t v, T##_t cond)
#define ON_BITS(T, B)                                                                              \
    SEQ(fetch, T, B) {                                                                             \
        (void)v, (void)cond;                                                                       \
        return value_##T(__atomic_load_n(p, __ATOMIC_SEQ_CST));                                    \
    }                                                                                              \
    SEQ(set, T, B) {                                                                               \
        (void)cond;                                                                                \
        __atomic_store_n(p, bits_##T(v), __ATOMIC_SEQ_CST);                                        \
        return v;                                                                                  \
    }                                                                                              \
    SEQ(swap, T, B) {                                                                              \
        (void)cond;                                                                                \
        return value_##T(__atomic_exchange_n(p, bits_##T(v), __ATOMIC_SEQ_CST));                   \
    }                                                                                              \
    SEQ(compare_swap, T, B) {                                                                      \
        B##_t seen = bits_##T(cond);                                                               \
        __atomic_compare_exchange_n(p, &seen, bits_##T(v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
        return value_##T(seen);                                                                    \
    }
ATOMIC_TYPES(ON_BITS)

#define ON_INTEGER(T, B)                                                 \
    SEQ(add, T, B) {                                                     \
        (void)cond;                                                      \
        return (T##_t)__atomic_fetch_add(p, (B##_t)v, __ATOMIC_SEQ_CST); \
    }                                                                    \
    SEQ(and, T, B) {                                                     \
        (void)cond;                                                      \
        return (T##_t)__atomic_fetch_and(p, (B##_t)v, __ATOMIC_SEQ_CST); \
    }                                                                    \
    SEQ(or, T, B) {                                                      \
        (void)cond;                                                      \
        return (T##_t)__atomic_fetch_or(p, (B##_t)v, __ATOMIC_SEQ_CST);  \
    }                                                                    \
    SEQ(xor, T, B) {                                                     \
        (void)cond;                                                      \
        return (T##_t)__atomic_fetch_xor(p, (B##_t)v, __ATOMIC_SEQ_CST); \
    }
INTEGERS(ON_INTEGER)

#define ON_FLOAT(T, B)                                                                                    \
    SEQ(add, T, B) {                                                                                      \
        (void)cond;                                                                                       \
        B##_t seen = __atomic_load_n(p, __ATOMIC_RELAXED);                                                \
        while (!__atomic_compare_exchange_n(p, &seen, bits_##T(value_##T(seen) + v), 1, __ATOMIC_SEQ_CST, \
                                            __ATOMIC_RELAXED)) {}                                         \
        return value_##T(seen);                                                                           \
    }
FLOATS(ON_FLOAT)

/* ---- by number ---- */

typedef struct {
    uint64_t item;
    uint64_t (*apply)(uint32_t operator, void *word, uint64_t value, uint64_t cond);
} applier_t;
GLOBAL const applier_t appliers[TYPES];
