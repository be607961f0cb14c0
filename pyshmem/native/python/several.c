/* Waits for several words, and tests of them, by one native call: valid calls with plain arrays in CPU memory. */
#include "locate.h"
#include "methods.h"
#include "waits.h"

/* What a call asks of its words. With EACH every word is compared with a value of its own. */
enum { ALL, ANY, SOME, EACH = 4 };

/* words: of a type, which `values` has too: one value, or with `each` as many. status: not 0 ignores a word; NULL: none
 * is ignored. Both are copies, because the program may change its own during a wait. */
typedef struct {
    char *words, *values;
    int32_t *status;
    uint64_t count, included, item;
    uint8_t code;
    int cmp, each;
} several_t;

#define SEVERAL(X) X(int32, DL_INT) X(uint32, DL_UINT) X(int64, DL_INT) X(uint64, DL_UINT)

static const int opposites[] = {NE, EQ, LE, LT, GE, GT};

/* The first word from `start` on, cyclically from `first` more, of which the comparison holds, or -1. */
static int64_t find(const several_t *s, int cmp, uint64_t start, uint64_t first) {
    int64_t found = -1;
    const int32_t *status = s->status ? s->status + start : NULL;
    uint64_t count = s->count - start, own = s->each ? start : 0;
#define FIND_IN(T, CODE)                             \
    if (s->code == CODE && s->item == sizeof(T##_t)) \
        found = find_##T((T##_t *)s->words + start, count, cmp, (T##_t *)s->values + own, s->each, status, first);
    SEVERAL(FIND_IN)
    return found < 0 ? -1 : (int64_t)start + found;
}

/* Each read_... returns 0, with an exception or without, if the arguments need the slow path. */

static int read_value(const several_t *s, PyObject *o, uint64_t i) {
    PyObject *number = o ? as_int(o) : NULL;
    int done = 0;
#define READ_AS(T, CODE) \
    if (number && s->code == CODE && s->item == sizeof(T##_t)) done = to_##T(number, (T##_t *)s->values + i);
    SEVERAL(READ_AS)
    Py_XDECREF(number);
    return done;
}

static int is_sequence(PyObject *o) { return PyList_CheckExact(o) || PyTuple_CheckExact(o); }

static PyObject *element(PyObject *o, uint64_t i) {
    return PyList_CheckExact(o) ? PyList_GetItem(o, (Py_ssize_t)i) : PyTuple_GetItem(o, (Py_ssize_t)i);
}

static int read_values(PyObject *views, const several_t *s, PyObject *o) {
    operand_t t;
    if (!s->each) return read_value(s, o, 0);
    if (is_sequence(o)) {
        uint64_t i = 0;
        if ((uint64_t)PySequence_Size(o) != s->count) return 0;
        while (i < s->count && read_value(s, element(o, i), i)) i++;
        return i == s->count;
    }
    if (!read_plain(views, o, &t) || t.device_type != ON_CPU || t.code != s->code || t.item != s->item ||
        t.nbytes != s->count * s->item)
        return 0;
    memcpy(s->values, (void *)t.address, t.nbytes);
    return 1;
}

static int read_status(PyObject *views, several_t *s, PyObject *o) {
    operand_t t;
    s->included = s->count;
    if (o == Py_None) return 1;
    int is_list = is_sequence(o);
    if (is_list ? (uint64_t)PySequence_Size(o) != s->count
                : !read_plain(views, o, &t) || t.device_type != ON_CPU || t.nbytes != s->count * t.item ||
                      (t.code != DL_INT && t.code != DL_UINT && t.code != DL_BOOL))
        return 0;
    s->status = (int32_t *)(s->values + s->item * (s->each ? s->count : 1));
    for (uint64_t i = 0; i < s->count; i++) {
        uint64_t bits = 0;
        if (!is_list) {
            memcpy(&bits, (char *)t.address + i * t.item, t.item);
        } else {
            PyObject *ignored = element(o, i);
            if (!ignored || !PyLong_Check(ignored)) return 0;
            bits = (uint64_t)PyObject_IsTrue(ignored);
        }
        s->status[i] = bits != 0;
        s->included -= bits != 0;
    }
    return 1;
}

static int read_words(PyObject *views, several_t *s, PyObject *o) {
    operand_t t;
    view_t v;
    if (!read_plain(views, o, &t) || t.device_type != ON_CPU || (t.code != DL_INT && t.code != DL_UINT) || t.item < 4 ||
        t.address % t.item || !find_view(views, &t, &v) || !is_live(&v, t.address, t.nbytes))
        return 0;
    s->words = (char *)t.address, s->count = t.nbytes / t.item, s->item = t.item, s->code = t.code;
    return 1;
}

/* args: as for several. The caller frees the values. */
static int read_several(PyObject *const *args, int64_t what, several_t *s) {
    PyObject *code = PyDict_GetItemWithError(args[1], args[4]);
    if (!code || !to_int32(code, &s->cmp) || !read_words(args[0], s, args[3])) return 0;
    s->each = (what & EACH) != 0;
    s->values = PyMem_Malloc((s->each ? s->count : 1) * s->item + s->count * sizeof *s->status);
    return s->values && read_values(args[0], s, args[5]) && read_status(args[0], s, args[6]);
}

/* Looks once: whether what is asked does not hold yet. at: for ALL the first word that has not been seen to hold, else
 * a word that holds, or -1. */
static int is_open(const several_t *s, int64_t what, int64_t *at) {
    if (what != ALL) {
        *at = find(s, s->cmp, 0, next_first(s->count));
        return *at < 0;
    }
    *at = find(s, opposites[s->cmp], (uint64_t)*at, 0);
    return *at >= 0;
}

/* The words of which the comparison holds. seen: one of which it has held. */
static PyObject *places_of(const several_t *s, int64_t seen) {
    PyObject *places = PyList_New(0);
    for (int64_t from = 0, at; places && from < (int64_t)s->count; from = at + 1) {
        at = find(s, s->cmp, (uint64_t)from, 0);
        if (seen >= from && (at < 0 || at > seen)) at = seen;
        if (at < 0) break;
        PyObject *place = PyLong_FromLongLong(at);
        if (!place || PyList_Append(places, place)) Py_CLEAR(places);
        Py_XDECREF(place);
    }
    return places;
}

static PyObject *answer(const several_t *s, int64_t what, int64_t at, int waits) {
    if (what == ALL) return waits ? Py_NewRef(Py_None) : PyBool_FromLong(at < 0);
    if (what == ANY) return at < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(at);
    return at < 0 ? PyList_New(0) : places_of(s, at);
}

/* Waits until what is asked holds. Returns whether it does; else there is an exception. */
static int wait_for(const several_t *s, int64_t what, int64_t *at, double timeout, uint64_t spins) {
    spin_t spin = spin_begin(timeout, spins);
    PyThreadState *released;
    spin_without_gil(&spin, &released);
    while (is_open(s, what, at) && spin_pause(&spin)) {}
    spin_end(&spin);
    PyEval_RestoreThread(released);
    if (spin.failed == 1) {
        PyObject *place = PyLong_FromLongLong(*at);
        if (place) PyErr_SetObject(PyExc_TimeoutError, place);
        Py_XDECREF(place);
    }
    return !spin.failed;
}

/* several(views, comparisons, what, ivars, cmp, value, status[, timeout, spins]) -> what wait_until_all, ... return
 * with a time-out, test_all, ... without; NotImplemented if the arguments need the slow path. comparisons: the number
 * of each cmp. TimeoutError has the place of the word of ALL that has not been seen to hold, or -1. */
static PyObject *py_several(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    several_t s = {0};
    int64_t what, at = 0;
    double timeout = 0;
    uint64_t spins = 0;
    int waits = n == 9;
    if ((!waits && !arity("several", n, 7)) || !to_i64(args[2], &what)) return NULL;
    if (waits && (!to_f64(args[7], &timeout) || !to_u64(args[8], &spins))) return NULL;
    PyObject *found = NULL;
    if (!read_several(args, what, &s)) {
        PyErr_Clear();
        found = Py_NewRef(Py_NotImplemented);
    } else {
        what &= ~(int64_t)EACH;
        if (!is_open(&s, what, &at) || !waits || !s.included || wait_for(&s, what, &at, timeout, spins))
            found = answer(&s, what, at, waits);
    }
    PyMem_Free(s.values);
    return found;
}

INTERNAL PyMethodDef *several_methods(void) {
    static PyMethodDef all[] = {METHOD(several), LAST_METHOD};
    return all;
}
