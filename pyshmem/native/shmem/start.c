#include "start.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "alone.h"
#include "state.h"
#include "waits.h"

/* What the library passes to bridge.open. version, bytes: of the library and of state_t. rare: the bridge's function.
 */
static struct {
    const char *version;
    uint64_t bytes;
    state_t *state;
    int64_t (*rare)(const char *, int64_t *);
    const char *program;
} bridge = {PYSHMEM_VERSION, sizeof state, &state, NULL, NULL};

/* of the OpenMP library of the program, if it has one */
static struct {
    int (*threads)(void);
    void (*set_threads)(int);
} openmp;

/* torch sets the calling thread's number of OpenMP's threads when it first computes in it. The number is the
 * program's. */
static int threads_of_program(void) { return openmp.set_threads ? openmp.threads() : 0; }
static void set_threads_again(int threads) {
    if (threads) openmp.set_threads(threads);
}

INTERNAL int64_t rare(const char *name, int64_t *arguments) {
    int threads = threads_of_program();
    int64_t result = bridge.rare(name, arguments);
    set_threads_again(threads);
    return result;
}

static RARELY _Noreturn void refuse_python(const char *got) {
    fprintf(stderr,
            "shmem_init: PE ?: Python: got %s; expected the Python in which pyshmem is installed, with its shared "
            "library (Debian: apt install libpython3-dev): PYSHMEM_PYTHON names it\n",
            got);
    _exit(1);
}

static void *python(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found) refuse_python(name);
    return found;
}

INTERNAL int has_python(void) {
    int (*is_initialized)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    return is_initialized && is_initialized();
}

/* The Python beside this library, in an environment lib/python3.x/site-packages, or else the first on PATH. */
static void default_python(char *path, size_t room) {
    Dl_info own;
    const char *wanted = getenv("PYSHMEM_PYTHON");
    snprintf(path, room, "%s", wanted && *wanted ? wanted : "python3");
    if ((wanted && *wanted) || !dladdr((void *)default_python, &own)) return;
    const char *end = strstr(own.dli_fname, "/lib/python3.");
    char beside[4096];
    if (!end || (size_t)snprintf(beside, sizeof beside, "%.*s/bin/python3", (int)(end - own.dli_fname),
                                 own.dli_fname) >= sizeof beside)
        return;
    if (!access(beside, X_OK)) snprintf(path, room, "%s", beside);
}

/* Asks Python for its own path and for that of its library, which it loads for extension modules to find. */
static void load_python(char *executable, size_t room) {
    char line[4096], command[8400], library[4096] = "";
    default_python(line, sizeof line);
    snprintf(command, sizeof command,
             "'%s' -Ic \"import os, sys, sysconfig as s; print(sys.executable); print(os.path.join(s.get_config_var("
             "'LIBDIR') or '', s.get_config_var('INSTSONAME') or ''))\"",
             line);
    FILE *answer = popen(command, "r");
    if (!answer || !fgets(executable, (int)room, answer) || !fgets(library, sizeof library, answer))
        refuse_python(line);
    pclose(answer);
    executable[strcspn(executable, "\n")] = library[strcspn(library, "\n")] = '\0';
    const char *name = strrchr(library, '/');
    if (!dlopen(library, RTLD_NOW | RTLD_GLOBAL) && !(name && dlopen(name + 1, RTLD_NOW | RTLD_GLOBAL)))
        refuse_python(dlerror());
}

static void start_python(void) {
    char executable[4096];
    load_python(executable, sizeof executable);
    wchar_t *(*decode)(const char *, size_t *) = (wchar_t * (*)(const char *, size_t *)) python("Py_DecodeLocale");
    void (*name)(const wchar_t *) = (void (*)(const wchar_t *))python("Py_SetProgramName");
    void (*initialize)(int) = (void (*)(int))python("Py_InitializeEx");
    void *(*release)(void) = (void *(*)(void))python("PyEval_SaveThread");
    name(decode(executable, NULL)); /* so that Python finds the environment */
    initialize(0);                  /* without handlers of signals, which are the program's */
    release();
    state.embedded = 1;
}

/* Imports the bridge, which fills `bridge`. */
static void open_bridge(void) {
    char text[600];
    int (*ensure)(void) = (int (*)(void))python("PyGILState_Ensure");
    void (*leave)(int) = (void (*)(int))python("PyGILState_Release");
    int (*run)(const char *, void *) = (int (*)(const char *, void *))python("PyRun_SimpleStringFlags");
    snprintf(text, sizeof text,
             "import os, sys\n"
             "try:\n"
             "    from pyshmem.capi import bridge as _bridge\n"
             "    _bridge.open(%lu)\n"
             "    del _bridge\n"
             "except ImportError as error:\n"
             "    sys.stderr.write(f'shmem_init: PE ?: Python: got {sys.executable}, and: {error}; expected the Python "
             "in which pyshmem is installed: PYSHMEM_PYTHON names it\\n')\n"
             "    sys.stderr.flush()\n"
             "    os._exit(1)\n",
             (unsigned long)&bridge);
    int held = ensure();
    if (run(text, NULL) || !bridge.rare) _exit(1);
    leave(held);
}

static void start_by_python(void) {
    openmp.threads = (int (*)(void))dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    openmp.set_threads = openmp.threads ? (void (*)(int))dlsym(RTLD_DEFAULT, "omp_set_num_threads") : NULL;
    int threads = threads_of_program();
    if (!has_python()) start_python();
    state.watch = watch;
    open_bridge();
    set_threads_again(threads);
}

/* Makes ready what does the rare calls, once. */
INTERNAL void start(uint64_t statics) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!bridge.rare && !has_python() && open_alone(statics)) bridge.rare = rare_alone;
    if (!bridge.rare) start_by_python();
    pthread_mutex_unlock(&lock);
}

INTERNAL int attach(void) {
    if (!bridge.rare && has_python()) start(0); /* the bridge finds a job that Python has begun */
    return state.calls != NULL;
}
