/* The memory of pools: parts of symmetric heaps, from which torch allocates while its locks are held, so without the
 * GIL. The same calls give the same addresses on all PEs: the first gap that is large enough is taken. */
#pragma once
#include <pthread.h>

#include "_tensors.h"

enum { POOL_CPU, POOL_GPU, POOL_STALE, POOL_UNIT = 512 };

/* A block of a pool. The list is sorted by address; free blocks of one region are never neighbours. `region` is where
 * the region begins. Blocks whose pool has ended while tensors held them are POOL_STALE, until these die. */
typedef struct pool_block {
    struct pool_block *next;
    uint64_t start, size, region;
    int kind, used;
} pool_block_t;
static struct {
    pthread_mutex_t lock;
    pool_block_t *first;
} pool = {PTHREAD_MUTEX_INITIALIZER, NULL};

/* Returns the address of `size` bytes of a pool, or NULL. */
static void *pool_take(int64_t size, int kind) {
    uint64_t wanted = ((uint64_t)(size > 0 ? size : 1) + POOL_UNIT - 1) / POOL_UNIT * POOL_UNIT;
    pthread_mutex_lock(&pool.lock);
    pool_block_t *b = pool.first, *rest;
    while (b && (b->kind != kind || b->used || b->size < wanted)) b = b->next;
    if (b && b->size > wanted && (rest = malloc(sizeof *rest))) {
        *rest = (pool_block_t){b->next, b->start + wanted, b->size - wanted, b->region, kind, 0};
        b->next = rest;
        b->size = wanted;
    }
    if (b) b->used = 1;
    pthread_mutex_unlock(&pool.lock);
    return b ? (void *)b->start : NULL;
}

static int are_one(const pool_block_t *a, const pool_block_t *b) {
    return a && b && !a->used && !b->used && a->kind == b->kind && a->region == b->region;
}

static void unite(pool_block_t *a) {
    pool_block_t *b = a->next;
    a->size += b->size;
    a->next = b->next;
    free(b);
}

/* The block at this address is free again. A stale one goes first: its pool has ended. */
static void pool_give(uint64_t start) {
    pthread_mutex_lock(&pool.lock);
    pool_block_t **link = &pool.first, **found = NULL, *before = NULL, *previous = NULL;
    for (; *link; previous = *link, link = &(*link)->next)
        if ((*link)->start == start && (*link)->used && (!found || (*link)->kind == POOL_STALE)) {
            found = link;
            before = previous;
        }
    if (found && (*found)->kind == POOL_STALE) {
        pool_block_t *gone = *found;
        *found = gone->next;
        free(gone);
    } else if (found) {
        pool_block_t *b = *found;
        b->used = 0;
        if (are_one(b, b->next)) unite(b);
        if (are_one(before, b)) unite(before);
    }
    pthread_mutex_unlock(&pool.lock);
}

/* What torch calls for its pool of GPU memory. It passes sizes that it has rounded. */
__attribute__((visibility("default"))) void *pyshmem_pool_take(ptrdiff_t size, int device, void *stream);
void *pyshmem_pool_take(ptrdiff_t size, int device, void *stream) {
    (void)device, (void)stream;
    return pool_take(size, POOL_GPU);
}
__attribute__((visibility("default"))) void pyshmem_pool_give(void *start, ptrdiff_t size, int device, void *stream);
void pyshmem_pool_give(void *start, ptrdiff_t size, int device, void *stream) {
    (void)size, (void)device, (void)stream;
    pool_give((uint64_t)start);
}

/* pool_add(address, bytes, kind): this memory belongs to the pool of this kind from now on. */
static PyObject *py_pool_add(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t start, size;
    int32_t kind;
    if (!arity("pool_add", n, 3) || !to_u64(args[0], &start) || !to_u64(args[1], &size) || !to_int32(args[2], &kind))
        return NULL;
    pool_block_t *b = malloc(sizeof *b), **link = &pool.first;
    if (!b) return PyErr_NoMemory();
    pthread_mutex_lock(&pool.lock);
    while (*link && (*link)->start < start) link = &(*link)->next;
    *b = (pool_block_t){*link, start, size / POOL_UNIT * POOL_UNIT, start, kind, 0};
    *link = b;
    pthread_mutex_unlock(&pool.lock);
    Py_RETURN_NONE;
}

/* pool_end(): no pool has memory any more. */
static PyObject *py_pool_end(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    pthread_mutex_lock(&pool.lock);
    for (pool_block_t **link = &pool.first; *link;) {
        pool_block_t *b = *link;
        b->kind = POOL_STALE;
        if (b->used) {
            link = &b->next;
            continue;
        }
        *link = b->next;
        free(b);
    }
    pthread_mutex_unlock(&pool.lock);
    Py_RETURN_NONE;
}

/* pool_blocks(kind) -> [(address, bytes), ...] of the blocks that are used, sorted. A collection of garbage, which any
 * new object may begin, may free blocks: so none is made with the lock. */
static PyObject *py_pool_blocks(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    int32_t kind;
    if (!arity("pool_blocks", n, 1) || !to_int32(args[0], &kind)) return NULL;
    size_t count = 0, room = 0;
    pthread_mutex_lock(&pool.lock);
    for (pool_block_t *b = pool.first; b; b = b->next) room++;
    uint64_t (*found)[2] = malloc((room + 1) * sizeof *found);
    for (pool_block_t *b = found ? pool.first : NULL; b; b = b->next)
        if (b->used && b->kind == kind) found[count][0] = b->start, found[count++][1] = b->size;
    pthread_mutex_unlock(&pool.lock);
    PyObject *result = found ? PyList_New((Py_ssize_t)count) : PyErr_NoMemory();
    for (size_t i = 0; result && i < count; i++) {
        PyObject *row = Py_BuildValue("KK", found[i][0], found[i][1]);
        if (!row || PyList_SetItem(result, (Py_ssize_t)i, row)) Py_CLEAR(result);
    }
    free(found);
    return result;
}

static void drop_pooled(void *managed) {
    pool_give((uint64_t)((dl_managed_t *)managed)->tensor.data);
    free(managed);
}
static void drop_pooled_capsule(PyObject *o) {
    if (PyCapsule_IsValid(o, "dltensor")) drop_pooled(PyCapsule_GetPointer(o, "dltensor"));
}

/* pool_tensor(bytes) -> a DLPack capsule of a uint8 tensor in the pool of CPU memory, which gives its memory back when
 * it dies; None if there is no room. */
static PyObject *py_pool_tensor(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    int64_t nbytes;
    if (!arity("pool_tensor", n, 1) || !to_i64(args[0], &nbytes)) return NULL;
    dl_managed_t *m = calloc(1, sizeof *m);
    if (!m) return PyErr_NoMemory();
    m->extent = nbytes;
    m->tensor = (dl_tensor_t){pool_take(nbytes, POOL_CPU), 1, 0, 1, DL_UINT, 8, 1, &m->extent, NULL, 0};
    m->deleter = drop_pooled;
    if (m->tensor.data) return PyCapsule_New(m, "dltensor", drop_pooled_capsule);
    free(m);
    Py_RETURN_NONE;
}

static PyMethodDef pool_methods[] = {METHOD(pool_add), METHOD_NO_ARGUMENTS(pool_end), METHOD(pool_blocks),
                                     METHOD(pool_tensor), LAST_METHOD};
