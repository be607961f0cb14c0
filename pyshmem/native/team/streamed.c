#include "streamed.h"

enum { HISTORY_BITS = 48 };

/* Returns 0, or -1 - member for a member whose call, or one before, is another; -1 - n if a member has left a call. */
INTERNAL int64_t streamed_differs(const team_t *t, uint64_t word) {
    counters_t *own = counters(t);
    if (is_broken(t)) return -1 - t->n;
    uint64_t number = ++own->streamed;
    own->streamed_history = (own->streamed_history + word) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - HISTORY_BITS);
    uint64_t mark = number << HISTORY_BITS | own->streamed_history;
    uint64_t place = STREAMED + 8 * (number % STREAMED_CALLS);
    /* of two members that store at the same time, one sees the other's mark */
    __atomic_exchange_n((uint64_t *)(t->area + place), mark, __ATOMIC_SEQ_CST);
    for (int64_t k = 1; k < t->n; k++) {
        int64_t j = (t->me + k) % t->n;
        uint64_t seen = __atomic_load_n((uint64_t *)(area_of(t, j) + place), __ATOMIC_SEQ_CST);
        if (seen >> HISTORY_BITS == mark >> HISTORY_BITS && seen != mark) return -1 - j;
    }
    return 0;
}
