/* Events of a timeline: the calls of Python, into a file of trace/file.h.
 *
 * recorded makes the function that records the calls of another one; without open events it only calls it. Events are
 * taken with the GIL. */
#include "../trace/carried.h"
#include "locate.h"
#include "methods.h"
#include "ranges.h"

/* The arguments of a call that say what it does, by their places and names; a place below 0 is none. */
enum { ARG_PE, ARG_ARRAY, ARG_SIZE, ARG_WORD, ARG_VALUE, ARG_OP, ARG_CTX, ARG_TEAM, N_ARGS };
enum { MOST_ACCESSED = 12 };

/* The arrays that a call reads, then those that it writes, as far as it is known; results: whether it writes what it
 * returns. */
typedef struct {
    PyObject *names[MOST_ACCESSED];
    Py_ssize_t places[MOST_ACCESSED];
    int n_read, n, results, sized;
} accesses_t;

typedef struct {
    PyMethodDef method;
    PyObject *call, *names[N_ARGS], *comparisons;
    Py_ssize_t places[N_ARGS];
    accesses_t accesses;
    uint32_t name;
    uint8_t op;
    int needs; /* of `located`, which then says what the call did; 0: its arguments say it, before the call */
} recorded_t;

/* The arguments of a call, as CPython passes them: `n` by their places, then those that `names` names. */
typedef struct {
    PyObject *const *all;
    Py_ssize_t n;
    PyObject *names;
} arguments_t;

static PyObject *argument_at(Py_ssize_t place, PyObject *name, const arguments_t *a) {
    if (place < 0) return NULL;
    PyObject *found = place < a->n ? a->all[place] : NULL;
    for (Py_ssize_t i = 0; place >= a->n && a->names && i < PyTuple_Size(a->names); i++)
        if (PyUnicode_Compare(PyTuple_GetItem(a->names, i), name) == 0) found = a->all[a->n + i];
    return found == Py_None ? NULL : found;
}

static PyObject *argument(const recorded_t *c, int which, const arguments_t *a) {
    return argument_at(c->places[which], c->names[which], a);
}

static int64_t whole(PyObject *o, int64_t otherwise) {
    int64_t value = o && PyIndex_Check(o) ? (int64_t)PyLong_AsUnsignedLongLongMask(o) : otherwise;
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return otherwise;
    }
    return value;
}

static int64_t attribute(PyObject *o, const char *name, int64_t otherwise) {
    PyObject *found = PyObject_GetAttrString(o, name);
    int64_t value = whole(found, otherwise);
    Py_XDECREF(found);
    PyErr_Clear();
    return value;
}

/* The bytes of an array of any library, or of its first elements. */
static uint64_t bytes_of(PyObject *array, PyObject *size) {
    operand_t t;
    if (read_plain(recording.views, array, &t)) return size ? (uint64_t)whole(size, 0) * t.item : t.nbytes;
    return size ? (uint64_t)(whole(size, 0) * attribute(array, "itemsize", 0))
                : (uint64_t)attribute(array, "nbytes", 0);
}

enum { MOST_LOOKS = 100 }; /* at a word that others write all the time */

static int64_t value_of(const operand_t *t) {
    return t->item == 8         ? *(volatile int64_t *)t->address
           : t->code == DL_UINT ? (int64_t)*(volatile uint32_t *)t->address
                                : (int64_t)*(volatile int32_t *)t->address;
}

/* Begins a wait: notes what the word is at that time. What is written later ends after it, also if the system has taken
 * the core in between. */
static void look_at(event_t *e, const operand_t *t) {
    int looks = 0;
    do {
        e->before = value_of(t);
        e->begin = now_ns();
    } while (value_of(t) != e->before && ++looks < MOST_LOOKS);
    e->flags |= EVENT_BEFORE;
}

/* The word that a call writes or waits for. */
static void describe_word(event_t *e, PyObject *array, int waits) {
    operand_t t;
    view_t v;
    if (!read_plain(recording.views, array, &t) || !find_view(recording.views, &t, &v)) return;
    e->place = t.address - v.base;
    e->flags |= EVENT_WORD | (t.device_type == 1 ? 0 : EVENT_ON_GPU);
    if (!e->nbytes) e->nbytes = t.nbytes;
    if (waits && t.device_type == 1 && t.nbytes == t.item && t.item >= 4) look_at(e, &t);
}

/* The PE in the world, and whether it is far. */
static void describe_pe(event_t *e, PyObject *pe, PyObject *ctx) {
    PyObject *first = PyList_GetItem(recording.views, 0), *away = first ? PyTuple_GetItem(first, 10) : NULL;
    PyObject *team = ctx ? PyObject_GetAttrString(ctx, "team") : NULL;
    int64_t number = whole(pe, -1);
    if (team && number >= 0) number = attribute(team, "start", 0) + number * attribute(team, "stride", 1);
    Py_XDECREF(team);
    PyErr_Clear();
    e->pe = (int32_t)number;
    PyObject *key = PyLong_FromLongLong(number);
    if (away && key && PyDict_GetItemWithError(away, key)) e->flags |= EVENT_FAR;
    Py_XDECREF(key);
    PyErr_Clear();
}

