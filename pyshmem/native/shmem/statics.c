#include "statics.h"

#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "state.h"

static int is_named(const char *path) {
    const char *names = getenv("PYSHMEM_SYMMETRIC_LIBS"), *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t stem = strstr(name, ".so") ? (size_t)(strstr(name, ".so") - name) : strlen(name);
    for (; names && *names; names += strcspn(names, ":,"), names += *names != '\0') {
        size_t length = strcspn(names, ":,");
        if ((length == stem || length == strlen(name)) && !strncmp(names, name, length)) return 1;
    }
    return 0;
}

static uint64_t page_up(uint64_t address) { return (address + 4095) & ~UINT64_C(4095); }

/* Adds the writable segments of an object, without their part that is read-only after relocation. program: whether to
 * take the program, which is the first object. */
static int add_segments(struct dl_phdr_info *object, size_t bytes, void *program) {
    (void)bytes;
    int wanted = object->dlpi_name[0] ? is_named(object->dlpi_name) : *(int *)program;
    if (!object->dlpi_name[0]) *(int *)program = 0; /* the kernel's own object has no name either */
    uint64_t fixed = 0;
    for (int i = 0; wanted && i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_GNU_RELRO) fixed = page_up(object->dlpi_addr + part->p_vaddr + part->p_memsz);
    }
    for (int i = 0; wanted && i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_W)) continue;
        uint64_t start = (object->dlpi_addr + part->p_vaddr) & ~UINT64_C(4095);
        uint64_t end = page_up(object->dlpi_addr + part->p_vaddr + part->p_memsz);
        if (fixed > start && fixed <= end) start = fixed;
        if (start == end) continue;
        if (state.n_statics == MOST_STATICS)
            refuse("ArgumentError", "shmem_init", "PYSHMEM_SYMMETRIC_LIBS", "fewer libraries", "more than %d segments",
                   MOST_STATICS);
        state.statics[state.n_statics++] = (static_t){start, end - start, 0};
    }
    return 0;
}

/* Finds the segments, and returns their size. */
INTERNAL uint64_t find_statics(int program) {
    uint64_t nbytes = 0;
    state.n_statics = 0;
    dl_iterate_phdr(add_segments, &program);
    for (uint64_t i = 0; i < state.n_statics; i++) nbytes += state.statics[i].bytes;
    return nbytes;
}

static RARELY _Noreturn void refuse_mapping(const static_t *each) {
    refuse("HeapExhaustedError", "shmem_init", "static data", "pages that can be mapped", "%lu bytes at %#lx: %s",
           (unsigned long)each->bytes, (unsigned long)each->start, strerror(errno));
}

/* Copies whole pages. memcpy would be that of the program's sanitizer, which takes the gaps that it keeps between
 * variables for an overflow. */
static void copy_pages(void *to, const void *from, uint64_t nbytes) {
    volatile uint64_t *target = to;
    const volatile uint64_t *source = from;
    for (uint64_t i = 0; i < nbytes / sizeof *target; i++) target[i] = source[i];
}

/* Maps the block of the heap over the segments. All PEs have done it on return. */
INTERNAL void share_statics(void) {
    uint64_t block = (uint64_t)RARE("statics_address");
    for (uint64_t i = 0; i < state.n_statics; block += state.statics[i++].bytes) {
        static_t *each = &state.statics[i];
        copy_pages((void *)block, (void *)each->start, each->bytes);
        /* of shared memory, an old size of 0 maps the same pages a second time */
        if (mremap((void *)block, 0, each->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)each->start) == MAP_FAILED)
            refuse_mapping(each);
        each->away = block - each->start;
    }
    complete("shmem_init", state.calls->sync(state.teams[0].native, "shmem_init", 0), &state.teams[0]);
}

/* Gives the segments private pages with the present contents. No PE accesses them any more. */
INTERNAL void unshare_statics(void) {
    for (; state.n_statics; state.n_statics--) {
        static_t *each = &state.statics[state.n_statics - 1];
        void *copy = mmap(NULL, each->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copy == MAP_FAILED) refuse_mapping(each);
        copy_pages(copy, (void *)each->start, each->bytes);
        if (mremap(copy, each->bytes, each->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)each->start) == MAP_FAILED)
            refuse_mapping(each);
    }
}
