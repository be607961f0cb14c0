#include "fabric.h"

#include "methods.h"

#include <errno.h>
#include <stdlib.h>

static int no_fabric(const char *why) {
    PyErr_SetString(PyExc_OSError, why);
    return 0;
}

/* fabric_providers(path) -> (major, minor, names) of the library there, of providers with what is needed here. */
static PyObject *py_fabric_providers(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    struct fi_info *found = NULL;
    if (!arity("fabric_providers", n, 1)) return NULL;
    const char *path = PyUnicode_AsUTF8AndSize(args[0], NULL);
    if (!path || (!libfabric_load(path) && !no_fabric("no libfabric from 1.9 on can be loaded"))) return NULL;
    PyObject *names = PyList_New(0);
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = fabric_offers(NULL, NULL, 0, 0, &found);
    Py_END_ALLOW_THREADS
    for (struct fi_info *each = code ? NULL : found; names && each; each = each->next) {
        PyObject *name = PyUnicode_FromString(each->fabric_attr->prov_name);
        if (!name || PyList_Append(names, name)) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    if (found) libfabric.freeinfo(found);
    return names ? Py_BuildValue("(IIN)", libfabric.version() >> 16, libfabric.version() & 0xffff, names) : NULL;
}

/* fabric_open(path, provider, node, order, hmem) -> (order, addresses, key, base): registers the heap of the running
 * service. node: the address of the network interface, or "". order: what pyshmem may use of what the provider
 * promises. hmem: there is a GPU heap. */
static PyObject *py_fabric_open(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    const char *text[3], *what = "";
    uint64_t order, hmem;
    if (!arity("fabric_open", n, 5) || !to_u64(args[3], &order) || !to_u64(args[4], &hmem)) return NULL;
    for (int i = 0; i < 3; i++)
        if (!(text[i] = PyUnicode_AsUTF8AndSize(args[i], NULL))) return NULL;
    if (!far || far->fabric || !libfabric_load(text[0]))
        return no_fabric("no libfabric from 1.9 on can be loaded"), NULL;
    fabric_t *f = calloc(1, sizeof *f);
    char name[2][NAME] = {{0}};
    size_t length[2] = {NAME, NAME};
    if (!f) return PyErr_NoMemory();
    pthread_mutex_init(&f->lock, NULL);
    int code;
    Py_BEGIN_ALLOW_THREADS
    code = fabric_open(f, text[1], *text[2] ? text[2] : NULL, order, hmem != 0, &what);
    for (int end = 0; end < 2 && !code; end++)
        what = "fi_getname", code = f->ep[end]->cm->getname(&f->ep[end]->fid, name[end], &length[end]);
    Py_END_ALLOW_THREADS
    if (code) {
        fabric_close(f);
        return PyErr_Format(PyExc_OSError, "%s: %s", what, libfabric.strerror(-code));
    }
    f->least = UINT64_MAX;
    uint64_t base = f->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)far->base : 0;
    far->opening = f;
    return Py_BuildValue("(Ky#y#KK)", f->order, name[TARGET], (Py_ssize_t)length[TARGET], name[ORIGIN],
                         (Py_ssize_t)length[ORIGIN], f->heap->key, base);
}

/* fabric_connect(known): known has (addresses, key, base) by PE, None for near PEs. From now on the service makes
 * progress. */
