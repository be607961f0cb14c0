#include "locate.h"

#include "methods.h"

/* Finds the heap in the operand's kind of memory. Returns 0 if none is open. */
INTERNAL int find_view(PyObject *views, const operand_t *t, view_t *v) {
    for (Py_ssize_t i = 0; i < PyList_Size(views); i++) {
        PyObject *view = PyList_GetItem(views, i);
        if (PyLong_AsLong(PyTuple_GetItem(view, 5)) != t->device_type ||
            PyLong_AsLong(PyTuple_GetItem(view, 6)) != t->device)
            continue;
        v->starts = PyTuple_GetItem(view, 3);
        v->ends = PyTuple_GetItem(view, 4);
        v->heap = PyTuple_GetItem(view, 7);
        v->deltas = PyTuple_GetItem(view, 8);
        v->near = PyTuple_GetItem(view, 9);
        v->far_deltas = PyTuple_GetItem(view, 10);
        v->far = PyTuple_GetItem(view, 11);
        return to_u64(PyTuple_GetItem(view, 2), &v->base);
    }
    return 0;
}

/* Whether the bytes lie in one live allocation. starts and ends are those of pyshmem.memory.allocator. */
INTERNAL int is_live(const view_t *v, uint64_t address, uint64_t nbytes) {
    long long offset = (long long)(address - v->base);
    Py_ssize_t low = 0, high = PyList_Size(v->starts);
    while (high - low > 1) {
        Py_ssize_t middle = (low + high) / 2;
        if (PyLong_AsLongLong(PyList_GetItem(v->starts, middle)) <= offset)
            low = middle;
        else
            high = middle;
    }
    return offset + (long long)nbytes <= PyLong_AsLongLong(PyList_GetItem(v->ends, low));
}

/* Translates an address of this PE to pe, and returns the route there. Returns NULL without an exception if there is
 * none, or if pe is no int: a dictionary finds 1.0 and True where it has 1. */
static PyObject *move_to(const view_t *v, PyObject *pe, uint64_t *address) {
    int64_t delta;
    PyObject *number = as_int(pe);
    if (!number) return NULL;
    PyObject *route = v->near, *found = PyDict_GetItemWithError(v->deltas, number);
    if (!found && !PyErr_Occurred()) {
        route = v->far;
        found = PyDict_GetItemWithError(v->far_deltas, number);
    }
    Py_DECREF(number);
    if (!found || !to_i64(found, &delta)) {
        PyErr_Clear();
        return NULL;
    }
    *address += (uint64_t)delta;
    return route;
}

/* Whether both are plain tensors of one type, in a kind of memory that has a heap. */
INTERNAL int pair_of_one_kind(PyObject *views, PyObject *const *arrays, operand_t *dest, operand_t *source, view_t *v) {
    view_t other;
    return read_plain(views, arrays[0], dest) && read_plain(views, arrays[1], source) && dest->code == source->code &&
           dest->item == source->item && find_view(views, dest, v) && find_view(views, source, &other) &&
           v->heap == other.heap && !is_lazily_negated(arrays[0], dest) && !is_lazily_negated(arrays[1], source);
}

static int plain_pair(PyObject *views, PyObject *const *arrays, operand_t *dest, operand_t *source, view_t *v) {
    return pair_of_one_kind(views, arrays, dest, source, v) && !dest->is_read_only &&
           is_live(v, dest->address, dest->nbytes) && is_live(v, source->address, source->nbytes);
}

/* What locate and locate_word have found last in this thread, for an event of events.c. found: 1 for data, whose
 * address here is `data`, 2 for a word, whose place is in bytes from its heap's start. wants_located: whether somebody
 * reads it. */
INTERNAL int wants_located;
INTERNAL _Thread_local located_t located;

static PyObject *tuple_of(PyObject *heap, int n, const uint64_t *values) {
    PyObject *result = PyTuple_New(n + 1);
    if (!result) return NULL;
    Py_INCREF(heap);
    PyTuple_SetItem(result, 0, heap);
    for (int i = 0; result && i < n; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(values[i]);
        if (!value || PyTuple_SetItem(result, i + 1, value)) Py_CLEAR(result);
    }
    return result;
}

