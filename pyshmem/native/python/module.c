/* The extension module _native: what each file of this folder offers Python. */
#include "conversions.h" /* Python.h comes before all headers of the system */

#include "host.h"
#include "methods.h"

#define METHODS_OF(PART) PART##_methods(),

static int fill(PyObject *module) {
    PyMethodDef *const parts[] = {PARTS(METHODS_OF)};
    host = &python_host;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (PyModule_AddFunctions(module, parts[i])) return -1;
    return export_atomics(module) || export_reductions(module) || export_layout(module) ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};
static PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Atomics, waits, collectives and requests on memory, by address.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
