#include "active_sets.h"

#include <stdlib.h>

#include "collectives.h"
#include "one_sided.h"
#include "waits.h"

INTERNAL set_t active_set(const char *routine, int start, int log_stride, int size, long *psync) {
    require_job(routine);
    int64_t stride = log_stride >= 0 && log_stride < 31 ? INT64_C(1) << log_stride : -1, apart = state.my_pe - start;
    if (stride < 0) refuse("ArgumentError", routine, "logPE_stride", "0 or more", "%d", log_stride);
    if (start < 0 || size < 1 || start + (size - 1) * stride >= state.n_pes)
        refuse("OutOfRangeError", routine, "PE_size", "1 or more PEs of the job",
               "%d PEs from %d at stride %ld, in a job of %ld", size, start, (long)stride, (long)state.n_pes);
    if (apart < 0 || apart % stride || apart / stride >= size)
        refuse("ArgumentError", routine, "PE_start", "an active set that includes this PE",
               "%d PEs from %d at stride %ld", size, start, (long)stride);
    on_cpu(routine, "pSync", aligned(routine, "pSync", psync, sizeof *psync), 3 * sizeof *psync);
    return (set_t){routine, start, stride, size, apart / stride, psync, psync + 1, psync + 2};
}

static int pe_of(const set_t *set, int64_t i) { return (int)(set->start + i * set->stride); }
static void set_word(const set_t *set, long *word, int64_t value, int64_t i) {
    amo_set_int64(set->routine, SHMEM_CTX_DEFAULT, "pSync", word, value, 0, pe_of(set, i), 0);
}

static int is_world(const set_t *set, const void *dest, const void *source) {
    return set->size == state.n_pes && !on_gpu(dest) && !on_gpu(source);
}

/* Each PE resets its words before another PE can write them again. */
INTERNAL void sync_set(const set_t *set) {
    if (set->size == state.n_pes) {
        sync_team(set->routine, &state.teams[0]);
        return;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (set->me) {
        amo_add_int64(set->routine, SHMEM_CTX_DEFAULT, "pSync", set->arrived, 1, 0, pe_of(set, 0), 0);
        wait_int64(set->routine, "pSync", set->released, EQ, 1);
        set_word(set, set->released, SHMEM_SYNC_VALUE, set->me);
        return;
    }
    wait_int64(set->routine, "pSync", set->arrived, EQ, set->size - 1);
    set_word(set, set->arrived, SHMEM_SYNC_VALUE, 0);
    for (int64_t i = 1; i < set->size; i++) set_word(set, set->released, 1, i);
}

INTERNAL void meet(const set_t *set) {
    quiet(set->routine);
    sync_set(set);
}

INTERNAL void set_broadcast(set_t set, void *dest, const void *source, uint64_t nbytes, int root) {
    if (root < 0 || root >= set.size) refuse_pe(set.routine, set.size, root);
    if (is_world(&set, dest, source)) {
        broadcast(set.routine, SHMEM_TEAM_WORLD, dest, source, nbytes, KIND_uint8, root, 1);
        return;
    }
    symmetric(set.routine, "dest", dest, nbytes);
    meet(&set);
    if (set.me != root) get(set.routine, SHMEM_CTX_DEFAULT, dest, source, nbytes, pe_of(&set, root));
    meet(&set);
}

INTERNAL void set_collect(set_t set, void *dest, const void *source, uint64_t nbytes) {
    if (is_world(&set, dest, source)) {
        collect(set.routine, SHMEM_TEAM_WORLD, dest, source, nbytes, KIND_uint8);
        return;
    }
    set_word(&set, set.length, (int64_t)nbytes, set.me);
    meet(&set);
    uint64_t first = 0;
    for (int64_t i = 0; i < set.size; i++) {
        uint64_t length =
            (uint64_t)amo_fetch_int64(set.routine, SHMEM_CTX_DEFAULT, "pSync", set.length, 0, 0, pe_of(&set, i), 1);
        symmetric(set.routine, "dest", (char *)dest + first, length);
        if (length) get(set.routine, SHMEM_CTX_DEFAULT, (char *)dest + first, source, length, pe_of(&set, i));
        first += length;
    }
    meet(&set);
    set_word(&set, set.length, SHMEM_SYNC_VALUE, set.me);
}

INTERNAL void set_alltoalls(set_t set, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, uint64_t nelems,
                            uint64_t item) {
    if (is_world(&set, dest, source)) {
        alltoalls(set.routine, SHMEM_TEAM_WORLD, dest, source, dst, sst, nelems, item == 4 ? KIND_uint32 : KIND_uint64);
        return;
    }
    strides_t s = {dst, sst, item, nelems, item};
    uint64_t all = bytes_of(set.routine, "nelems", (uint64_t)set.size, nelems);
    extent(set.routine, "dst", all, dst < 1 ? 1 : (uint64_t)dst, item, item);
    extent(set.routine, "sst", all, sst < 1 ? 1 : (uint64_t)sst, item, item);
    meet(&set);
    for (int64_t i = 0; i < set.size; i++)
        iput(set.routine, SHMEM_CTX_DEFAULT, (char *)dest + (uint64_t)set.me * nelems * (uint64_t)dst * item,
             (const char *)source + (uint64_t)i * nelems * (uint64_t)sst * item, s, pe_of(&set, i));
    meet(&set);
}

/* The order is that of the members, so all get the same bits. dest may be source: it is written after all reads. */
INTERNAL void set_reduce(set_t set, int operator, int kind, void *dest, const void *source, int nreduce) {
    if (nreduce < 0) refuse("OutOfRangeError", set.routine, "nreduce", "0 or more", "%d", nreduce);
    uint64_t count = (uint64_t)nreduce;
    if (is_world(&set, dest, source)) {
        fold(set.routine, SHMEM_TEAM_WORLD, REDUCE, operator, kind, dest, source, count);
        return;
    }
    uint64_t nbytes = count * kinds[kind].item;
    char *total = malloc(2 * nbytes + 1), *part = total + nbytes;
    symmetric(set.routine, "dest", dest, nbytes);
    if (!total) fail(set.routine, CALL_NO_MEMORY, NULL);
    meet(&set);
    for (int64_t i = 0; i < set.size; i++) {
        get(set.routine, SHMEM_CTX_DEFAULT, i ? part : total, source, nbytes, pe_of(&set, i));
        if (i) kinds[kind].combine[operator](total, part, count);
    }
    meet(&set);
    put(set.routine, SHMEM_CTX_DEFAULT, dest, total, nbytes, (int)state.my_pe);
    free(total);
}