/* Whether pyshmem.memory.arguments.KINDS has the operand's type: not complex32, nor types after float8_e5m2fnuz. */
static int has_kind(const operand_t *t) { return t->code < 14 && (t->code != DL_COMPLEX || t->item >= 8); }

/* Whether a copy between two arrays is one of one type, in one kind of memory. into: whether it writes to private. */
static int fits(const operand_t *symmetric, const operand_t *private, PyObject *array, int into) {
    return symmetric->code == private->code && symmetric->item == private->item &&
           symmetric->device_type == private->device_type && symmetric->device == private->device &&
           !is_lazily_negated(array, private) && !(into && private->is_read_only);
}

static void found_data(const view_t *v, PyObject *route, uint64_t data, uint64_t nbytes) {
    if (route != v->heap) count_call(route == v->far, nbytes);
    if (wants_located) located.nbytes = nbytes, located.data = data, located.far = route == v->far, located.found |= 1;
}

static PyObject *located_sides(PyObject *const *args, Py_ssize_t n, int into) {
    view_t v;
    operand_t symmetric, private;
    if (!read_plain(args[0], args[1], &symmetric) || !read_plain(args[0], args[2], &private)) Py_RETURN_NONE;
    uint64_t nbytes = private.nbytes, count;
    if (args[3] != Py_None) {
        if (!to_count(args[3], &count) || count == 0 || count > private.nbytes / private.item) Py_RETURN_NONE;
        nbytes = count * private.item;
    }
    if (nbytes > symmetric.nbytes || !fits(&symmetric, &private, args[2], into)) Py_RETURN_NONE;
    if (!find_view(args[0], &symmetric, &v) || !is_live(&v, symmetric.address, nbytes)) Py_RETURN_NONE;
    PyObject *route = n == 5 ? move_to(&v, args[4], &symmetric.address) : v.heap;
    if (!route) Py_RETURN_NONE;
    found_data(&v, route, private.address, nbytes);
    return tuple_of(route, 3, (uint64_t[]){symmetric.address, private.address, nbytes});
}

/* locate(views, symmetric, private, size[, pe]) -> (heap, address of symmetric on this PE, address of private, bytes);
 * with pe (route, address of symmetric on pe, ...). Returns None unless both are plain, large enough, of one type and
 * in one kind of memory, symmetric is live and there is a route to pe: the caller then takes the slow path, which finds
 * any error. */
static PyObject *py_locate(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    return n == 4 || arity("locate", n, 5) ? located_sides(args, n, 0) : NULL;
}

/* locate_into(views, symmetric, private, size, pe): as locate, for a call that writes to private. */
static PyObject *py_locate_into(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    return arity("locate_into", n, 5) ? located_sides(args, n, 1) : NULL;
}

/* Whether an array of so many elements holds count blocks, each at one step from the last. */
static int holds_blocks(uint64_t nelems, uint64_t step, uint64_t block, uint64_t count) {
    return block <= nelems && step && (count - 1) <= (nelems - block) / step;
}

/* locate_strided(views, symmetric, private, step, own step, block, count, pe, into) -> (route, address of symmetric on
 * pe, address of private, step, own step, block, count), with steps and blocks in bytes; if into, for a get, with the
 * private address and step before the symmetric ones. The arguments are in elements. count: of blocks; None for all of
 * the source at its step. Returns None as locate does, and if the blocks of the target overlap. */
