#include "ranges.h"

#include "../base/spin.h"
#include "methods.h"

INTERNAL recording_t recording;

/* The memory of an array that has no gaps, in any order of its dimensions. */
static int read_dense(PyObject *o, uint64_t *address, uint64_t *nbytes) {
    dl_tensor_t t;
    if (!read_dlpack(recording.views, o, &t)) {
        uint64_t count = 0, kind = read_ndarray(o, &count);
        *address = kind ? (uint64_t)((ndarray_t *)o)->data : 0;
        *nbytes = count * (kind % NDARRAY_CODE);
        return kind != 0;
    }
    int64_t count = 1, last = 0;
    for (int32_t i = 0; i < t.ndim; i++) count *= t.shape[i], last += t.strides ? (t.shape[i] - 1) * t.strides[i] : 0;
    if (!t.strides) last = count - 1;
    if (count <= 0 || last < 0 || last >= count) return 0;
    *address = (uint64_t)t.data + t.byte_offset;
    *nbytes = (uint64_t)(last + 1) * t.bits / 8 * t.lanes;
    return 1;
}

/* Records that a call has read or written memory: as it began, or by its end. */
INTERNAL void note_range(const event_t *call, uint8_t op, uint64_t address, uint64_t nbytes) {
    event_t *e = nbytes >= LEAST_RANGE ? events_next(&recording.file, call->name) : NULL;
    if (!e) return;
    e->op = op, e->place = address, e->nbytes = nbytes, e->begin = call->begin;
    e->end = op == OP_READS ? call->begin : call->end;
}

/* Records the arrays of an argument: one, or several in a tuple or a list. most: bytes of one. */
INTERNAL void note_argument(const event_t *call, uint8_t op, PyObject *o, uint64_t most) {
    uint64_t address, nbytes;
    if (PyTuple_Check(o) || PyList_Check(o)) {
        for (Py_ssize_t i = 0, n = PySequence_Size(o); i < n; i++) {
            PyObject *each = PySequence_GetItem(o, i);
            if (each && !PyTuple_Check(each) && !PyList_Check(each)) note_argument(call, op, each, most);
            Py_XDECREF(each);
        }
    } else if (read_dense(o, &address, &nbytes)) {
        note_range(call, op, address, nbytes < most ? nbytes : most);
    }
}
/* Results that live, by weak references; one that has no room is not recorded. */
enum { MOST_RESULTS = 4096 };
static struct {
    int n;
    struct {
        PyObject *reference;
        uint64_t address, nbytes;
    } all[MOST_RESULTS];
} results;

/* A result has ended: what is written to its memory from now on is not known. */
static PyObject *result_ended(PyObject *self, PyObject *reference) {
    (void)self;
    int i = results.n - 1; /* the last ones end first, mostly */
    while (i >= 0 && results.all[i].reference != reference) i--;
    event_t *e = i >= 0 ? events_next(&recording.file, 0) : NULL;
    if (e) e->op = OP_ENDS, e->place = results.all[i].address, e->nbytes = results.all[i].nbytes;
    if (e) e->begin = e->end = now_ns();
    if (i >= 0) {
        results.all[i] = results.all[--results.n];
        Py_DECREF(reference);
    }
    Py_RETURN_NONE;
}

static PyMethodDef result_ended_method = {"result_ended", result_ended, METH_O, NULL};

/* Returns whether the end of a result will be recorded. */
static int await_end(PyObject *result, uint64_t address, uint64_t nbytes) {
    static PyObject *callback;
    if (!callback) callback = PyCFunction_NewEx(&result_ended_method, NULL, NULL);
    PyObject *reference = callback && results.n < MOST_RESULTS ? PyWeakref_NewRef(result, callback) : NULL;
    if (!reference) return PyErr_Clear(), 0;
    results.all[results.n].reference = reference;
    results.all[results.n].address = address, results.all[results.n++].nbytes = nbytes;
    return 1;
}

INTERNAL void forget_results(void) {
    while (results.n) Py_DECREF(results.all[--results.n].reference);
}

/* Records the arrays that a call has returned, but for its arguments, which the caller keeps. */
INTERNAL void note_result(const event_t *call, PyObject *o, PyObject *const *arguments, Py_ssize_t n) {
    uint64_t address, nbytes;
    if (PyTuple_Check(o)) {
        for (Py_ssize_t i = 0; i < PyTuple_Size(o); i++) note_result(call, PyTuple_GetItem(o, i), arguments, n);
        return;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (arguments[i] == o) return;
    if (read_dense(o, &address, &nbytes) && nbytes >= LEAST_RANGE && await_end(o, address, nbytes))
        note_range(call, OP_WRITES, address, nbytes);
}

/* note_plan(name, nbytes): the call under way is by this plan, whose kernels read so many bytes that earlier ones of
 * the same call have written. */
static PyObject *py_note_plan(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t nbytes;
    uint32_t name;
    if (!arity("note_plan", n, 2) || !to_uint32(args[0], &name) || !to_u64(args[1], &nbytes)) return NULL;
    event_t *e = events_next(&recording.file, name);
    if (e) e->op = OP_PLAN, e->nbytes = nbytes, e->begin = e->end = now_ns();
    Py_RETURN_NONE;
}

INTERNAL PyMethodDef *range_methods(void) {
    static PyMethodDef all[] = {METHOD(note_plan), LAST_METHOD};
    return all;
}