static void describe_call(const recorded_t *c, event_t *e, const arguments_t *a) {
    PyObject *o[N_ARGS];
    for (int i = 0; i < N_ARGS; i++) o[i] = argument(c, i, a);
    e->op = c->op;
    if (o[ARG_ARRAY]) e->nbytes = bytes_of(o[ARG_ARRAY], o[ARG_SIZE]);
    if (o[ARG_PE]) describe_pe(e, o[ARG_PE], o[ARG_CTX]);
    e->value = whole(o[ARG_VALUE], 1);
    if (c->op == OP_MEET && o[ARG_TEAM])
        e->place = (uint64_t)attribute(o[ARG_TEAM], "start", 0) << 42 |
                   (uint64_t)attribute(o[ARG_TEAM], "stride", 0) << 21 | (uint64_t)attribute(o[ARG_TEAM], "size", 0);
    if (c->op == OP_SET && o[ARG_OP]) e->op = whole(o[ARG_OP], 0) == 1 ? OP_ADD : OP_SET;
    if (c->op == OP_WAITS && o[ARG_OP]) {
        PyObject *number = PyDict_GetItemWithError(c->comparisons, o[ARG_OP]);
        e->op = (uint8_t)(OP_WAITS + whole(number, 0));
    }
    if (o[ARG_WORD]) describe_word(e, o[ARG_WORD], c->op >= OP_WAITS); /* last: it looks at a word that others write */
    PyErr_Clear();                                                     /* what is wrong is for the call itself to say */
}

/* As describe_call, but for the data and the word: those that `located` knows after the call. */
static void describe_briefly(const recorded_t *c, event_t *e, const arguments_t *a) {
    PyObject *pe = argument(c, ARG_PE, a);
    e->op = c->op;
    if (pe) e->pe = (int32_t)whole(pe, -1);
    e->value = 1;
    if (c->op == OP_NONE) return;
    e->value = whole(argument(c, ARG_VALUE, a), 1);
    PyObject *op = c->op == OP_SET ? argument(c, ARG_OP, a) : NULL;
    if (op) e->op = whole(op, 0) == 1 ? OP_ADD : OP_SET;
}

static void describe_located(const recorded_t *c, event_t *e) {
    e->nbytes = located.nbytes;
    if (located.far) e->flags |= EVENT_FAR;
    if (c->needs < 2) return;
    e->place = located.place;
    e->flags |= EVENT_WORD | (located.on_gpu ? EVENT_ON_GPU : 0);
}

/* Part of the stable ABI from Python 3.12 on; 3.11 has it, too. */
PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *) __attribute__((weak));

static PyObject *call_on(PyObject *call, const arguments_t *a) {
    if (PyObject_Vectorcall) return PyObject_Vectorcall(call, a->all, (size_t)a->n, a->names);
    PyObject *args = PyTuple_New(a->n), *options = a->names ? PyDict_New() : NULL, *result = NULL;
    for (Py_ssize_t i = 0; args && i < a->n; i++) Py_INCREF(a->all[i]), PyTuple_SetItem(args, i, a->all[i]);
    for (Py_ssize_t i = 0; options && i < PyTuple_Size(a->names); i++)
        if (PyDict_SetItem(options, PyTuple_GetItem(a->names, i), a->all[a->n + i])) Py_CLEAR(args);
    if (args && (options || !a->names)) result = PyObject_Call(call, args, options);
    Py_XDECREF(args);
    Py_XDECREF(options);
    return result;
}

/* found: the address of the data of a put or get, whose bytes the event has; 0 if it is not known. */
static void note_accesses(const recorded_t *c, const event_t *e, const arguments_t *a, PyObject *result,
                          uint64_t found) {
    const accesses_t *accesses = &c->accesses;
    if (accesses->sized == SIZE_OF_DATA && (found || e->nbytes < LEAST_RANGE)) {
        note_range(e, accesses->n_read ? OP_READS : OP_WRITES, found, e->nbytes);
        return;
    }
    PyObject *size = argument(c, ARG_SIZE, a);
    if (size && accesses->sized == SIZE_OF_PARTS) return;
    uint64_t most = size && accesses->sized == SIZE_OF_DATA ? e->nbytes : UINT64_MAX;
    for (int i = 0; i < accesses->n; i++) {
        PyObject *o = argument_at(accesses->places[i], accesses->names[i], a);
        if (o) note_argument(e, i < accesses->n_read ? OP_READS : OP_WRITES, o, most);
    }
    if (accesses->results) note_result(e, result, a->all, a->n + (a->names ? PyTuple_Size(a->names) : 0));
    PyErr_Clear();
}

