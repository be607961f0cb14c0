#include "stages.h"

#include <sched.h>
#include <unistd.h>

#include "../base/spin.h"

INTERNAL int64_t await_all(table_t *table, int64_t n, uint64_t stage, double timeout) {
    int64_t limit = timeout > 0 ? now_ns() + (int64_t)(timeout * 1e9) : INT64_MAX;
    uint64_t polls = 0;
    for (int64_t pe = 0; pe < n; pe++) {
        const uint64_t *word = stage ? &table->rows[pe].stage : &table->rows[pe].vote;
        while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < (stage ? stage : ALONE)) {
            if (++polls < 200)
                sched_yield();
            else
                usleep(500);
            if (now_ns() > limit) return pe;
        }
    }
    return -1;
}

INTERNAL int64_t pass_stage(table_t *table, int64_t me, int64_t n, uint64_t stage, int64_t failed) {
    row_t *row = &table->rows[me];
    row->failed = failed;
    __atomic_store_n(&row->stage, stage, __ATOMIC_RELEASE);
    await_all(table, n, stage, 0);
    for (int64_t pe = 0; pe < n; pe++)
        if (table->rows[pe].failed) return table->rows[pe].failed;
    return 0;
}
