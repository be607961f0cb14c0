#include "launch.h"

#include "../team/streamed.h"

#include "methods.h"
#include "teams.h"

/* forget_errors(hipGetLastError): from now on each call here whose code is not 0 calls it. */
static PyObject *py_forget_errors(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t function;
    if (!arity("forget_errors", n, 1) || !to_u64(args[0], &function)) return NULL;
    forget_error = (int (*)(void))function;
    Py_RETURN_NONE;
}

/* enqueue(function, dest, source, bytes, direction, stream) -> the code of cuMemcpyAsync, if direction is negative, or
 * of hipMemcpyAsync, which takes a direction. A call from here takes 1 us less than through ctypes. */
static PyObject *py_enqueue(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t function, dest, source, nbytes, stream;
    int32_t direction;
    if (!arity("enqueue", n, 6) || !to_u64(args[0], &function) || !to_u64(args[1], &dest) ||
        !to_u64(args[2], &source) || !to_u64(args[3], &nbytes) || !to_int32(args[4], &direction) ||
        !to_u64(args[5], &stream))
        return NULL;
    int code;
    Py_BEGIN_ALLOW_THREADS /* the call may wait for a full queue or for the staging of pageable memory */
    if (direction < 0)
        code = ((int (*)(uint64_t, uint64_t, size_t, void *))function)(dest, source, nbytes, (void *)stream);
    else
        code = ((int (*)(void *, void *, size_t, int, void *))function)((void *)dest, (void *)source, nbytes, direction,
                                                                        (void *)stream);
    handled(code);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(code);
}

/* The function that copier returns. It calls `otherwise` for a thread's first copy, and for a copy that the driver
 * refuses. */
enum { COPY_FUNCTION, COPY_CURRENT, COPY_DEVICE, COPY_STREAMS, COPY_OTHERWISE, COPY_NUMBER };
static _Thread_local uint64_t copier_entered;

static PyObject *copy_on_stream(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    uint64_t function, dest, source, nbytes, number, stream;
    if (!arity("copy", n, 3) || !to_u64(args[0], &dest) || !to_u64(args[1], &source) || !to_u64(args[2], &nbytes) ||
        !to_u64(PyTuple_GetItem(self, COPY_FUNCTION), &function) ||
        !to_u64(PyTuple_GetItem(self, COPY_NUMBER), &number))
        return NULL;
    if (copier_entered == number) {
        PyObject *streams = PyTuple_GetItem(self, COPY_STREAMS);
        PyObject *current =
            PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, COPY_CURRENT), PyTuple_GetItem(self, COPY_DEVICE), NULL);
        if (!current) return NULL;
        int known = PySet_Contains(streams, current);
        int failed = known < 0 || (!known && PySet_Add(streams, current)) || !to_u64(current, &stream);
        Py_DECREF(current);
        if (failed) return NULL;
        int code;
        Py_BEGIN_ALLOW_THREADS
        code = ((int (*)(uint64_t, uint64_t, size_t, void *))function)(dest, source, nbytes, (void *)stream);
        Py_END_ALLOW_THREADS
        if (!code) Py_RETURN_NONE;
    }
    PyObject *done =
        PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, COPY_OTHERWISE), args[0], args[1], args[2], NULL);
    if (done) copier_entered = number;
    return done;
}

/* copier(cuMemcpyAsync, current_stream, device, streams, otherwise) -> copy(dest, source, bytes), which copies on
 * current_stream(device) and adds this stream to streams. In Python this would take a tenth more time for a small put.
 */
static PyObject *py_copier(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    static PyMethodDef method = {"copy", (PyCFunction)(void (*)(void))copy_on_stream, METH_FASTCALL, NULL};
    static uint64_t copiers;
    if (!arity("copier", n, COPY_NUMBER)) return NULL;
    PyObject *number = PyLong_FromUnsignedLongLong(++copiers);
    PyObject *state =
        number ? PyTuple_Pack(COPY_NUMBER + 1, args[0], args[1], args[2], args[3], args[4], number) : NULL;
    Py_XDECREF(number);
    PyObject *copy = state ? PyCFunction_New(&method, state) : NULL;
    Py_XDECREF(state);
    return copy;
}

INTERNAL PyObject *enqueue_kernel(const uint64_t *head, uint64_t stream, uint64_t *words) {
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = start_kernel(head, stream, words);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(code);
}

/* Reads the HEAD and the words of a plan, which `more` words will follow. Returns the number of words read; -1: an
 * exception. */
static Py_ssize_t read_plan(PyObject *bytes, Py_ssize_t more, uint64_t *head, uint64_t *words) {
    char *plan;
    Py_ssize_t held;
    if (PyBytes_AsStringAndSize(bytes, &plan, &held)) return -1;
    held = held / 8 - HEAD;
    if (held < 0 || held + more > MOST_WORDS) {
        PyErr_Format(PyExc_TypeError, "a launch takes up to %d words", MOST_WORDS);
        return -1;
    }
    memcpy(head, plan, HEAD * sizeof *head);
    memcpy(words, plan + HEAD * sizeof *head, (size_t)held * 8);
    return held;
}