static PyObject *run_recorded(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    const recorded_t *c = PyCapsule_GetPointer(self, "pyshmem.recorded");
    const arguments_t a = {args, n, names};
    event_t *e = events_next(&recording.file, c->name);
    if (!e) return call_on(c->call, &a);
    int brief = c->needs && !argument(c, ARG_CTX, &a);
    if (brief)
        describe_briefly(c, e, &a);
    else
        describe_call(c, e, &a);
    int opening = recording.openings;
    sent_t outer = sent;
    located.found = 0;
    sent.pe = NONE_SENT;
    if (!(e->flags & EVENT_BEFORE)) e->begin = now_ns();
    PyObject *result = call_on(c->call, &a);
    sent_t own = sent;
    sent = outer;
    if (!recording.file.head || recording.openings != opening) return result; /* the call has ended the recording */
    e->end = now_ns();
    if (!result) e->flags |= EVENT_FAILED;
    uint64_t data = 0;
    if (brief && result && located.found && located.found >= c->needs) {
        describe_located(c, e);
        data = located.data;
    } else if (brief) { /* arrays of other libraries, strided copies, errors */
        PyObject *kind, *error, *trace;
        PyErr_Fetch(&kind, &error, &trace);
        describe_call(c, e, &a);
        PyErr_Restore(kind, error, trace);
    }
    if (own.pe != NONE_SENT && !(e->flags & EVENT_BEFORE)) carried_take_sent(e, own);
    if (result && (c->accesses.n || c->accesses.results)) note_accesses(c, e, &a, result, data);
    return result;
}

static void forget_recorded(PyObject *capsule) {
    recorded_t *c = PyCapsule_GetPointer(capsule, "pyshmem.recorded");
    Py_XDECREF(c->call);
    Py_XDECREF(c->comparisons);
    for (int i = 0; i < N_ARGS; i++) Py_XDECREF(c->names[i]);
    for (int i = 0; i < MOST_ACCESSED; i++) Py_XDECREF(c->accesses.names[i]);
    PyMem_Free((void *)c->method.ml_name);
    PyMem_Free(c);
}

/* Takes (read, written, results, sized) of pyshmem.timelines.calls.accesses, where read and written are (place, name)
 * of arguments; those that have no room are not recorded. */
static int take_accesses(PyObject *given, accesses_t *into) {
    for (int written = 0; written < 2; written++) {
        PyObject *rows = PyTuple_GetItem(given, written), *name;
        for (Py_ssize_t i = 0; rows && i < PyTuple_Size(rows) && into->n < MOST_ACCESSED; i++, into->n++) {
            if (!PyArg_ParseTuple(PyTuple_GetItem(rows, i), "nO", &into->places[into->n], &name)) return 0;
            Py_INCREF(into->names[into->n] = name);
        }
        if (!written) into->n_read = into->n;
    }
    into->results = (int)whole(PyTuple_GetItem(given, 2), 0), into->sized = (int)whole(PyTuple_GetItem(given, 3), 0);
    return !PyErr_Occurred();
}

/* recorded(name, call, number, op, places, names, comparisons, accesses) -> a function that calls call and records it
 * as event `number`. places, names: of the arguments ARG_PE to ARG_TEAM. comparisons: the numbers of what a wait takes.
 * accesses: as in take_accesses. */
static PyObject *py_recorded(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint32_t op;
    if (!arity("recorded", n, 8)) return NULL;
    recorded_t *c = PyMem_Calloc(1, sizeof *c);
    if (!c) return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(c, "pyshmem.recorded", forget_recorded), *made = NULL;
    if (!capsule) return PyMem_Free(c), NULL;
    Py_ssize_t length;
    const char *name = PyUnicode_AsUTF8AndSize(args[0], &length);
    char *kept = name ? PyMem_Calloc(1, (size_t)length + 1) : NULL;
    if (!kept || !to_uint32(args[2], &c->name) || !to_uint32(args[3], &op)) goto out;
    c->op = (uint8_t)op;
    memcpy(kept, name, (size_t)length);
    c->method = (PyMethodDef){kept, (PyCFunction)(void (*)(void))run_recorded, METH_FASTCALL | METH_KEYWORDS, NULL};
    Py_INCREF(c->call = args[1]);
    Py_INCREF(c->comparisons = args[6]);
    for (int i = 0; i < N_ARGS; i++) {
        PyObject *place = PyTuple_GetItem(args[4], i), *named = PyTuple_GetItem(args[5], i);
        if (!place || !named) goto out;
        c->places[i] = (Py_ssize_t)whole(place, -1);
        Py_INCREF(c->names[i] = named);
    }
    if (!take_accesses(args[7], &c->accesses)) goto out;
    Py_ssize_t array = c->places[ARG_ARRAY], word = c->places[ARG_WORD];
    int one_sided = c->op == OP_NONE || c->op == OP_SET || c->op == OP_ADD;
    if (one_sided && c->places[ARG_PE] >= 0 && !strncmp(kept, "shmem.", 6) && !strchr(kept + 6, '.'))
        c->needs = word >= 0 ? 2 | (array >= 0 && array != word) : array >= 0;
    made = PyCFunction_NewEx(&c->method, capsule, NULL);
out:
    Py_DECREF(capsule);
    return made;
}