static PyObject *py_locate_strided(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    view_t v;
    operand_t symmetric, private;
    uint64_t step, own, block, count;
    if (!arity("locate_strided", n, 9)) return NULL;
    int into = args[8] == Py_True;
    if (!read_plain(args[0], args[1], &symmetric) || !read_plain(args[0], args[2], &private) ||
        !to_count(args[3], &step) || !to_count(args[4], &own) || !to_count(args[5], &block) || !step || !own ||
        !block || !fits(&symmetric, &private, args[2], into))
        Py_RETURN_NONE;
    uint64_t item = private.item, room = symmetric.nbytes / item, length = private.nbytes / item;
    if (args[6] == Py_None)
        count = into ? (room - 1) / step + 1 : (length - 1) / own + 1;
    else if (!to_count(args[6], &count) || !count)
        Py_RETURN_NONE;
    if ((into ? own : step) < block || !holds_blocks(room, step, block, count) ||
        !holds_blocks(length, own, block, count))
        Py_RETURN_NONE;
    if (count == 1) step = own = block; /* they may be of any size then */
    uint64_t span = ((count - 1) * step + block) * item;
    if (!find_view(args[0], &symmetric, &v) || !is_live(&v, symmetric.address, span)) Py_RETURN_NONE;
    PyObject *route = move_to(&v, args[7], &symmetric.address);
    if (!route) Py_RETURN_NONE;
    found_data(&v, route, private.address, count * block * item);
    step *= item, own *= item, block *= item;
    return tuple_of(route, 6,
                    into ? (uint64_t[]){private.address, symmetric.address, own, step, block, count}
                         : (uint64_t[]){symmetric.address, private.address, step, own, block, count});
}

/* locate_word(views, target[, pe]) -> (heap, address on this PE, kind); with pe (route, address on pe, kind). Returns
 * None unless target is a plain, live tensor of one aligned element. kind is DLPack's type code * 16 + bytes. */
static PyObject *py_locate_word(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    view_t v;
    operand_t symmetric;
    if (n != 2 && !arity("locate_word", n, 3)) return NULL;
    if (!read_plain(args[0], args[1], &symmetric) || symmetric.nbytes != symmetric.item || !has_kind(&symmetric))
        Py_RETURN_NONE;
    if (symmetric.address % (symmetric.item < 8 ? symmetric.item : 8)) Py_RETURN_NONE;
    if (!find_view(args[0], &symmetric, &v) || !is_live(&v, symmetric.address, symmetric.nbytes)) Py_RETURN_NONE;
    uint64_t here = symmetric.address;
    PyObject *route = n == 3 ? move_to(&v, args[2], &symmetric.address) : v.heap;
    if (!route) Py_RETURN_NONE;
    if (n == 3) count_call(route == v.far, symmetric.item);
    if (wants_located) {
        if (!located.found) located.nbytes = symmetric.item;
        located.place = here - v.base, located.on_gpu = symmetric.device_type != ON_CPU;
        located.far = route == v.far, located.found |= 2;
    }
    return tuple_of(route, 2, (uint64_t[]){symmetric.address, symmetric.code * UINT64_C(16) + symmetric.item});
}

/* locate_pair(views, target, source) -> (heap, address of target, address of source, elements of target, elements of
 * source, kind) if plain_pair holds, else None. kind is that of locate_word. */
static PyObject *py_locate_pair(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    view_t v;
    operand_t dest, source;
    if (!arity("locate_pair", n, 3)) return NULL;
    if (!plain_pair(args[0], args + 1, &dest, &source, &v) || !has_kind(&dest)) Py_RETURN_NONE;
    return Py_BuildValue("OKKKKK", v.heap, dest.address, source.address, dest.nbytes / dest.item,
                         source.nbytes / source.item, dest.code * UINT64_C(16) + dest.item);
}

/* plain_array(views, array) -> (heap, address, elements, kind) of a plain array, symmetric or not, in a kind of memory
 * that has a heap, else None. kind is that of locate_word. */
static PyObject *py_plain_array(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    view_t v;
    operand_t own;
    if (!arity("plain_array", n, 2)) return NULL;
    if (!read_plain(args[0], args[1], &own) || !has_kind(&own) || !find_view(args[0], &own, &v) ||
        is_lazily_negated(args[1], &own))
        Py_RETURN_NONE;
    return tuple_of(v.heap, 3, (uint64_t[]){own.address, own.nbytes / own.item, own.code * UINT64_C(16) + own.item});
}

INTERNAL PyMethodDef *locating_methods(void) {
    static PyMethodDef all[] = {METHOD(locate),      METHOD(locate_into), METHOD(locate_strided),
                                METHOD(locate_word), METHOD(locate_pair), METHOD(plain_array),
                                LAST_METHOD};
    return all;
}
