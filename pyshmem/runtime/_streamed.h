/* Calls on streams, whose kernels meet on the GPU. Their members compare them when they are enqueued, and wait for
 * nobody.
 *
 * Each member has the marks of its last calls in its area. A mark has the low bits of the call's number, and the
 * history of the words of all calls up to it. A member stores the mark of its call, and then looks at the marks of this
 * call on the others: the later of two members sees that the calls differ. If the other is so many calls ahead that the
 * mark is gone, their histories differ in the later calls too. */
#pragma once
#include "_barriers.h"

enum { HISTORY_BITS = 48 };

/* Returns 0, or -1 - member for a member whose call, or one before, is another; -1 - n if a member has left a call. */
static int64_t differs_on_stream(const team_t *t, uint64_t word) {
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

/* compare_on_stream(team, word) -> what differs_on_stream returns. */
static PyObject *py_compare_on_stream(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    uint64_t word;
    if (!arity("compare_on_stream", n, 2) || !to_members(args[0], &t) || !to_u64(args[1], &word)) return NULL;
    return PyLong_FromLongLong(differs_on_stream(&t, word));
}

static PyMethodDef streamed_methods[] = {METHOD(compare_on_stream), LAST_METHOD};
