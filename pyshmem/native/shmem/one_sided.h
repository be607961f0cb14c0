/* Puts, gets, their strided forms, signals and atomics. */
#pragma once
#include "state.h"
#include "waits.h"

/* ---- what is not a copy by this core: far PEs, and the GPU heap, for which the bridge takes Python's routes ---- */

static RARELY void put_away(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, uint64_t nbytes,
                            int pe, uint64_t place, int wait) {
    if (on_gpu(dest) || on_gpu(source))
        RARE("put", (int64_t)routine, (int64_t)dest, (int64_t)source, (int64_t)nbytes, world_pe(routine, ctx, pe),
             wait);
    else
        complete(routine, state.calls->put(place, source, nbytes), NULL);
}
static RARELY void get_away(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, uint64_t nbytes,
                            int pe, uint64_t place, int wait) {
    if (on_gpu(dest) || on_gpu(source))
        RARE("get", (int64_t)routine, (int64_t)source, (int64_t)dest, (int64_t)nbytes, world_pe(routine, ctx, pe),
             wait);
    else
        complete(routine, state.calls->get(dest, place, nbytes, wait), NULL);
}

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

static uint64_t span(const char *routine, const char *argument, ptrdiff_t step, const strides_t *s) {
    if (step < 1) refuse("ArgumentError", routine, argument, "1 or more", "%ld", (long)step);
    return extent(routine, argument, s->count, (uint64_t)step, s->size, s->item);
}

/* Of one item the strides may be of any size, and of empty ones the number. */
static void settle_strides(strides_t *s) {
    if (!s->item) s->count = 0;
    if (s->count == 1) s->dst = s->sst = (ptrdiff_t)(s->item / s->size);
}

/* how: the operation of the route. there, own: the symmetric and the private side. Steps are in bytes, first that of
 * the destination. */
static void strided_on_gpu(const char *how, const char *routine, shmem_ctx_t ctx, const void *there, const void *own,
                           uint64_t to_step, uint64_t from_step, const strides_t *s, int pe) {
    if (s->count)
        RARE(how, (int64_t)routine, (int64_t)there, (int64_t)own, (int64_t)to_step, (int64_t)from_step,
             (int64_t)s->item, (int64_t)s->count, world_pe(routine, ctx, pe));
}

static RARELY void iput(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, strides_t s, int pe) {
    uint64_t nbytes = span(routine, "dst", s.dst, &s);
    span(routine, "sst", s.sst, &s);
    settle_strides(&s);
    uint64_t to_step = (uint64_t)s.dst * s.size, own_step = (uint64_t)s.sst * s.size;
    uint64_t place = reach(routine, ctx, "dest", dest, nbytes, pe);
    count_call(!is_near(place), s.item * s.count);
    if (on_gpu(dest) || on_gpu(source)) {
        strided_on_gpu("put_strided", routine, ctx, dest, source, to_step, own_step, &s, pe);
        return;
    }
    if (!is_near(place) && s.count)
        complete(routine, state.calls->put_strided(place, source, to_step, own_step, s.item, s.count), NULL);
    for (uint64_t i = 0; is_near(place) && i < s.count; i++)
        copy_item((char *)place + i * to_step, (const char *)source + i * own_step, s.item);
}

static RARELY void iget(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, strides_t s, int pe) {
    uint64_t nbytes = span(routine, "sst", s.sst, &s);
    span(routine, "dst", s.dst, &s);
    settle_strides(&s);
    uint64_t own_step = (uint64_t)s.dst * s.size, from_step = (uint64_t)s.sst * s.size;
    uint64_t place = reach(routine, ctx, "source", source, nbytes, pe);
    count_call(!is_near(place), s.item * s.count);
    if (on_gpu(dest) || on_gpu(source)) {
        strided_on_gpu("get_strided", routine, ctx, source, dest, own_step, from_step, &s, pe);
        return;
    }
    if (!is_near(place) && s.count)
        complete(routine, state.calls->get_strided(dest, place, own_step, from_step, s.item, s.count), NULL);
    for (uint64_t i = 0; is_near(place) && i < s.count; i++)
        copy_item((char *)dest + i * own_step, (const char *)place + i * from_step, s.item);
}

/* ---- atomics: amo_<operator>_<type> returns what was there before, if `fetches`; amo_nbi_... puts it into `fetch`, if
 * the PE is far by the time of a quiet ---- */

static RARELY uint64_t amo_away(const char *routine, shmem_ctx_t ctx, const void *dest, int pe, uint64_t place,
                                uint32_t detail, uint64_t value, uint64_t cond, int fetches) {
    uint64_t old = 0;
    if (on_gpu(dest))
        return (uint64_t)RARE("atomic", (int64_t)routine, (int64_t)dest, world_pe(routine, ctx, pe), detail,
                              (int64_t)value, (int64_t)cond, fetches);
    complete(routine, state.calls->atomic(place, detail, value, cond, fetches ? &old : NULL, 1), NULL);
    return old;
}
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

static RARELY void refuse_operation(const char *routine, int operation) {
    refuse("ArgumentError", routine, "sig_op", "SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD", "%d", operation);
}

static RARELY void put_signal_away(const char *routine, shmem_ctx_t ctx, void *dest, const void *source,
                                   uint64_t nbytes, uint64_t *sig_addr, uint64_t signal, int set, int pe,
                                   uint64_t place, uint64_t word) {
    if (on_gpu(dest) || on_gpu(source) || on_gpu(sig_addr)) {
        RARE("put_signal", (int64_t)routine, (int64_t)dest, (int64_t)source, (int64_t)nbytes, (int64_t)sig_addr, set,
             (int64_t)signal, world_pe(routine, ctx, pe));
        return;
    }
    uint32_t detail = (uint32_t)(set ? OP_set : OP_add) * 16 + TYPE_uint64;
    complete(routine,
             nbytes ? state.calls->put_signal(place, source, nbytes, word, detail, signal)
                    : state.calls->atomic(word, detail, signal, 0, NULL, 0),
             NULL);
}

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
