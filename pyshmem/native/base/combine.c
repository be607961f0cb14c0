#include "combine.h"

#define LOOP(NAME, T, EXPRESSION)                                     \
    static void NAME(void *total, const void *part, uint64_t count) { \
        T *restrict a = total;                                        \
        const T *restrict b = part;                                   \
        for (uint64_t i = 0; i < count; i++) {                        \
            T x = a[i], y = b[i];                                     \
            a[i] = (T)(EXPRESSION);                                   \
        }                                                             \
    }
/* W: an unsigned type that is at least as wide as int, so that overflow wraps around */
#define BITS(T, W)                       \
    LOOP(sum_##T, T##_t, ((W)x + (W)y))  \
    LOOP(prod_##T, T##_t, ((W)x * (W)y)) \
    LOOP(and_##T, T##_t, (x & y))        \
    LOOP(or_##T, T##_t, (x | y))         \
    LOOP(xor_##T, T##_t, (x ^ y))
#define ORDER(T)                        \
    LOOP(min_##T, T##_t, x < y ? x : y) \
    LOOP(max_##T, T##_t, x > y ? x : y)
/* if an operand is a NaN, the result is a NaN */
#define REAL(T)                                   \
    LOOP(sum_##T, T##_t, (x + y))                 \
    LOOP(prod_##T, T##_t, (x * y))                \
    LOOP(min_##T, T##_t, x < y || x != x ? x : y) \
    LOOP(max_##T, T##_t, x > y || x != x ? x : y)
#define COMPLEX(NAME, T)                                                                                       \
    static void sum_##NAME(void *total, const void *part, uint64_t count) { sum_##T(total, part, 2 * count); } \
    static void prod_##NAME(void *total, const void *part, uint64_t count) {                                   \
        T##_t *restrict a = total;                                                                             \
        const T##_t *restrict b = part;                                                                        \
        for (uint64_t i = 0; i < 2 * count; i += 2) {                                                          \
            T##_t real = a[i] * b[i] - a[i + 1] * b[i + 1];                                                    \
            a[i + 1] = a[i] * b[i + 1] + a[i + 1] * b[i];                                                      \
            a[i] = real;                                                                                       \
        }                                                                                                      \
    }
BITS(uint8, uint32_t)
BITS(uint16, uint32_t)
BITS(uint32, uint32_t)
BITS(uint64, uint64_t)
ORDER(int8)
ORDER(uint8)
ORDER(int16)
ORDER(uint16)
ORDER(int32)
ORDER(uint32)
ORDER(int64)
ORDER(uint64)
REAL(float32)
REAL(float64)
COMPLEX(complex64, float32)
COMPLEX(complex128, float64)
typedef long double longdouble_t;
REAL(longdouble)

/* Half types are combined in float32 and rounded once, to the nearest even. */
static float bits_to_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static uint32_t float_to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static float from_bfloat16(uint16_t h) { return bits_to_float((uint32_t)h << 16); }
static uint16_t to_bfloat16(float f) {
    uint32_t bits = float_to_bits(f);
    if (f != f) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_float16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13;
    if (magnitude >= 0x0f800000) return bits_to_float(sign | 0x70000000 | magnitude); /* infinity, NaN */
    return bits_to_float(sign | float_to_bits(bits_to_float(magnitude) * 0x1p112f));  /* corrects the exponent's bias */
}
static uint16_t to_float16(float f) {
    uint32_t sign = float_to_bits(f) >> 16 & 0x8000, bits = float_to_bits(f) & 0x7fffffff;
    if (f != f) return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to infinity */
    if (bits < 0x38800000)
        return (uint16_t)(sign | (float_to_bits(bits_to_float(bits) + 0.5f) - 0x3f000000)); /* subnormal */
    return (uint16_t)(sign | ((bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13));
}

#define HALF(T)                                                                                          \
    static void widen_##T(void *wide, const void *half, uint64_t count) {                                \
        for (uint64_t i = 0; i < count; i++) ((float *)wide)[i] = from_##T(((const uint16_t *)half)[i]); \
    }                                                                                                    \
    static void narrow_##T(void *half, const void *wide, uint64_t count) {                               \
        for (uint64_t i = 0; i < count; i++) ((uint16_t *)half)[i] = to_##T(((const float *)wide)[i]);   \
    }
HALF(float16)
HALF(bfloat16)
#define INTEGER_KIND(CODE, T, U)                                                                                \
    {#T,   CODE, sizeof(T##_t), sizeof(T##_t), {sum_##U, prod_##U, min_##T, max_##T, and_##U, or_##U, xor_##U}, \
     NULL, NULL}
#define REAL_KIND(T) {#T, DL_FLOAT, sizeof(T##_t), sizeof(T##_t), {sum_##T, prod_##T, min_##T, max_##T}, NULL, NULL}
#define COMPLEX_KIND(T, BYTES) {#T, DL_COMPLEX, BYTES, BYTES, {sum_##T, prod_##T}, NULL, NULL}
#define HALF_KIND(CODE, T) \
    {#T, CODE, 2, 4, {sum_float32, prod_float32, min_float32, max_float32}, widen_##T, narrow_##T}
#define KIND_ROW(NAME, ...) __VA_ARGS__,
INTERNAL const kind_t kinds[KINDS] = {KIND_ROWS(KIND_ROW)};
