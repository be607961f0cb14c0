/* Collectives by one native call: valid calls with two plain arrays of one type, which are live; or also private, in
 * small reductions. */
#include "../team/collectives.h"
#include "../team/reductions.h"
#include "locate.h"
#include "methods.h"
#include "teams.h"

/* The number of a plain tensor's type; KINDS for types without reductions. */
static int64_t kind_of(const operand_t *o) {
    int64_t kind = 0;
    while (kind < KINDS && (kinds[kind].code != o->code || kinds[kind].item != o->item)) kind++;
    return kind;
}

/* Whether a call may use these bytes: target and source are apart, or they are the same array where no member writes
 * what another has not read, or the source is this member's block of fcollect. */
static int is_apart(const team_t *t, int64_t call, uint64_t dest, uint64_t source, uint64_t nbytes) {
    uint64_t all = nbytes * (uint64_t)t->n, to = call == WORD_FCOLLECT || call == WORD_ALLTOALL ? all : nbytes;
    uint64_t of = call == WORD_ALLTOALL ? all : nbytes;
    if (dest + to <= source || source + of <= dest) return 1;
    return call == WORD_FCOLLECT ? source == dest + (uint64_t)t->me * nbytes : call != WORD_ALLTOALL && source == dest;
}

/* Whether both arrays are live, or Python's `permits` takes the others, of which it gets the addresses, and 0 for one
 * that is live. */
static int may_use(const view_t *v, const operand_t *dest, const operand_t *source, PyObject *permits) {
    uint64_t first = is_live(v, dest->address, dest->nbytes) ? 0 : dest->address;
    uint64_t second = is_live(v, source->address, source->nbytes) ? 0 : source->address;
    if (!first && !second) return 1;
    PyObject *answer = permits ? PyObject_CallFunction(permits, "KK", first, second) : NULL;
    int permitted = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    return permitted;
}

/* quick(team, timeout, spins, call, root, views, heap, target, source, size, permits) -> what is left to do: UNTOUCHED
 * if the arguments need the slow path. call: its number in words, which is that of a broadcast, of fcollect, of
 * alltoall, or from WORD_FOLD on of a reduction or scan. */
static PyObject *py_quick(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    fold_t f;
    view_t v;
    operand_t to, own;
    int64_t call, root;
    if (!arity("quick", n, 11) || !to_team(args, &t) || !to_i64(args[3], &call)) return NULL;
    if (!PyLong_CheckExact(args[4]) || !to_i64(args[4], &root) || !pair_of_one_kind(args[5], args + 7, &to, &own, &v) ||
        to.is_read_only || v.heap != args[6]) {
        PyErr_Clear();
        return PyLong_FromLong(UNTOUCHED);
    }
    int64_t how = call - WORD_FOLD;
    uint64_t members = (uint64_t)t.n, room = to.nbytes / to.item, length = own.nbytes / own.item, count = length;
    if (call == WORD_ALLTOALL && args[9] == Py_None && length % members) return PyLong_FromLong(UNTOUCHED);
    if (call == WORD_ALLTOALL) length = count = length / members;
    if (call == WORD_FCOLLECT || call == WORD_ALLTOALL) room /= members;
    if (args[9] != Py_None && !to_count(args[9], &count)) return PyLong_FromLong(UNTOUCHED);
    if (count == 0 || count > room || count > length || (call == WORD_BROADCAST && (root < 0 || root >= t.n)) ||
        !is_apart(&t, call, to.address, own.address, count * own.item))
        return PyLong_FromLong(UNTOUCHED);
    if (how >= 0 && !reduction_prepare(&t, how / OPERATORS, how % OPERATORS, kind_of(&to), &f))
        return PyLong_FromLong(UNTOUCHED);
    char *dest = (char *)to.address, *source = (char *)own.address;
    uint64_t nbytes = count * own.item;
    if (!may_use(&v, &to, &own, how >= 0 && reduction_is_small(&t, nbytes) ? args[10] : NULL))
        return PyLong_FromLong(UNTOUCHED);
    uint64_t word = (uint64_t)call << 56 | (own.code * UINT64_C(16) + own.item) << 48 | nbytes;
    if (!team_begin_rooted(&t, word, call == WORD_BROADCAST ? root : -1)) return left(&t);
    blocks_t blocks = {call == WORD_ALLTOALL ? nbytes : 0, nbytes, 0, 0, 1};
    if (call == WORD_BROADCAST)
        collective_broadcast(&t, root, dest, source, nbytes, 0);
    else if (how >= 0)
        reduction_run(&t, &f, dest, source, count, 0);
    else
        collective_scatter(&t, dest + (uint64_t)t.me * nbytes, source, &blocks, 0);
    return left(&t);
}

INTERNAL PyMethodDef *quick_methods(void) {
    static PyMethodDef all[] = {METHOD(quick), LAST_METHOD};
    return all;
}
