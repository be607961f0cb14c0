/* Puts, gets, their strided forms, signals and atomics. */
#pragma once
#include "state.h"
#include "waits.h"

/* ---- what is not a copy by this core: far PEs, and the GPU heap, for which the bridge takes Python's routes ---- */

INTERNAL RARELY void put_away(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, uint64_t nbytes,
                              int pe, uint64_t place, int wait);
INTERNAL RARELY void get_away(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, uint64_t nbytes,
                              int pe, uint64_t place, int wait);

#define COPY(NAME, WAIT)                                                                               \
    static inline void put##NAME(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, \
                                 uint64_t nbytes, int pe) {                                            \
        uint64_t place = reach_counted(routine, ctx, "dest", dest, nbytes, pe);                        \
        if (is_near(place) && !on_gpu(source))                                                         \
            copy_item((char *)place, source, nbytes);                                                  \
        else if (nbytes)                                                                               \
            put_away(routine, ctx, dest, source, nbytes, pe, place, WAIT);                             \
    }                                                                                                  \
    static inline void get##NAME(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, \
                                 uint64_t nbytes, int pe) {                                            \
        uint64_t place = reach_counted(routine, ctx, "source", source, nbytes, pe);                    \
        if (is_near(place) && !on_gpu(dest))                                                           \
            copy_item(dest, (const char *)place, nbytes);                                              \
        else if (nbytes)                                                                               \
            get_away(routine, ctx, dest, source, nbytes, pe, place, WAIT);                             \
    }
COPY(, 1)
COPY(_nbi, 0)

/* ---- strided: `count` items of `item` bytes, which are `dst` and `sst` elements of `size` bytes apart ---- */

typedef struct {
    ptrdiff_t dst, sst;
    uint64_t item, count, size;
} strides_t;

INTERNAL RARELY void iput(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, strides_t s, int pe);
INTERNAL RARELY void iget(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, strides_t s, int pe);

/* ---- atomics: amo_<operator>_<type> returns what was there before, if `fetches`; amo_nbi_... puts it into `fetch`, if
 * the PE is far by the time of a quiet ---- */

INTERNAL RARELY uint64_t amo_away(const char *routine, shmem_ctx_t ctx, const void *dest, int pe, uint64_t place,
                                  uint32_t detail, uint64_t value, uint64_t cond, int fetches);
#define AMO(OP, N, T, B)                                                                                               \
    static inline T##_t amo_##OP##_##T(const char *routine, shmem_ctx_t ctx, const char *argument, const void *dest,   \
                                       T##_t value, T##_t cond, int pe, int fetches) {                                 \
        uint64_t place =                                                                                               \
            reach_counted(routine, ctx, argument, aligned(routine, argument, dest, sizeof(T##_t)), sizeof(T##_t), pe); \
        if (is_near(place)) return seq_##OP##_##T((B##_t *)place, value, cond);                                        \
        return value_##T((B##_t)amo_away(routine, ctx, dest, pe, place, OP_##OP * 16 + TYPE_##T, bits_##T(value),      \
                                         bits_##T(cond), fetches));                                                    \
    }                                                                                                                  \
    static inline void amo_nbi_##OP##_##T(const char *routine, shmem_ctx_t ctx, const char *argument, void *fetch,     \
                                          const void *dest, T##_t value, T##_t cond, int pe) {                         \
        aligned(routine, argument, dest, sizeof(T##_t));                                                               \
        uint64_t place = reach(routine, ctx, argument, dest, sizeof(T##_t), pe);                                       \
        if (is_near(place) || on_gpu(dest))                                                                            \
            *(T##_t *)fetch = amo_##OP##_##T(routine, ctx, argument, dest, value, cond, pe, 1);                        \
        else                                                                                                           \
            count_call(1, sizeof(T##_t)), complete(routine,                                                            \
                                                   state.calls->atomic(place, OP_##OP * 16 + TYPE_##T,                 \
                                                                       bits_##T(value), bits_##T(cond), fetch, 0),     \
                                                   NULL);                                                              \
    }
#define AMOS_OF_NUMBER(T, B) OF_NUMBERS(AMO, T, B)
#define AMOS_OF_INTEGER(T, B) OF_INTEGERS(AMO, T, B)
ATOMIC_TYPES(AMOS_OF_NUMBER)
INTEGERS(AMOS_OF_INTEGER)

/* ---- signals ---- */

INTERNAL RARELY void refuse_operation(const char *routine, int operation);
INTERNAL RARELY void put_signal_away(const char *routine, shmem_ctx_t ctx, void *dest, const void *source,
                                     uint64_t nbytes, uint64_t *sig_addr, uint64_t signal, int set, int pe,
                                     uint64_t place, uint64_t word);

static inline void put_signal(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, uint64_t nbytes,
                              uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) {
    aligned(routine, "sig_addr", sig_addr, sizeof *sig_addr);
    uint64_t word = reach_counted(routine, ctx, "sig_addr", sig_addr, sizeof *sig_addr, pe);
    uint64_t place = reach_counted(routine, ctx, "dest", dest, nbytes, pe);
    if (sig_op != SHMEM_SIGNAL_SET && sig_op != SHMEM_SIGNAL_ADD) refuse_operation(routine, sig_op);
    int set = sig_op == SHMEM_SIGNAL_SET;
    if (!is_near(word) || !is_near(place) || on_gpu(source)) {
        put_signal_away(routine, ctx, dest, source, nbytes, sig_addr, signal, set, pe, place, word);
        return;
    }
    copy_item((char *)place, source, nbytes);
    if (set)
        __atomic_store_n((uint64_t *)word, signal, __ATOMIC_SEQ_CST);
    else
        __atomic_fetch_add((uint64_t *)word, signal, __ATOMIC_SEQ_CST);
}
#define put_signal_nbi put_signal

static inline uint64_t signal_fetch(const char *routine, const uint64_t *sig_addr) {
    aligned(routine, "sig_addr", sig_addr, sizeof *sig_addr);
    symmetric(routine, "sig_addr", sig_addr, sizeof *sig_addr);
    return look_uint64(readable(sig_addr, sizeof *sig_addr));
}
