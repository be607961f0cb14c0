/* Files of events of a timeline, which are mapped: what a PE has recorded outlives it. pyshmem.timelines.events reads
 * them.
 *
 * A file grows before its memory is used, so that a full disk loses events, which are counted, and does not end the
 * process. Nothing here knows Python. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* begin, end: nanoseconds of CLOCK_MONOTONIC; end is 0 until then. place: of a word, in bytes from its heap's start; of
 * a call of a team, its start, stride and size. value: written or waited for; of a request, its number. before: the
 * word when the wait began; with EVENT_SENT the requests of the call, as take_sent in _carried.h writes them. */
typedef struct {
    int64_t begin, end;
    uint64_t nbytes, place;
    int64_t value, before;
    int32_t pe; /* in the world, -1 for none; of a request the PE that has sent it */
    uint32_t name, thread;
    uint8_t op, flags;
    uint16_t track;
} event_t;

/* What an event does: waits have WAITS and the number of the comparison. READS, WRITES: memory of the call with the
 * same begin, `nbytes` from `place` on, an address; ENDS: of a result that nobody has any more; PLAN: the call under
 * way is by this plan. 4 is of spans. */
enum { OP_NONE, OP_SET, OP_ADD, OP_MEET, OP_READS = 5, OP_WRITES, OP_ENDS, OP_PLAN, OP_WAITS = 16 };
enum {
    EVENT_FAR = 1,
    EVENT_FAILED = 2,
    EVENT_ON_GPU = 4,
    EVENT_WORD = 8,
    EVENT_BEFORE = 16,
    EVENT_SENT = 32,
};
enum { OF_HOST, OF_KERNELS, OF_PROXY = 0xFFFE, OF_SERVICE = 0xFFFF }; /* tracks */
enum { EVENTS_HEAD = 4096, EVENTS_GROWTH = 1 << 14 };

typedef struct {
    uint64_t taken, room; /* events that were asked for, and that there is space for */
    uint64_t error;       /* the errno for which there is no more space; 0: there are `most` */
    uint64_t closed;
} events_head_t;

typedef struct {
    events_head_t *head; /* NULL: nothing is recorded */
    event_t *events;
    uint64_t most;
    int descriptor, full;
} event_file_t;

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
static event_t *next_event(event_file_t *f, uint32_t name) {
    if (!f->head) return NULL;
    uint64_t i = f->head->taken++;
    if (i >= f->head->room && !more_room(f)) return NULL;
    event_t *e = &f->events[i];
    *e = (event_t){.pe = -1, .name = name, .thread = this_thread()};
    return e;
}

/* Opens a new file for at most so many events. Returns 0, or the errno. */
static int open_event_file(event_file_t *f, const char *path, uint64_t most) {
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
static void close_event_file(event_file_t *f) {
    if (!f->head) return;
    uint64_t used = f->head->taken < f->head->room ? f->head->taken : f->head->room;
    f->head->closed = 1;
    munmap(f->head, EVENTS_HEAD + f->most * sizeof(event_t));
    if (ftruncate(f->descriptor, (off_t)(EVENTS_HEAD + used * sizeof(event_t)))) errno = 0; /* it stays as it is */
    close(f->descriptor);
    f->head = NULL;
}
