/* The end of the process: an exit handler knows the status, after Python's own clean-up. */
#pragma once
#include "_opening.h"

typedef struct {
    int (*finalize)(void);
    int (*finalized)(int *);
    int (*abort)(uintptr_t, int);
    uintptr_t world;
    int pe;
    pid_t pid;
    char report[]; /* the file that pyshmemrun prints at the end; empty: without pyshmemrun */
} exit_t;

/* Finalises MPI after status 0. Any other status aborts the job, because other PEs could wait for this one forever. */
static void at_exit(int status, void *arg) {
    exit_t *e = arg;
    int over = 0;
    if (getpid() != e->pid || e->finalized(&over) || over) return; /* MPI does not belong to a forked child */
    if (status == 0) {
        if (far) allow_ends();
        e->finalize();
        return;
    }
    FILE *f = e->report[0] ? fopen(e->report, "wx") : stderr;
    if (f) fprintf(f, "PE %d: exited with status %d\n", e->pe, status);
    fflush(NULL);   /* where the file exists, it has the exception */
    usleep(200000); /* MPICH's mpiexec loses output that it has not read before the abort */
    e->abort(e->world, status);
}

/* watch_exit(MPI_Finalize, MPI_Finalized, MPI_Abort, MPI_COMM_WORLD, pe, report_path) */
static PyObject *py_watch_exit(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t finalize, finalized, abort_job, world;
    int32_t pe;
    Py_ssize_t length;
    if (!arity("watch_exit", n, 6) || !to_u64(args[0], &finalize) || !to_u64(args[1], &finalized) ||
        !to_u64(args[2], &abort_job) || !to_u64(args[3], &world) || !to_int32(args[4], &pe))
        return NULL;
    const char *report = PyUnicode_AsUTF8AndSize(args[5], &length);
    exit_t *e = report ? calloc(1, sizeof *e + (size_t)length + 1) : NULL;
    if (!e) return report ? PyErr_NoMemory() : NULL;
    e->finalize = (int (*)(void))finalize;
    e->finalized = (int (*)(int *))finalized;
    e->abort = (int (*)(uintptr_t, int))abort_job;
    e->world = world;
    e->pe = pe;
    e->pid = getpid();
    memcpy(e->report, report, (size_t)length);
    if (on_exit(at_exit, e)) {
        free(e);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyMethodDef exit_methods[] = {METHOD(watch_exit), LAST_METHOD};
