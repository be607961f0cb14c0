/* Collectives by one native call: valid calls with two plain, live tensors of one type. _native.c includes this file. */

static int plain_pair(PyObject *views, PyObject *const *arrays, operand_t *dest, operand_t *source, view_t *v) {
    view_t other;
    return read_plain(views, arrays[0], dest) && read_plain(views, arrays[1], source) && dest->code == source->code &&
           dest->item == source->item && find_view(views, dest, v) && find_view(views, source, &other) &&
           v->heap == other.heap && is_live(v, dest->address, dest->nbytes) && is_live(v, source->address, source->nbytes) &&
           !is_lazily_negated(arrays[0], dest) && !is_lazily_negated(arrays[1], source);
}

/* The index in kinds of a plain tensor's type; KINDS for types without reductions. */
static int64_t kind_of(const operand_t *o) {
    int64_t size = o->item == 1 ? 0 : o->item == 2 ? 1 : o->item == 4 ? 2 : 3;
    switch (o->code) {
    case 0: return 2 * size;
    case DL_UINT: return 2 * size + 1;
    case DL_FLOAT: return o->item == 2 ? 12 : 6 + size;
    case 4: return 13; /* bfloat16 */
    default: return KINDS;
    }
}

/* quick(team, timeout, spins, call, detail, views, heap, target, source, size) -> what is left to do: UNTOUCHED if the
 * arguments need the slow path. call: 0 is broadcast, with the root as detail; 1 is fcollect; 2 is
 * alltoall; 3 is a reduction or scan, with mode * OPERATORS + operator as detail. */
static PyObject *py_quick(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    fold_t f;
    view_t v;
    operand_t to, own;
    int64_t call, detail;
    if (!arity("quick", n, 10) || !to_team(args, &t) || !to_i64(args[3], &call)) return NULL;
    if (!PyLong_CheckExact(args[4]) || !to_i64(args[4], &detail) || !plain_pair(args[5], args + 7, &to, &own, &v) ||
        v.heap != args[6]) {
        PyErr_Clear();
        return PyLong_FromLong(UNTOUCHED);
    }
    uint64_t members = (uint64_t)t.n, room = to.nbytes / to.item, length = own.nbytes / own.item, count = length;
    if (call == 2 && args[9] == Py_None && length % members) return PyLong_FromLong(UNTOUCHED);
    if (call == 2) length = count = length / members;
    if (call == 1 || call == 2) room /= members;
    if (args[9] != Py_None && (!PyLong_CheckExact(args[9]) || !to_u64(args[9], &count))) { PyErr_Clear(); return PyLong_FromLong(UNTOUCHED); }
    if (count == 0 || count > room || count > length || (call == 0 && (detail < 0 || detail >= t.n))) return PyLong_FromLong(UNTOUCHED);
    if (call == 3 && !to_fold(&t, detail / OPERATORS, detail % OPERATORS, kind_of(&to), &f)) return PyLong_FromLong(UNTOUCHED);
    char *dest = (char *)to.address, *source = (char *)own.address;
    uint64_t nbytes = count * own.item;
    blocks_t blocks = {call == 2 ? nbytes : 0, nbytes, 0, 0, 1};
    if (call == 0) broadcast(&t, detail, dest, source, nbytes, 0);
    else if (call == 3) reduce(&t, &f, dest, source, count, 0);
    else scatter(&t, dest + (uint64_t)t.me * nbytes, source, &blocks, 0);
    return left(&t);
}

/* locate_pair(views, target, source) -> (heap, address of target, address of source, elements of target, elements of source, kind)
 * if plain_pair holds, else None. kind is that of locate_word. */
static PyObject *py_locate_pair(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    view_t v;
    operand_t dest, source;
    if (!arity("locate_pair", n, 3)) return NULL;
    if (!plain_pair(args[0], args + 1, &dest, &source, &v)) Py_RETURN_NONE;
    return Py_BuildValue("OKKKKK", v.heap, dest.address, source.address, dest.nbytes / dest.item, source.nbytes / source.item,
                         dest.code * UINT64_C(16) + dest.item);
}