/* launch_prepared(plan, stream, *words) -> the code of cuLaunchKernel, cuLaunchKernelEx or hipModuleLaunchKernel. plan:
 * bytes of uint64, which are HEAD and the first words; the words of this call follow them. Each word holds a parameter
 * in its low bytes. A plan saves the creation of Python objects for arguments that never change. */
static PyObject *py_launch_prepared(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t head[HEAD], words[MOST_WORDS + 4] = {0}, stream;
    if (n < 2) {
        PyErr_SetString(PyExc_TypeError, "launch_prepared takes bytes, a stream and words");
        return NULL;
    }
    Py_ssize_t held = read_plan(args[0], n - 2, head, words);
    if (held < 0 || !to_u64(args[1], &stream)) return NULL;
    for (Py_ssize_t i = 2; i < n; i++) words[held + i - 2] = PyLong_AsUnsignedLongLongMask(args[i]);
    return PyErr_Occurred() ? NULL : enqueue_kernel(head, stream, words);
}

/* launch_graph(function, graph, stream) -> the code of cuGraphLaunch or hipGraphLaunch. torch's replay takes twice the
 * time. */
static PyObject *py_launch_graph(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t function, graph, stream;
    if (!arity("launch_graph", n, 3) || !to_u64(args[0], &function) || !to_u64(args[1], &graph) ||
        !to_u64(args[2], &stream))
        return NULL;
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = handled(((int (*)(void *, void *))function)((void *)graph, (void *)stream));
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(code);
}

/* launch_pair(views, plans, asked, team, heap, stream, target, source, private) -> the result of launch_prepared if
 * plans contains the key of the call, or that of compare_on_stream if it is negative; otherwise the key, or None if the
 * arrays are no plain pair in that heap. private: whether other memory of that heap's device will do. The key consists
 * of asked, of the sizes, type and alignment of the arrays, of their distance if they overlap, and of which of them is
 * symmetric. plans: by key, (a plan of launch_prepared, the words that follow the two addresses, the word of the call).
 */
static PyObject *py_launch_pair(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    view_t view;
    operand_t dest, source;
    uint64_t head[HEAD], words[MOST_WORDS + 4] = {0}, stream, word;
    if (!arity("launch_pair", n, 9) || !to_members(args[3], &t) || !to_u64(args[5], &stream)) return NULL;
    if (!pair_of_one_kind(args[0], args + 6, &dest, &source, &view) || view.heap != args[4]) Py_RETURN_NONE;
    uint64_t symmetric = 2 * is_live(&view, dest.address, dest.nbytes) + is_live(&view, source.address, source.nbytes);
    if (symmetric != 3 && args[8] != Py_True) Py_RETURN_NONE;
    int overlap = dest.address < source.address + source.nbytes && source.address < dest.address + dest.nbytes;
    uint64_t shape[] = {dest.nbytes,
                        source.nbytes,
                        dest.code * UINT64_C(16) + dest.item,
                        (dest.address | source.address) & 15,
                        overlap ? source.address - dest.address : UINT64_MAX,
                        symmetric};
    PyObject *bytes = PyBytes_FromStringAndSize((char *)shape, sizeof shape);
    PyObject *key = bytes ? PyTuple_Pack(2, args[2], bytes) : NULL;
    Py_XDECREF(bytes);
    if (!key) return NULL;
    PyObject *found = PyDict_GetItemWithError(args[1], key);
    if (!found && !PyErr_Occurred()) return key;
    Py_DECREF(key);
    PyObject *counts = found ? PyTuple_GetItem(found, 1) : NULL;
    Py_ssize_t more = counts ? PyTuple_Size(counts) : -1;
    Py_ssize_t held = more < 0 ? -1 : read_plan(PyTuple_GetItem(found, 0), 2 + more, head, words);
    if (held < 0 || !to_u64(PyTuple_GetItem(found, 2), &word)) return NULL;
    words[held++] = dest.address;
    words[held++] = source.address;
    for (Py_ssize_t i = 0; i < more; i++) words[held + i] = PyLong_AsUnsignedLongLongMask(PyTuple_GetItem(counts, i));
    if (PyErr_Occurred()) return NULL;
    int64_t other = streamed_differs(&t, word);
    return other ? PyLong_FromLongLong(other) : enqueue_kernel(head, stream, words);
}

INTERNAL PyMethodDef *launch_methods(void) {
    static PyMethodDef all[] = {METHOD(enqueue),      METHOD(copier),      METHOD(launch_prepared),
                                METHOD(launch_graph), METHOD(launch_pair), METHOD(forget_errors),
                                LAST_METHOD};
    return all;
}