static PyObject *py_fabric_connect(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    fabric_t *f = far ? far->opening : NULL;
    if (!arity("fabric_connect", n, 1)) return NULL;
    if (!f) return no_fabric("no fabric is open"), NULL;
    if (!(f->remotes = calloc((size_t)far->n_pes, sizeof *f->remotes))) return PyErr_NoMemory();
    for (int pe = 0; pe < far->n_pes; pe++) {
        PyObject *known = PyTuple_GetItem(args[0], pe);
        const char *address[2];
        Py_ssize_t length[2];
        unsigned long long key, base;
        if (!known || (known != Py_None && !PyArg_ParseTuple(known, "y#y#KK", &address[0], &length[0], &address[1],
                                                             &length[1], &key, &base)))
            return NULL;
        if (known != Py_None && !fabric_know(f, pe, address, key, base))
            return no_fabric("an address is refused"), NULL;
    }
    errno = fabric_serve(f);
    if (errno) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

/* fabric_use(least, trial, messaging): puts and gets of at least so many bytes go by the fabric, and requests if
 * messaging; those so far have been executed. trial: the self-test goes on. After one that has failed, the links are
 * used without the fabric. */
static PyObject *py_fabric_use(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t least, trial, messaging;
    if (!arity("fabric_use", n, 3) || !to_u64(args[0], &least) || !to_u64(args[1], &trial) ||
        !to_u64(args[2], &messaging))
        return NULL;
    if (far && far->fabric) fabric_use(far->fabric, least, trial != 0, messaging != 0);
    Py_RETURN_NONE;
}

INTERNAL PyMethodDef *fabric_methods(void) {
    static PyMethodDef all[] = {METHOD(fabric_providers), METHOD(fabric_open), METHOD(fabric_connect),
                                METHOD(fabric_use), LAST_METHOD};
    return all;
}

/* fabric_register_gpu(heap, offset, nbytes, iface, device) -> (key, base): registers a part of the GPU heap. iface: of
 * libfabric; 0 is CPU memory. fabric_admit_gpu shows it to calls. */
static PyObject *py_fabric_register_gpu(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t a[6];
    fabric_t *f = far ? far->fabric : NULL;
    if (!words_of("fabric_register_gpu", args, n, 5, a)) return NULL;
    if (!f || (a[3] && !f->hmem)) return no_fabric("the provider takes no GPU memory (FI_HMEM)"), NULL;
    int code = region_prepare(f, a[0], &(region_t){.offset = a[1], .nbytes = a[2]}, a[3], a[4]);
    if (code) return PyErr_Format(PyExc_OSError, "fi_mr_regattr: %s", libfabric.strerror(-code));
    uint64_t base = f->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? a[0] + a[1] : 0;
    return Py_BuildValue("(KK)", f->next.mr[TARGET]->key, base);
}

/* fabric_admit_gpu(known): puts and gets use the part registered last. known: (key, base) by PE. With None it and all
 * others are forgotten. No call is under way. */
static PyObject *py_fabric_admit_gpu(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    fabric_t *f = far ? far->fabric : NULL;
    if (!arity("fabric_admit_gpu", n, 1) || !f) return NULL;
    if (args[0] == Py_None) {
        region_forget(&f->next), regions_forget(f);
        Py_RETURN_NONE;
    }
    /* the table stays where it is: the proxy may look for a part meanwhile */
    if (!f->regions && !(f->regions = calloc(PARTS, sizeof *f->regions))) return PyErr_NoMemory();
    if (f->n_regions == PARTS) return no_fabric("the heap has too many parts"), NULL;
    region_t *r = &f->next;
    r->keys = calloc((size_t)far->n_pes, sizeof *r->keys), r->bases = calloc((size_t)far->n_pes, sizeof *r->bases);
    if (!r->keys || !r->bases) return PyErr_NoMemory();
    for (int pe = 0; pe < far->n_pes; pe++) {
        PyObject *known = PyTuple_GetItem(args[0], pe);
        if (!known || !PyArg_ParseTuple(known, "KK", &r->keys[pe], &r->bases[pe])) return NULL;
    }
    region_admit(f);
    Py_RETURN_NONE;
}

/* fabric_takes(address, place, nbytes) -> whether a put or a get goes from GPU memory of this PE by the fabric */
static PyObject *py_fabric_takes(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t a[4];
    if (!words_of("fabric_takes", args, n, 3, a)) return NULL;
    fabric_t *f = rma_takes(a[1], a[2]) ? far->fabric : NULL;
    return PyBool_FromLong(f && region_of(f, (char *)a[0], 1) && region_of(f, (char *)a[0] + a[2] - 1, 1));
}

INTERNAL PyMethodDef *fabric_gpu_methods(void) {
    static PyMethodDef all[] = {METHOD(fabric_register_gpu), METHOD(fabric_admit_gpu), METHOD(fabric_takes),
                                LAST_METHOD};
    return all;
}
