/* Python's methods of the atomics (base/word.h), and their tables, which Python, the kernels too, reads from
 * _native.ATOMICS. */
#include "../base/word.h"
#include "methods.h"

/* ---- methods: <operator>_<type>(address[, cond][, value]) -> what seq_<operator>_<type> returns ---- */

#define ATOMIC(OP, N, T, B)                                                                         \
    static PyObject *py_##OP##_##T(PyObject *self, PyObject *const *args, Py_ssize_t n) {           \
        (void)self;                                                                                 \
        uint64_t addr;                                                                              \
        T##_t v = 0, cond = 0;                                                                      \
        if (!arity(#OP "_" #T, n, N) || !to_u64(args[0], &addr)) return NULL;                       \
        if ((N > 2 && !to_##T(args[1], &cond)) || (N > 1 && !to_##T(args[N - 1], &v))) return NULL; \
        return from_##T(seq_##OP##_##T((B##_t *)addr, v, cond));                                    \
    }
#define ATOMICS_OF_NUMBER(T, B) OF_NUMBERS(ATOMIC, T, B)
#define ATOMICS_OF_INTEGER(T, B) OF_INTEGERS(ATOMIC, T, B)
ATOMIC_TYPES(ATOMICS_OF_NUMBER)
INTEGERS(ATOMICS_OF_INTEGER)

#define METHOD_OF(OP, N, T) METHOD(OP##_##T),
#define METHODS_OF_NUMBER(T, B) OF_NUMBERS(METHOD_OF, T)
#define METHODS_OF_INTEGER(T, B) OF_INTEGERS(METHOD_OF, T)
INTERNAL PyMethodDef *atomic_methods(void) {
    static PyMethodDef all[] = {ATOMIC_TYPES(METHODS_OF_NUMBER) INTEGERS(METHODS_OF_INTEGER) LAST_METHOD};
    return all;
}

#define NAME_OF_TYPE(T, B) #T,
static const char *const names_of_numbers[] = {ATOMIC_TYPES(NAME_OF_TYPE) NULL};
static const char *const names_of_integers[] = {INTEGERS(NAME_OF_TYPE) NULL};
#define ROW_OF_OPERATOR(OP, N, TYPE_NAMES) {#OP, TYPE_NAMES},
static const struct {
    const char *name;
    const char *const *types;
} operator_rows[] = {OF_NUMBERS(ROW_OF_OPERATOR, names_of_numbers) OF_INTEGERS(ROW_OF_OPERATOR, names_of_integers)};

/* Adds ATOMICS to the module: by operator the types that it is defined for, both in the order of their numbers. */
INTERNAL int export_atomics(PyObject *module) {
    PyObject *table = PyDict_New();
    int failed = !table;
    for (int i = 0; i < OP_COUNT && !failed; i++)
        failed = add_names(table, operator_rows[i].name, operator_rows[i].types);
    failed = failed || PyModule_AddObjectRef(module, "ATOMICS", table);
    Py_XDECREF(table);
    return failed ? -1 : 0;
}