/* open_events(path, requests, most, views): record into two new files, each at most so many events: calls into that at
 * `path`, and what the service and the proxy execute. Errors: OSError. */
static PyObject *py_open_events(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t most;
    if (!arity("open_events", n, 4) || !to_u64(args[2], &most)) return NULL;
    const char *path = PyUnicode_AsUTF8AndSize(args[0], NULL), *requests = PyUnicode_AsUTF8AndSize(args[1], NULL);
    if (!path || !requests) return NULL;
    int error = events_open(&recording.file, path, most);
    if (!error && (error = carried_open(requests, most))) events_close(&recording.file), path = requests;
    if (error) {
        errno = error;
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    }
    recording.openings++;
    Py_INCREF(recording.views = args[3]);
    wants_located = 1;
    Py_RETURN_NONE;
}

/* close_events(): record no more. */
static PyObject *py_close_events(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    if (recording.file.head) {
        carried_close();
        events_close(&recording.file);
        wants_located = 0;
        forget_results();
        Py_CLEAR(recording.views);
    }
    Py_RETURN_NONE;
}

/* note_sent(pe, number): the call under way has sent this request. */
static PyObject *py_note_sent(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    int64_t pe;
    uint64_t number;
    if (!arity("note_sent", n, 2) || !to_i64(args[0], &pe) || !to_u64(args[1], &number)) return NULL;
    carried_note_sent((int)pe, number, number);
    Py_RETURN_NONE;
}

/* begin_event(name, track, pe, nbytes, flags, place, value, before, op) -> its index, -1 if there is no space. */
static PyObject *py_begin_event(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    if (!arity("begin_event", n, 9)) return NULL;
    int64_t v[9];
    for (int i = 0; i < 9; i++) v[i] = whole(args[i], 0);
    event_t *e = events_next(&recording.file, (uint32_t)v[0]);
    if (!e) return PyLong_FromLong(-1);
    e->track = (uint16_t)v[1], e->pe = (int32_t)v[2], e->nbytes = (uint64_t)v[3], e->flags = (uint8_t)v[4];
    e->place = (uint64_t)v[5], e->value = v[6], e->before = v[7], e->op = (uint8_t)v[8];
    sent.pe = NONE_SENT;
    e->begin = now_ns();
    return PyLong_FromLongLong(e - recording.file.events);
}

/* look_at(index, address, item, is_unsigned): a wait of begin_event for a word of CPU memory, of `item` bytes, begins
 * now, with what the word is. */
static PyObject *py_look_at(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    int64_t i;
    operand_t t = {0};
    if (!arity("look_at", n, 4) || !to_i64(args[0], &i) || !to_u64(args[1], &t.address) || !to_u64(args[2], &t.item))
        return NULL;
    t.code = args[3] == Py_True ? DL_UINT : DL_INT;
    if (recording.file.head && i >= 0 && (uint64_t)i < recording.file.head->room)
        look_at(&recording.file.events[i], &t);
    Py_RETURN_NONE;
}

/* end_event(index, failed): an index of begin_event since the events were opened. */
static PyObject *py_end_event(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    int64_t i;
    if (!arity("end_event", n, 2) || !to_i64(args[0], &i)) return NULL;
    const event_file_t *f = &recording.file;
    if (f->head && i >= 0 && (uint64_t)i < f->head->room) {
        event_t *e = &f->events[i];
        if (args[1] == Py_True) e->flags |= EVENT_FAILED;
        if (!(e->flags & EVENT_BEFORE) && e->op < OP_WAITS) carried_take_sent(e, sent);
        sent.pe = NONE_SENT;
        e->end = now_ns();
    }
    Py_RETURN_NONE;
}

INTERNAL PyMethodDef *event_methods(void) {
    static PyMethodDef all[] = {METHOD(recorded),  METHOD(open_events), METHOD_NO_ARGUMENTS(close_events),
                                METHOD(note_sent), METHOD(begin_event), METHOD(look_at),
                                METHOD(end_event), LAST_METHOD};
    return all;
}
