/* Messages of MPI, which carry the data of large puts and gets between nodes if PYSHMEM_FAR selects that. _native.c includes this file.
 *
 * Requests and replies go over TCP, which wakes the service of the target; so MPI is polled only while data travel. The functions
 * are those of the library that mpi4py has loaded, and a handle is a word, whatever the library's type of handles is. */
enum { LARGE = 1 << 16, MESSAGE = 1 << 22 }; /* the fewest bytes of a put or a get that go as messages; the most of one message */

static struct {
    int (*isend)(const void *, int, uintptr_t, int, int, uintptr_t, void *);
    int (*irecv)(void *, int, uintptr_t, int, int, uintptr_t, void *);
    int (*test)(void *, int *, void *);
    uintptr_t byte, comm;
    int open, used; /* whether there are messages at all, and whether this PE's requests use them */
} mpi;

typedef struct { uint64_t request[2]; uint64_t nbytes; } message_t; /* nbytes: 0 if none is under way */

static int is_large(uint64_t nbytes) { return mpi.used && nbytes >= LARGE; }

/* Begins to send a message to a PE, or to receive one from it. tag: the operation. Those of one operation between two PEs keep their
 * order. Returns 0, or -1 for a failure. */
static int message_begin(message_t *m, int sends, void *data, uint64_t nbytes, int pe, int tag) {
    memset(m, 0, sizeof *m);
    m->nbytes = nbytes;
    return (sends ? mpi.isend(data, (int)nbytes, mpi.byte, pe, tag, mpi.comm, m->request)
                  : mpi.irecv(data, (int)nbytes, mpi.byte, pe, tag, mpi.comm, m->request)) ? -1 : 0;
}

/* Returns 1 if the message has ended, 0 if not, -1 for a failure. */
static int message_ended(message_t *m) {
    uint64_t status[16]; /* more than any library's */
    int ended = 0;
    return mpi.test(m->request, &ended, status) ? -1 : ended != 0;
}

/* far_messages(isend, irecv, test, byte, comm): from now on the service takes and sends data by messages. With 0s: there are none. */
static PyObject *py_far_messages(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t number[5];
    if (!arity("far_messages", n, 5)) return NULL;
    for (int i = 0; i < 5; i++)
        if (!to_u64(args[i], &number[i])) return NULL;
    memcpy(&mpi.isend, &number[0], sizeof mpi.isend), memcpy(&mpi.irecv, &number[1], sizeof mpi.irecv);
    memcpy(&mpi.test, &number[2], sizeof mpi.test);
    mpi.byte = number[3], mpi.comm = number[4], mpi.open = number[0] != 0, mpi.used = 0;
    Py_RETURN_NONE;
}

/* far_use_messages(on): whether the data of this PE's large requests go as messages. */
static PyObject *py_far_use_messages(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t on;
    if (!arity("far_use_messages", n, 1) || !to_u64(args[0], &on)) return NULL;
    mpi.used = mpi.open && on;
    Py_RETURN_NONE;
}
