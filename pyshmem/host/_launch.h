/* Copies and kernels that are handed to the driver: part of _native.c. */

/* enqueue(function, dest, source, bytes, direction, stream) -> the code of cuMemcpyAsync, or of hipMemcpyAsync, which takes a
 * direction where that is not negative. Called from here it costs 1 us less than through ctypes. */
static PyObject *py_enqueue(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t function, dest, source, nbytes, stream;
    int32_t direction;
    if (!arity("enqueue", n, 6) || !to_u64(args[0], &function) || !to_u64(args[1], &dest) || !to_u64(args[2], &source) ||
        !to_u64(args[3], &nbytes) || !to_int32(args[4], &direction) || !to_u64(args[5], &stream))
        return NULL;
    int code;
    Py_BEGIN_ALLOW_THREADS /* it may wait: for a full queue, or to stage pageable memory */
    if (direction < 0) code = ((int (*)(uint64_t, uint64_t, size_t, void *))function)(dest, source, nbytes, (void *)stream);
    else code = ((int (*)(void *, void *, size_t, int, void *))function)((void *)dest, (void *)source, nbytes, direction, (void *)stream);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(code);
}

/* The copy that copier makes; a thread's first call goes the other way, as does what the driver refuses. */
enum { COPY_FUNCTION, COPY_CURRENT, COPY_DEVICE, COPY_STREAMS, COPY_OTHERWISE, COPY_NUMBER };
static _Thread_local uint64_t copier_entered;

static PyObject *copy_on_stream(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    uint64_t function, dest, source, nbytes, number, stream;
    if (!arity("copy", n, 3) || !to_u64(args[0], &dest) || !to_u64(args[1], &source) || !to_u64(args[2], &nbytes) ||
        !to_u64(PyTuple_GetItem(self, COPY_FUNCTION), &function) || !to_u64(PyTuple_GetItem(self, COPY_NUMBER), &number))
        return NULL;
    if (copier_entered == number) {
        PyObject *streams = PyTuple_GetItem(self, COPY_STREAMS);
        PyObject *current = PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, COPY_CURRENT), PyTuple_GetItem(self, COPY_DEVICE), NULL);
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
    PyObject *done = PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, COPY_OTHERWISE), args[0], args[1], args[2], NULL);
    if (done) copier_entered = number;
    return done;
}

/* copier(cuMemcpyAsync, current_stream, device, streams, otherwise) -> copy(dest, source, bytes), on current_stream(device), which
 * becomes one of streams. It saves what Python needs for that: a tenth of a small put. */
static PyObject *py_copier(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    static PyMethodDef method = {"copy", (PyCFunction)(void (*)(void))copy_on_stream, METH_FASTCALL, NULL};
    static uint64_t copiers;
    if (!arity("copier", n, COPY_NUMBER)) return NULL;
    PyObject *number = PyLong_FromUnsignedLongLong(++copiers);
    PyObject *state = number ? PyTuple_Pack(COPY_NUMBER + 1, args[0], args[1], args[2], args[3], args[4], number) : NULL;
    Py_XDECREF(number);
    PyObject *copy = state ? PyCFunction_New(&method, state) : NULL;
    Py_XDECREF(state);
    return copy;
}

enum { MOST_WORDS = 64 };

/* head: as launch's first seven arguments. */
static PyObject *enqueue_kernel(const uint64_t *head, uint64_t stream, void **parameters) {
    int (*call)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    call = (__typeof__(call))head[0];
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = call((void *)head[1], (unsigned)head[2], (unsigned)head[3], (unsigned)head[4], (unsigned)head[5], 1, 1, (unsigned)head[6],
                (void *)stream, parameters, NULL);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(code);
}

/* launch(function, kernel, x, y, z, threads, shared bytes, stream, *words) -> the code of cuLaunchKernel or
 * hipModuleLaunchKernel. Each word holds one parameter in its low bytes; zeros follow, for what Triton appends. */
static PyObject *py_launch(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t head[8], words[MOST_WORDS + 4] = {0};
    void *parameters[MOST_WORDS + 4];
    if (n < 8 || n > 8 + MOST_WORDS) { PyErr_Format(PyExc_TypeError, "launch takes 8 to %d arguments", 8 + MOST_WORDS); return NULL; }
    for (Py_ssize_t i = 0; i < n; i++) *(i < 8 ? &head[i] : &words[i - 8]) = PyLong_AsUnsignedLongLongMask(args[i]);
    if (PyErr_Occurred()) return NULL;
    for (int i = 0; i < MOST_WORDS + 4; i++) parameters[i] = &words[i];
    return enqueue_kernel(head, head[7], parameters);
}

/* launch_prepared(plan, stream, *words) -> as launch. plan: bytes of uint64: launch's first seven arguments, then words, which
 * those given here follow. So that a launch makes no Python object of what never changes. */
static PyObject *py_launch_prepared(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    enum { HEAD = 7 };
    uint64_t words[MOST_WORDS + 4] = {0}, stream;
    void *parameters[MOST_WORDS + 4];
    char *plan;
    Py_ssize_t held;
    if (n < 2) { PyErr_SetString(PyExc_TypeError, "launch_prepared takes bytes, a stream and words"); return NULL; }
    if (PyBytes_AsStringAndSize(args[0], &plan, &held)) return NULL;
    held = held / 8 - HEAD;
    if (held < 0 || held + n - 2 > MOST_WORDS) { PyErr_Format(PyExc_TypeError, "launch_prepared takes up to %d words", MOST_WORDS); return NULL; }
    if (!to_u64(args[1], &stream)) return NULL;
    uint64_t head[HEAD];
    memcpy(head, plan, sizeof head);
    memcpy(words, plan + sizeof head, (size_t)held * 8);
    for (Py_ssize_t i = 2; i < n; i++) words[held + i - 2] = PyLong_AsUnsignedLongLongMask(args[i]);
    if (PyErr_Occurred()) return NULL;
    for (int i = 0; i < MOST_WORDS + 4; i++) parameters[i] = &words[i];
    return enqueue_kernel(head, stream, parameters);
}
