#include "one_sided.h"

/* ---- what is not a copy by this core: far PEs, and the GPU heap, for which the bridge takes Python's routes ---- */

INTERNAL RARELY void put_away(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, uint64_t nbytes,
                              int pe, uint64_t place, int wait) {
    if (on_gpu(dest) || on_gpu(source))
        RARE("put", (int64_t)routine, (int64_t)dest, (int64_t)source, (int64_t)nbytes, world_pe(routine, ctx, pe),
             wait);
    else
        complete(routine, state.calls->put(place, source, nbytes), NULL);
}
INTERNAL RARELY void get_away(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, uint64_t nbytes,
                              int pe, uint64_t place, int wait) {
    if (on_gpu(dest) || on_gpu(source))
        RARE("get", (int64_t)routine, (int64_t)source, (int64_t)dest, (int64_t)nbytes, world_pe(routine, ctx, pe),
             wait);
    else
        complete(routine, state.calls->get(dest, place, nbytes, wait), NULL);
}

/* ---- strided: `count` items of `item` bytes, which are `dst` and `sst` elements of `size` bytes apart ---- */

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

INTERNAL RARELY void iput(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, strides_t s, int pe) {
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

INTERNAL RARELY void iget(const char *routine, shmem_ctx_t ctx, void *dest, const void *source, strides_t s, int pe) {
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

INTERNAL RARELY uint64_t amo_away(const char *routine, shmem_ctx_t ctx, const void *dest, int pe, uint64_t place,
                                  uint32_t detail, uint64_t value, uint64_t cond, int fetches) {
    uint64_t old = 0;
    if (on_gpu(dest))
        return (uint64_t)RARE("atomic", (int64_t)routine, (int64_t)dest, world_pe(routine, ctx, pe), detail,
                              (int64_t)value, (int64_t)cond, fetches);
    complete(routine, state.calls->atomic(place, detail, value, cond, fetches ? &old : NULL, 1), NULL);
    return old;
}

/* ---- signals ---- */

INTERNAL RARELY void refuse_operation(const char *routine, int operation) {
    refuse("ArgumentError", routine, "sig_op", "SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD", "%d", operation);
}

INTERNAL RARELY void put_signal_away(const char *routine, shmem_ctx_t ctx, void *dest, const void *source,
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
