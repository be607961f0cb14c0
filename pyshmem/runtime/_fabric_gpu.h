/* Registration of GPU heaps with a fabric, part by part, so that puts and gets of far PEs go to them without a stop in
 * CPU memory. libfabric takes a dma-buf of the memory where the driver offers one. */
#pragma once
#include "_fabric_opening.h"
#include "_far_methods.h"

enum { PARTS = 8192 }; /* the most of a heap, which grows by 64 MiB or more */

static int register_part(fabric_t *f, region_t *r, uint64_t iface, uint64_t device, int side) {
    struct iovec v = {(char *)f->gpu + r->offset, r->nbytes};
    uint64_t key[2], access = FI_READ | FI_WRITE | (side == TARGET ? FI_REMOTE_READ | FI_REMOTE_WRITE : 0);
    size_t bytes = f->info->domain_attr->mr_key_size;
    if (fresh_nonce(key)) return -errno;
    if (bytes < 8) key[0] &= (UINT64_C(1) << 8 * bytes) - 1;
    struct {
        struct fi_mr_attr attributes;
        uint64_t later[8]; /* fields of later versions */
    } about = {.attributes = {.mr_iov = &v,
                              .iov_count = 1,
                              .access = access,
                              .requested_key = key[0],
                              .iface = (int)iface,
                              .device = device}};
    int code = f->domain->mr->regattr(&f->domain->fid, &about.attributes, 0, &r->mr[side]);
    if (code || !(f->info->domain_attr->mr_mode & FI_MR_ENDPOINT)) return code;
    struct fid *mr = &r->mr[side]->fid;
    code = mr->ops->bind(mr, &f->ep[side]->fid, 0);
    return code ? code : mr->ops->control(mr, FI_ENABLE, NULL);
}

/* fabric_register_gpu(heap, offset, nbytes, iface, device) -> (key, base): registers a part of the GPU heap. iface: of
 * libfabric; 0 is CPU memory. fabric_admit_gpu shows it to calls. */
static PyObject *py_fabric_register_gpu(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t a[6];
    fabric_t *f = far ? far->fabric : NULL;
    if (!words_of("fabric_register_gpu", args, n, 5, a)) return NULL;
    if (!f || (a[3] && !f->hmem)) return no_fabric("the provider takes no GPU memory (FI_HMEM)"), NULL;
    int bound = (f->info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
    forget_region(&f->next);
    f->gpu = a[0], f->next = (region_t){.offset = a[1], .nbytes = a[2]};
    int code = register_part(f, &f->next, a[3], a[4], TARGET);
    if (!code && bound) code = register_part(f, &f->next, a[3], a[4], ORIGIN);
    if (!bound) f->next.mr[ORIGIN] = f->next.mr[TARGET];
    if (code) {
        forget_region(&f->next);
        return PyErr_Format(PyExc_OSError, "fi_mr_regattr: %s", libfabric.strerror(-code));
    }
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
        forget_region(&f->next), forget_regions(f);
        Py_RETURN_NONE;
    }
    /* the proxy may look for a part meanwhile, so the table stays where it is */
    if (!f->regions && !(f->regions = calloc(PARTS, sizeof *f->regions))) return PyErr_NoMemory();
    if (f->n_regions == PARTS) return no_fabric("the heap has too many parts"), NULL;
    region_t *r = &f->next;
    r->keys = calloc((size_t)far->n_pes, sizeof *r->keys), r->bases = calloc((size_t)far->n_pes, sizeof *r->bases);
    if (!r->keys || !r->bases) return PyErr_NoMemory();
    for (int pe = 0; pe < far->n_pes; pe++) {
        PyObject *known = PyTuple_GetItem(args[0], pe);
        if (!known || !PyArg_ParseTuple(known, "KK", &r->keys[pe], &r->bases[pe])) return NULL;
    }
    f->regions[f->n_regions] = *r, *r = (region_t){0};
    __atomic_store_n(&f->n_regions, f->n_regions + 1, __ATOMIC_RELEASE);
    Py_RETURN_NONE;
}

/* fabric_takes(address, place, nbytes) -> whether a put or a get goes from GPU memory of this PE by the fabric */
static PyObject *py_fabric_takes(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t a[4];
    if (!words_of("fabric_takes", args, n, 3, a)) return NULL;
    fabric_t *f = by_fabric(a[1], a[2]) ? far->fabric : NULL;
    return PyBool_FromLong(f && own_region(f, (char *)a[0], 1) && own_region(f, (char *)a[0] + a[2] - 1, 1));
}

static PyMethodDef fabric_gpu_methods[] = {METHOD(fabric_register_gpu), METHOD(fabric_admit_gpu), METHOD(fabric_takes),
                                           LAST_METHOD};
