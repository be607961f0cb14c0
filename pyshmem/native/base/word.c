/* Atomics by the numbers of their operator and type. */
#include "word.h"

#define APPLY_CASE(OP, N, T) \
    case OP_##OP: return bits_##T(seq_##OP##_##T(word, v, c));
#define APPLY(T, B, CASES)                                                                    \
    static uint64_t apply_##T(uint32_t operator, void *word, uint64_t value, uint64_t cond) { \
        T##_t v = value_##T((B##_t)value), c = value_##T((B##_t)cond);                        \
        switch (operator) {                                                                   \
            CASES                                                                             \
        default: return 0;                                                                    \
        }                                                                                     \
    }
#define APPLY_TO_INTEGER(T, B) APPLY(T, B, OF_NUMBERS(APPLY_CASE, T) OF_INTEGERS(APPLY_CASE, T))
#define APPLY_TO_FLOAT(T, B) APPLY(T, B, OF_NUMBERS(APPLY_CASE, T))
INTEGERS(APPLY_TO_INTEGER)
FLOATS(APPLY_TO_FLOAT)
#define APPLY_ROW(T, B) {sizeof(T##_t), apply_##T},
INTERNAL const applier_t appliers[TYPES] = {ATOMIC_TYPES(APPLY_ROW)};
