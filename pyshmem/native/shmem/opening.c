#include "alone.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "../base/pmi.h"
#include "../team/engine.h"
#include "allocator.h"
#include "areas.h"
#include "ends.h"
#include "waits.h"

INTERNAL alone_t alone;

static row_t row_of(const settings_t *s, uint64_t statics, int votes_for_python) {
    row_t row = {.vote = votes_for_python ? BY_PYTHON : ALONE, .heap = s->heap, .statics = statics, .pid = getpid()};
    row.free = available_memory(), row.most_teams = s->most_teams;
    sched_getaffinity(0, sizeof row.cores, (cpu_set_t *)row.cores);
    snprintf(row.version, sizeof row.version, "%s", PYSHMEM_VERSION);
    return row;
}

/* Whether the PEs can open the job: they decide alike. Sets the bytes of each heap, without static data. */
static int agree_to_open(const table_t *table, int64_t n, uint64_t *nbytes) {
    const row_t *first = &table->rows[0];
    uint64_t least = UINT64_MAX, most = first->most_teams;
    for (int64_t pe = 0; pe < n; pe++) {
        const row_t *row = &table->rows[pe];
        if (row->vote != ALONE || row->heap != first->heap || row->statics != first->statics ||
            row->most_teams != most || strncmp(row->version, first->version, sizeof row->version))
            return 0;
        if (row->free < least) least = row->free;
    }
    if (most < 2 || most > MOST_TEAMS || most > (AREAS_BYTES - NOTE_BYTES) / pyshmem_engine.area_bytes((uint64_t)n))
        return 0;
    uint64_t usual = least / (2 * (uint64_t)n);
    if (usual > 1 << 30) usual = 1 << 30;
    *nbytes = first->heap == UINT64_MAX ? usual / 4096 * 4096 : (first->heap + 4095) / 4096 * 4096;
    return first->heap == UINT64_MAX || *nbytes <= least / (uint64_t)n; /* else Python says what there is */
}

static uint64_t spins_of(const table_t *table, int64_t n) {
    int cores = 0;
    for (int word = 0; word < CORE_WORDS; word++) {
        uint64_t all = 0;
        for (int64_t pe = 0; pe < n; pe++) all |= table->rows[pe].cores[word];
        cores += __builtin_popcountll(all);
    }
    return n <= cores ? 20000 : 50;
}

/* The page for `pyshmem top`, see pyshmem.base.activity: its descriptor stays open, by which others find it. */
static void open_page(int64_t job) {
    struct utsname host;
    int fd = alone.page ? -1 : memfd_create("pyshmem-activity", MFD_CLOEXEC);
    if (fd >= 0 && !ftruncate(fd, 4096)) {
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        alone.page = page == MAP_FAILED ? NULL : page;
    }
    if (!alone.page || uname(&host)) return;
    memset(alone.page, 0, 4096);
    snprintf((char *)alone.page + 1024, 1024,
             "{\"job\": %ld, \"host\": \"%s\", \"pe\": %ld, \"n_pes\": %ld, \"pid\": %ld}", (long)job, host.nodename,
             (long)state.my_pe, (long)state.n_pes, (long)getpid());
    activity = alone.page;
    pyshmem_engine.count_in(alone.page);
    note_use();
}

INTERNAL void note_use(void) {
    if (!alone.page) return;
    alone.page->used[0] = bytes_in_use(), alone.page->size[0] = alone.heap.size;
}

static void describe(int64_t me, int64_t n) {
    const shared_heap_t *h = &alone.heap;
    int64_t *away = calloc((size_t)n, sizeof *away);
    for (int64_t pe = 0; away && pe < n; pe++) away[pe] = (pe - me) * (int64_t)h->stride;
    state.base = h->base, state.bytes = state.checked = h->size, state.away = away;
    state.my_pe = me, state.n_pes = n, state.spans = state.debug = 0;
    state.check = (int64_t)alone.settings.check, state.process = getpid(), state.embedded = 1;
    state.timeout = alone.settings.timeout, state.notice = me || n == 1 ? 0 : alone.settings.notice;
}

/* Opens the heap, or returns 0 on all PEs. */
static int open_job(table_t *table, int64_t me, int64_t n, uint64_t statics) {
    uint64_t nbytes;
    int64_t late = await_all(table, n, 0, alone.settings.timeout);
    if (late >= 0) {
        fprintf(stderr, "shmem_init: PE %ld: call: got none from PE %ld in %g s; expected the same call on all PEs\n",
                (long)me, (long)late, alone.settings.timeout);
        abort_job(1);
    }
    if (!agree_to_open(table, n, &nbytes)) return 0;
    statics = (statics + 4095) / 4096 * 4096;
    if (map_heap(&alone.heap, table, me, n, nbytes + statics, alone.settings.heap != UINT64_MAX)) return 0;
    state.spins = spins_of(table, n);
    open_allocator(alone.heap.size);
    describe(me, n);
    alone.statics = statics ? alone.heap.base + (uint64_t)take_bytes(statics, 4096) : 0;
    open_areas(alone.settings.most_teams);
    open_page(table->rows[0].pid);
    watch_end(me);
    tell_phase("init");
    state.calls = pyshmem_engine.calls;
    tell_phase("runs");
    if (!me && alone.settings.version)
        printf("pyshmem %s, OpenSHMEM %d.%d\n", PYSHMEM_VERSION, SHMEM_MAJOR_VERSION, SHMEM_MINOR_VERSION),
            fflush(stdout);
    return 1;
}

INTERNAL int open_alone(uint64_t statics) {
    char job[256] = "", name[300];
    int64_t me, n;
    int is_placed = find_place(&me, &n), for_python = read_settings(&alone.settings) != NULL;
    for_python |= dlsym(RTLD_DEFAULT, "MPI_Init") != NULL;
    if (!is_placed || (n == 1 && for_python) || (getenv("PMI_FD") && !alone.jobs && !pmi_open(job, sizeof job)))
        return 0;
    static char name_of_job[256];
    if (!alone.jobs) memcpy(name_of_job, job, sizeof job);
    snprintf(name, sizeof name, "%s-%ld", name_of_job, (long)alone.jobs++);
    row_t row = row_of(&alone.settings, statics, for_python);
    table_t *table = arrive(name, me, n, &row);
    int opened = table && !for_python && open_job(table, me, n, statics);
    if (table) depart(table, n);
    return opened;
}
