/* What Python must know of the C code: numbers, and where the fields of structures are. Python has no copy of them, see
 * pyshmem.base.layout. */
#include "conversions.h" /* Python.h comes before all headers of the system */

#include <stddef.h>

#include "../base/counts.h"
#include "../base/pool.h"
#include "../base/spin.h"
#include "../far/execute.h"
#include "../far/proxy.h"
#include "../team/collectives.h"
#include "../team/interface.h"
#include "../team/reductions.h"
#include "../trace/file.h"
#include "launch.h"
#include "methods.h"
#include "ranges.h"

#define NUMBER(NAME) {#NAME, (int64_t)NAME}
static const struct {
    const char *name;
    int64_t value;
} numbers[] = {
    /* places and requests */
    NUMBER(FAR_SHIFT),
    NUMBER(FAR_GPU),
    NUMBER(CHUNK),
    NUMBER(STAGE),
    NUMBER(PROTOCOL_VERSION),
    NUMBER(PUT),
    NUMBER(GET),
    NUMBER(PUT_STRIDED),
    NUMBER(GET_STRIDED),
    NUMBER(UPDATE),
    NUMBER(FETCH),
    NUMBER(POST),
    NUMBER(FLUSH),
    NUMBER(BYE),
    /* the ring of kernels, and the record of a wait that has timed out */
    NUMBER(SLOTS),
    NUMBER(SLOT_HEAD),
    NUMBER(PIECE),
    /* comparisons */
    NUMBER(EQ),
    NUMBER(NE),
    NUMBER(GT),
    NUMBER(GE),
    NUMBER(LT),
    NUMBER(LE),
    /* calls of teams, and what they return */
    NUMBER(DONE),
    NUMBER(UNTOUCHED),
    NUMBER(STAGED),
    NUMBER(REFUSED),
    NUMBER(DIFFERENT),
    NUMBER(UNLIKE),
    NUMBER(BROKEN),
    NUMBER(WORD_BROADCAST),
    NUMBER(WORD_FCOLLECT),
    NUMBER(WORD_ALLTOALL),
    NUMBER(WORD_ALLTOALLS),
    NUMBER(WORD_COLLECT),
    NUMBER(WORD_SHARE),
    NUMBER(WORD_ALLOCATE),
    NUMBER(WORD_REALLOC),
    NUMBER(WORD_FREE),
    NUMBER(WORD_REGISTER),
    NUMBER(WORD_UNREGISTER),
    NUMBER(WORD_ALLTOALLV),
    NUMBER(WORD_FOLD),
    NUMBER(NOTE),
    NUMBER(REDUCE),
    NUMBER(INSCAN),
    NUMBER(EXSCAN),
    NUMBER(PRIVATE_TARGET),
    NUMBER(PRIVATE_SOURCE),
    NUMBER(CALL_TIMED_OUT),
    NUMBER(CALL_INTERRUPTED),
    NUMBER(CALL_NO_MEMORY),
    NUMBER(CALL_MIXED),
    NUMBER(CALL_LOST),
    NUMBER(CALL_DIFFERENT),
    NUMBER(CALL_UNLIKE),
    NUMBER(CALL_BROKEN),
    /* kernels */
    NUMBER(CONSTANT),
    NUMBER(POINTER),
    NUMBER(INTEGER),
    NUMBER(FLOAT),
    NUMBER(DOUBLE),
    NUMBER(WORDS),
    NUMBER(MOST_WORDS),
    /* pools */
    NUMBER(POOL_CPU),
    NUMBER(POOL_GPU),
    NUMBER(POOL_STALE),
    /* events */
    NUMBER(OP_NONE),
    NUMBER(OP_SET),
    NUMBER(OP_ADD),
    NUMBER(OP_MEET),
    NUMBER(OP_READS),
    NUMBER(OP_WRITES),
    NUMBER(OP_ENDS),
    NUMBER(OP_PLAN),
    NUMBER(OP_WAITS),
    NUMBER(EVENT_FAR),
    NUMBER(EVENT_FAILED),
    NUMBER(EVENT_ON_GPU),
    NUMBER(EVENT_WORD),
    NUMBER(EVENT_BEFORE),
    NUMBER(EVENT_SENT),
    NUMBER(OF_HOST),
    NUMBER(OF_KERNELS),
    NUMBER(OF_PROXY),
    NUMBER(OF_SERVICE),
    NUMBER(EVENTS_HEAD),
    NUMBER(SIZE_OF_NOTHING),
    NUMBER(SIZE_OF_DATA),
    NUMBER(SIZE_OF_PARTS),
};
/* codes of Python's struct */
#define CODE(VALUE) \
    _Generic((VALUE), int64_t: "q", uint64_t: "Q", int32_t: "i", uint32_t: "I", uint16_t: "H", uint8_t: "B", char: "s")
