#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EVENTS_GROWTH = 1 << 14 };

static uint32_t this_thread(void) {
    static _Thread_local uint32_t thread;
    if (!thread) thread = (uint32_t)syscall(SYS_gettid);
    return thread;
}

static int more_room(event_file_t *f) {
    uint64_t room = f->head->room, more = f->most - room;
    if (more > EVENTS_GROWTH) more = EVENTS_GROWTH;
    if (f->full) return 0;
    if (more)
        f->head->error = (uint64_t)posix_fallocate(f->descriptor, (off_t)(EVENTS_HEAD + room * sizeof(event_t)),
                                                   (off_t)(more * sizeof(event_t)));
    f->full = !more || f->head->error;
    if (f->full) return 0;
    f->head->room = room + more;
#ifdef MADV_POPULATE_WRITE /* so that no event waits for a page; an older kernel refuses it */
    uintptr_t first = (uintptr_t)&f->events[room] & ~(uintptr_t)4095;
    madvise((void *)first, (uintptr_t)&f->events[room + more] - first, MADV_POPULATE_WRITE);
#endif
    return 1;
}

/* The next event, with nothing but its name; NULL if nothing is recorded or there is no space. */
INTERNAL event_t *events_next(event_file_t *f, uint32_t name) {
    if (!f->head) return NULL;
    uint64_t i = f->head->taken++;
    if (i >= f->head->room && !more_room(f)) return NULL;
    event_t *e = &f->events[i];
    *e = (event_t){.pe = -1, .name = name, .thread = this_thread()};
    return e;
}

/* Opens a new file for at most so many events. Returns 0, or the errno. */
INTERNAL int events_open(event_file_t *f, const char *path, uint64_t most) {
    int descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int error = descriptor < 0 ? errno : posix_fallocate(descriptor, 0, EVENTS_HEAD);
    char *memory = MAP_FAILED;
    if (!error) {
        memory = mmap(NULL, EVENTS_HEAD + most * sizeof(event_t), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        if (memory == MAP_FAILED) error = errno;
    }
    if (error) {
        if (descriptor >= 0) close(descriptor);
        return error;
    }
    *f = (event_file_t){(events_head_t *)memory, (event_t *)(memory + EVENTS_HEAD), most, descriptor, 0};
    return 0;
}

/* Closes the file, and gives back the space that no event has taken: the timeline may need it. */
INTERNAL void events_close(event_file_t *f) {
    if (!f->head) return;
    uint64_t used = f->head->taken < f->head->room ? f->head->taken : f->head->room;
    f->head->closed = 1;
    munmap(f->head, EVENTS_HEAD + f->most * sizeof(event_t));
    if (ftruncate(f->descriptor, (off_t)(EVENTS_HEAD + used * sizeof(event_t)))) errno = 0; /* it stays as it is */
    close(f->descriptor);
    f->head = NULL;
}
