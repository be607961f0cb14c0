#include "rendezvous.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pmi.h"

static uint64_t bytes_of_table(int64_t n) { return sizeof(table_t) + (uint64_t)n * sizeof(row_t); }

INTERNAL table_t *arrive(const char *name, int64_t me, int64_t n, const row_t *mine) {
    char path[300];
    struct stat found;
    table_t *table = MAP_FAILED;
    uint64_t nbytes = bytes_of_table(n);
    if (snprintf(path, sizeof path, "/dev/shm/pyshmem-start-%s", name) >= (int)sizeof path) return NULL;
    int fd = n == 1 ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (n == 1)
        table = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else if (fd >= 0 && !fstat(fd, &found) && found.st_uid == geteuid() && !posix_fallocate(fd, 0, (off_t)nbytes))
        table = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (table == MAP_FAILED) return NULL;
    row_t *row = &table->rows[me];
    uint64_t vote = mine->vote;
    *row = *mine, row->vote = ABSENT;
    __atomic_store_n(&row->vote, vote, __ATOMIC_RELEASE);
    if (__atomic_add_fetch(&table->arrived, 1, __ATOMIC_ACQ_REL) == (uint64_t)n && n > 1) unlink(path);
    return table;
}

INTERNAL void depart(table_t *table, int64_t n) { munmap(table, bytes_of_table(n)); }

INTERNAL void vote_for_python(void) {
    static int has_voted;
    int64_t me, n;
    char job[256], name[300];
    if (has_voted++ || !find_place(&me, &n) || n == 1 || !pmi_open(job, sizeof job)) return;
    snprintf(name, sizeof name, "%s-0", job);
    row_t row = {.vote = BY_PYTHON, .pid = getpid()};
    table_t *table = arrive(name, me, n, &row);
    if (table) depart(table, n);
}
