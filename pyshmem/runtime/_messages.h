/* Messages of MPI, which carry the data of large puts and gets between nodes or, with PYSHMEM_FAR=mpi, also all
 * requests and replies.
 *
 * MPI moves nothing unless a thread polls. The functions are those of the library that mpi4py has loaded. A handle is
 * passed as a word, whatever type the library gives it. Messages are received from a named PE, or matched by a probe:
 * MPICH over UCX loses messages for which a receive from any source waits. */
#pragma once
#include "_conversions.h"

enum { MESSAGE = 1 << 22 }; /* the most bytes of a message */
enum {
    RECEIVE,
    SEND,
    SEND_SYNCHRONOUS
}; /* how a message begins; a synchronous one ends when its receiver has taken it */

typedef int begin_message_t(const void *, int, uintptr_t, int, int, uintptr_t, void *);

static struct {
    begin_message_t *begin[3]; /* MPI_Irecv, MPI_Isend, MPI_Issend */
    int (*test)(void *, int *, void *);
    int (*improbe)(int, int, uintptr_t, int *, void *, void *);
    int (*mrecv)(void *, int, uintptr_t, void *, void *);
    int (*barrier)(uintptr_t);
    uintptr_t byte, comm;
    int any_source, me;
    int open;       /* whether there are messages at all */
    uint64_t least; /* bytes of a put or a get of this PE whose data go as messages of their own; 0: none do */
} mpi;

typedef struct {
    uint64_t request[2];
    uint64_t nbytes;
} message_t; /* nbytes: 0 if none is under way */
typedef struct {
    uint64_t words[16];
} status_t; /* larger than that of any library */

static int is_large(uint64_t nbytes) { return mpi.least && nbytes >= mpi.least; }

/* Begins to send a message to a PE, or to receive one from it. Messages of one tag between two PEs keep their order.
 * Returns 0, or -1 for a failure. */
static int message_begin(message_t *m, int how, void *data, uint64_t nbytes, int pe, int tag) {
    memset(m, 0, sizeof *m);
    m->nbytes = nbytes;
    return mpi.begin[how](data, (int)nbytes, mpi.byte, pe, tag, mpi.comm, m->request) ? -1 : 0;
}

/* Returns 1 if the message has ended, 0 if not, -1 for a failure. */
static int message_ended(message_t *m) {
    status_t status;
    int ended = 0;
    return mpi.test(m->request, &ended, &status) ? -1 : ended != 0;
}

/* Receives a message of at most `most` bytes. Returns 1 if one has come, 0 if not, -1 for a failure. */
static int message_take(void *data, int most, int pe, int tag) {
    status_t status;
    uint64_t message = 0;
    int here = 0;
    if (mpi.improbe(pe, tag, mpi.comm, &here, &message, &status)) return -1;
    if (here && mpi.mrecv(data, most, mpi.byte, &message, &status)) return -1;
    return here != 0;
}

/* far_messages(irecv, isend, issend, test, improbe, mrecv, barrier, byte, comm, any_source, my_pe): from now on there
 * are messages. Without arguments: there are none. */
static PyObject *py_far_messages(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t number[9];
    memset(&mpi, 0, sizeof mpi);
    if (!n) Py_RETURN_NONE;
    if (!arity("far_messages", n, 11) || !to_int32(args[9], &mpi.any_source) || !to_int32(args[10], &mpi.me))
        return NULL;
    for (int i = 0; i < 9; i++)
        if (!to_u64(args[i], &number[i])) return NULL;
    memcpy(mpi.begin, number, sizeof mpi.begin), memcpy(&mpi.test, &number[3], sizeof mpi.test);
    memcpy(&mpi.improbe, &number[4], sizeof mpi.improbe), memcpy(&mpi.mrecv, &number[5], sizeof mpi.mrecv);
    memcpy(&mpi.barrier, &number[6], sizeof mpi.barrier);
    mpi.byte = number[7], mpi.comm = number[8], mpi.open = 1;
    Py_RETURN_NONE;
}

/* far_use_messages(least): the fewest bytes of a put or a get of this PE whose data go as messages of their own; 0:
 * none do. */
static PyObject *py_far_use_messages(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    if (!arity("far_use_messages", n, 1) || !to_u64(args[0], &mpi.least)) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef message_methods[] = {METHOD(far_messages), METHOD(far_use_messages), LAST_METHOD};
