#include "heap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint64_t HUGE_PAGE = 1 << 21;

/* The file of all heaps: PE 0 makes it, and the others open it in PE 0's folder of /proc. */
static int make_file(uint64_t nbytes) {
    int fd = memfd_create("pyshmem-heap", MFD_CLOEXEC);
    if (fd >= 0 && !ftruncate(fd, (off_t)nbytes)) return fd;
    int failed = errno;
    if (fd >= 0) close(fd);
    errno = failed;
    return -1;
}
static int open_file(const row_t *first) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%ld", (long)first->pid, (long)first->fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Maps `nbytes` of the file in the middle of a larger mapping, so that this PE's part begins at a multiple of the
 * alignment. */
static int map_parts(shared_heap_t *h, int fd, int64_t me, uint64_t nbytes) {
    h->mapped = nbytes + h->alignment;
    h->mapping = mmap(NULL, h->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (h->mapping == MAP_FAILED) return h->mapping = NULL, errno;
    uint64_t start = (uint64_t)h->mapping, own = (uint64_t)me * h->stride;
    start += -(start + own) & (h->alignment - 1);
    if (mmap((void *)start, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return errno;
    h->base = start + own, h->system = h->base + h->size;
    return 0;
}

INTERNAL int64_t map_heap(shared_heap_t *h, table_t *table, int64_t me, int64_t n, uint64_t size, int reserves) {
    enum { FILE_MADE = 1, MAPPED, CLOSED };
    uint64_t alignment = HUGE_PAGE;
    while (alignment < size) alignment *= 2;
    *h = (shared_heap_t){.size = size, .alignment = alignment};
    h->stride = (size + AREAS_BYTES + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uint64_t nbytes = h->stride * (uint64_t)n;
    int fd = me ? -1 : make_file(nbytes);
    table->rows[me].fd = fd;
    int64_t failed = pass_stage(table, me, n, FILE_MADE, me || fd >= 0 ? 0 : errno);
    if (!failed) {
        if (me) fd = open_file(&table->rows[0]);
        int mine = fd < 0 ? errno : 0;
        if (!mine && reserves)
            mine = posix_fallocate(fd, (off_t)((uint64_t)me * h->stride), (off_t)(size + AREAS_BYTES));
        if (!mine) mine = map_parts(h, fd, me, nbytes);
        failed = pass_stage(table, me, n, MAPPED, mine);
    }
    if (fd >= 0) close(fd);
    if (failed) unmap_heap(h);
    return failed;
}

INTERNAL void unmap_heap(shared_heap_t *h) {
    if (h->mapping) munmap(h->mapping, h->mapped);
    *h = (shared_heap_t){0};
}

static uint64_t number_in(const char *path, const char *title) {
    char line[256];
    uint64_t found = UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (!file) return found;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, title, strlen(title))) {
            const char *digits = line + strlen(title);
            digits += strspn(digits, " \t");
            if (*digits >= '0' && *digits <= '9') found = strtoull(digits, NULL, 10);
            break;
        }
    fclose(file);
    return found;
}

INTERNAL uint64_t available_memory(void) {
    static const char *const limits[][2] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
    uint64_t available = number_in("/proc/meminfo", "MemAvailable:") * 1024;
    for (int i = 0; i < 2; i++) {
        uint64_t limit = number_in(limits[i][0], ""), used = number_in(limits[i][1], "");
        if (limit == UINT64_MAX || used == UINT64_MAX) continue;
        uint64_t left = limit > used ? limit - used : 0;
        if (left < available) available = left;
    }
    return available;
}
