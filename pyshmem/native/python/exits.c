/* The end of the process: an exit handler knows the status, after Python's own clean-up. And its start beside PEs in C.
 */
#include "conversions.h" /* Python.h comes before all headers of the system */

#include <fcntl.h>

#include "../base/rendezvous.h"
#include "../base/report.h"
#include "../far/life.h"
#include "methods.h"

typedef struct {
    int (*finalize)(void);
    int (*finalized)(int *);
    int (*abort)(uintptr_t, int);
    uintptr_t world;
    pid_t pid;
    char pipe[64]; /* as in exits.tell; empty: none */
} exit_t;

/* let_read() */
static PyObject *py_let_read(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self, (void)args;
    if (!arity("let_read", n, 0)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    let_read();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* Tells pyshmemrun that this PE waits for the others in MPI_Finalize, as exits.tell does. */
static void tell_end(const exit_t *e) {
    int fd = e->pipe[0] ? open(e->pipe, O_WRONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    dprintf(fd, "ends\n");
    close(fd);
}

/* Finalises MPI after status 0. Any other status aborts the job, because other PEs could wait for this one forever. */
static void at_exit(int status, void *arg) {
    exit_t *e = arg;
    int over = 0;
    if (getpid() != e->pid || e->finalized(&over) || over) return; /* MPI does not belong to a forked child */
    status &= 255;                                                 /* what a parent sees of it */
    if (status == 0) {
        far_allow_ends();
        tell_end(e);
        e->finalize();
        return;
    }
    char why[40];
    snprintf(why, sizeof why, "exited with status %d", status);
    fflush(NULL);
    report_end(status, why);
    let_read();
    e->abort(e->world, status);
}

/* watch_exit(MPI_Finalize, MPI_Finalized, MPI_Abort, MPI_COMM_WORLD, pipe) */
static PyObject *py_watch_exit(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t finalize, finalized, abort_job, world;
    const char *pipe;
    if (!arity("watch_exit", n, 5) || !(pipe = PyUnicode_AsUTF8AndSize(args[4], NULL)) || !to_u64(args[0], &finalize) ||
        !to_u64(args[1], &finalized) || !to_u64(args[2], &abort_job) || !to_u64(args[3], &world))
        return NULL;
    exit_t *e = calloc(1, sizeof *e);
    if (!e) return PyErr_NoMemory();
    e->finalize = (int (*)(void))finalize;
    e->finalized = (int (*)(int *))finalized;
    e->abort = (int (*)(uintptr_t, int))abort_job;
    e->world = world;
    e->pid = getpid();
    snprintf(e->pipe, sizeof e->pipe, "%s", pipe);
    if (on_exit(at_exit, e)) {
        free(e);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

/* name_exit(file, mark, who) */
static PyObject *py_name_exit(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    char *places[] = {cause.file, cause.mark, cause.who};
    const size_t sizes[] = {sizeof cause.file, sizeof cause.mark, sizeof cause.who};
    if (!arity("name_exit", n, 3)) return NULL;
    for (int i = 0; i < 3; i++) {
        const char *text = PyUnicode_AsUTF8AndSize(args[i], NULL);
        if (!text) return NULL;
        snprintf(places[i], sizes[i], "%s", text);
    }
    Py_RETURN_NONE;
}

static PyObject *py_vote_for_python(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    vote_for_python();
    Py_RETURN_NONE;
}

INTERNAL PyMethodDef *exit_methods(void) {
    static PyMethodDef all[] = {METHOD(watch_exit), METHOD(name_exit), METHOD(let_read),
                                METHOD_NO_ARGUMENTS(vote_for_python), LAST_METHOD};
    return all;
}
