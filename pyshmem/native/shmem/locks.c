#include "locks.h"

#include "collectives.h"
#include "one_sided.h"
#include "waits.h"

static const uint64_t TICKET = UINT64_C(1) << 32;

INTERNAL void manage_set_lock(const char *routine, long *lock) {
    uint64_t home = reach(routine, SHMEM_CTX_DEFAULT, "lock", lock, sizeof *lock, 0);
    uint64_t seen = amo_add_uint64(routine, SHMEM_CTX_DEFAULT, "lock", lock, TICKET, 0, 0, 1);
    uint32_t ticket = (uint32_t)(seen >> 32), served = (uint32_t)seen;
    spin_t s = begin_wait(routine);
    while (served != ticket) {
        served = is_near(home) ? look_uint32((uint32_t *)home)
                               : amo_fetch_uint32(routine, SHMEM_CTX_DEFAULT, "lock", lock, 0, 0, 0, 1);
        if (served != ticket && !spin_pause(&s)) RARE("lock_timed_out", (int64_t)routine, ticket, served);
    }
    spin_end(&s);
}

INTERNAL int manage_test_lock(const char *routine, long *lock) {
    uint64_t seen = amo_fetch_uint64(routine, SHMEM_CTX_DEFAULT, "lock", lock, 0, 0, 0, 1);
    if (seen >> 32 != (uint32_t)seen) return 1;
    return amo_compare_swap_uint64(routine, SHMEM_CTX_DEFAULT, "lock", lock, seen + TICKET, seen, 0, 1) != seen;
}

INTERNAL void manage_clear_lock(const char *routine, long *lock) {
    uint64_t seen = amo_fetch_uint64(routine, SHMEM_CTX_DEFAULT, "lock", lock, 0, 0, 0, 1);
    if (seen >> 32 == (uint32_t)seen)
        refuse("ArgumentError", routine, "lock", "one that this PE has set", "a lock that is free");
    quiet(routine);
    amo_add_uint32(routine, SHMEM_CTX_DEFAULT, "lock", lock, 1, 0, 0, 0); /* the lower half: it wraps without a carry */
}