#define OF(TYPE) ((TYPE *)0)
#define FIELD(TYPE, NAME) {#TYPE, #NAME, offsetof(TYPE, NAME), 1, CODE(OF(TYPE)->NAME)}
#define FIELDS(TYPE, NAME) \
    {#TYPE, #NAME, offsetof(TYPE, NAME), sizeof OF(TYPE)->NAME / sizeof *OF(TYPE)->NAME, CODE(*OF(TYPE)->NAME)}
#define END(TYPE) {#TYPE, "", sizeof(TYPE), 0, "s"}
static const struct {
    const char *structure, *name;
    uint64_t offset, count;
    const char *code;
} fields[] = {
    FIELD(request_t, op),
    FIELD(request_t, asks),
    FIELD(request_t, detail),
    FIELD(request_t, offset),
    FIELD(request_t, nbytes),
    FIELD(request_t, value),
    FIELD(request_t, cond),
    END(request_t),
    FIELD(reply_t, executed),
    FIELD(reply_t, value),
    FIELD(reply_t, nbytes),
    END(reply_t),
    FIELD(slot_t, ready),
    FIELD(slot_t, done),
    FIELD(slot_t, free),
    FIELD(slot_t, op),
    FIELD(slot_t, detail),
    FIELD(slot_t, place),
    FIELD(slot_t, nbytes),
    FIELD(slot_t, value),
    FIELD(slot_t, cond),
    FIELD(slot_t, result),
    END(slot_t),
    FIELDS(activity_t, calls),
    FIELDS(activity_t, bytes),
    FIELD(activity_t, meetings),
    FIELD(activity_t, waits),
    FIELD(activity_t, waited),
    FIELD(activity_t, since),
    FIELDS(activity_t, used),
    FIELDS(activity_t, size),
    FIELD(activity_t, watched),
    FIELD(activity_t, ended),
    FIELD(activity_t, served),
    FIELD(activity_t, served_bytes),
    FIELDS(activity_t, where),
    END(activity_t),
    FIELD(events_head_t, taken),
    FIELD(events_head_t, room),
    FIELD(events_head_t, error),
    FIELD(events_head_t, closed),
    END(events_head_t),
    FIELD(event_t, begin),
    FIELD(event_t, end),
    FIELD(event_t, nbytes),
    FIELD(event_t, place),
    FIELD(event_t, value),
    FIELD(event_t, before),
    FIELD(event_t, pe),
    FIELD(event_t, name),
    FIELD(event_t, thread),
    FIELD(event_t, op),
    FIELD(event_t, flags),
    FIELD(event_t, track),
    END(event_t),
};

static int add_number(PyObject *table, const char *name, int64_t value) {
    PyObject *number = PyLong_FromLongLong(value);
    int failed = !number || PyDict_SetItemString(table, name, number);
    Py_XDECREF(number);
    return failed;
}

/* Adds NUMBERS to the module, by name, and FIELDS: (structure, field, offset, elements, code of struct) of each field,
 * in the order of their offsets; the field "" of a structure is its end. */
INTERNAL int export_layout(PyObject *module) {
    size_t n = sizeof fields / sizeof *fields;
    PyObject *named = PyDict_New(), *rows = PyTuple_New((Py_ssize_t)n);
    int failed = !named || !rows;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !failed; i++)
        failed = add_number(named, numbers[i].name, numbers[i].value);
    for (size_t i = 0; i < n && !failed; i++) {
        PyObject *row =
            Py_BuildValue("(ssKKs)", fields[i].structure, fields[i].name, (unsigned long long)fields[i].offset,
                          (unsigned long long)fields[i].count, fields[i].code);
        failed = !row || PyTuple_SetItem(rows, (Py_ssize_t)i, row);
    }
    failed = failed || PyModule_AddObjectRef(module, "NUMBERS", named) || PyModule_AddObjectRef(module, "FIELDS", rows);
    Py_XDECREF(named);
    Py_XDECREF(rows);
    return failed ? -1 : 0;
}
