/* pyshmem.runtime._native: operations on CPU memory that Python lacks (atomics, waits that release the GIL,
 * collectives, requests to other nodes), and calls of the GPU driver. Each part is a header of one purpose, which lists
 * its own methods; this is the module. */
#include "_conversions.h" /* Python.h comes before all headers of the system */

#include "_atomics.h"
#include "_barriers.h"
#include "_blocks.h"
#include "_collectives.h"
#include "_events.h"
#include "_exit.h"
#include "_fabric.h"
#include "_fabric_gpu.h"
#include "_fabric_opening.h"
#include "_far_gpu.h"
#include "_far_methods.h"
#include "_kernel_calls.h"
#include "_launch.h"
#include "_library.h"
#include "_locating.h"
#include "_near.h"
#include "_opening.h"
#include "_pool.h"
#include "_proxy.h"
#include "_quick.h"
#include "_reductions.h"
#include "_service.h"
#include "_several.h"
#include "_streamed.h"
#include "_tensors.h"
#include "_waits.h"

static PyMethodDef *const parts[] = {
    atomic_methods,     wait_methods,       locating_methods,   copy_methods,       tensor_methods, team_methods,
    collective_methods, reduction_methods,  quick_methods,      far_atomic_methods, far_methods,    fabric_methods,
    service_methods,    fabric_gpu_methods, far_gpu_methods,    proxy_methods,      launch_methods, kernel_call_methods,
    exit_methods,       library_methods,    streamed_methods,   event_methods,      pool_methods,   block_methods,
    several_methods,    broken_methods,     difference_methods,
};

static int fill(PyObject *module) {
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (PyModule_AddFunctions(module, parts[i])) return -1;
    return export_atomics(module) || export_reductions(module) ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};
static PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Atomics, waits, collectives and requests on memory, by address.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
