/* A recording stand-in for AMD's libamdhip64: the calls pyshmem makes, on host memory, between real processes.

It checks arguments as the real library does, or as it should: what that one lets pass and then does wrong, a device
that is not the current one, a released handle, is "misuse" here, an error and a line in the log. Memory comes full of
0xA5, never of zeros, and is readable only where the calls that make it so were made. Devices are ordinals of the list
STANDIN_DEVICES of physical numbers.

    STANDIN_LOG=path          one line per call: name, arguments, "-> code"; and one per misuse; ".pid" is appended
    STANDIN_DEVICES=0,1       the visible devices; physical number n has PCI bus id 0000:0n:00.0
    STANDIN_PARTITIONS=8      the devices of one GPU, which have one bus id
    STANDIN_ONE_UUID=1        all devices have one UUID, as those without one and partitions in old kernels
    STANDIN_VERSION=71400000  HIP_VERSION: major * 10000000 + minor * 100000 + patch
    STANDIN_CHIPLETS=8        the parts of each device with an L2 cache of their own
    STANDIN_HIDDEN=1          a control group hides the other processes' devices: the kernel refuses imports
    STANDIN_DROPS=1           graphs drop edges as HIP's classic executor does
    STANDIN_NO_VMM=1          the attribute says that there is no virtual memory management */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    BAD_POINTER = 17,
    INVALID_DIRECTION = 21,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NOT_READY = 600,
    ALREADY_ENABLED = 704,
    NOT_SUPPORTED = 801
};
enum {
    LIMIT = 256,
    POISON = 0xA5,
    PAGE = 4096,
    RECOMMENDED = 2 << 20,
    VMM_SUPPORTED = 89,
    CHIPLETS = 10018,
    UNCACHED = 0x40000000
};

/* What the caller passes, laid out as in HIP 6 and later. */
struct location {
    int type, id;
};
struct prop {
    int type, handle_types;
    struct location location;
    void *win32;
    unsigned char compression, rdma;
    unsigned short usage;
};
struct access_desc {
    struct location location;
    int flags;
};
struct ipc {
    char bytes[64];
};

/* The ledger. Rows are free where base, or fd for a handle, is 0. */
struct handle {
    int fd, device /* of an imported one -1 */, caller_fd, maps;
    size_t size;
    bool released, exportable;
    ino_t inode;
};
struct piece {
    char *base;
    size_t size;
    struct handle *handle;
    unsigned accessors /* a bit for each device */, order, uses /* see foreign_uses */;
};
struct range {
    char *base;
    size_t size;
};
struct block {
    char *base;
    size_t size;
    int fd, device, opens;
    pid_t owner;
    bool accessible;
};
struct ipc_content {
    uint32_t magic;
    pid_t pid;
    int fd, device;
    size_t size;
};

static struct handle handles[LIMIT];
static struct piece pieces[LIMIT];
static struct range ranges[LIMIT];
static struct block blocks[LIMIT], opened[LIMIT];
static int devices[LIMIT], device_count, version, misuses, chiplets, partitions;
static bool peer_enabled[LIMIT], no_vmm, hidden, lost, drops, one_uuid;
static __thread int current;
static FILE *record_file;

static const char *setting(const char *name, const char *unset) {
    const char *text = getenv(name);
    return text && *text ? text : unset;
}

__attribute__((constructor)) static void read_settings(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.%d", setting("STANDIN_LOG", "/dev/null"), getpid());
    record_file = fopen(getenv("STANDIN_LOG") ? path : "/dev/null", "ae");
    for (const char *next = setting("STANDIN_DEVICES", "0"); next;
         next = strchr(next, ',') ? strchr(next, ',') + 1 : NULL)
        devices[device_count++] = atoi(next);
    version = atoi(setting("STANDIN_VERSION", "71400000"));
    chiplets = atoi(setting("STANDIN_CHIPLETS", "8"));
    partitions = atoi(setting("STANDIN_PARTITIONS", "1"));
    one_uuid = *setting("STANDIN_ONE_UUID", "0") == '1';
    no_vmm = *setting("STANDIN_NO_VMM", "0") == '1';
    drops = *setting("STANDIN_DROPS", "0") == '1';
    hidden = *setting("STANDIN_HIDDEN", "0") == '1';
}

/* As HIP 7 keeps it: the code of the thread's last call that failed, until hipGetLastError. Not ready is no failure. */
static __thread int last_error;
static int threads_with_error;

static int record(int code, const char *format, ...) {
    if (code && code != NOT_READY) {
        threads_with_error += !last_error;
        last_error = code;
    }
    va_list arguments;
    va_start(arguments, format);
    vfprintf(record_file, format, arguments);
    va_end(arguments);
    fprintf(record_file, " -> %d\n", code);
    fflush(record_file);
    return code;
}

static int misuse(const char *what) {
    fprintf(record_file, "misuse: %s\n", what);
    fflush(record_file);
    misuses++;
    return INVALID_VALUE;
}

static struct {
    char name[64];
    int calls;
} counts[LIMIT];
static struct {
    char name[64];
    int nth, code;
} failure;

/* The nth call of name from now on, counted from 1, does nothing and answers code. Tests order it; nth 0: none. */
void standin_fail(const char *name, int nth, int code) {
    memset(counts, 0, sizeof counts);
    snprintf(failure.name, sizeof failure.name, "%s", name);
    failure.nth = nth;
    failure.code = code;
}

void standin_lose(void) { lost = true; }

static int ordered_failure(const char *name) {
    int row = 0;
    while (*counts[row].name && strcmp(counts[row].name, name)) row++;
    strcpy(counts[row].name, name);
    return ++counts[row].calls == failure.nth && !strcmp(failure.name, name) ? failure.code : 0;
}

/* EXPORT(name, (parameters), (arguments), format, values...) { body }: ordered failure, else the body, then the record.
 */
#define EXPORT(name, parameters, arguments, ...)    \
    static int do_##name parameters;                \
    int name parameters {                           \
        int code = ordered_failure(#name);          \
        if (!code) code = do_##name arguments;      \
        return record(code, #name " " __VA_ARGS__); \
    }                                               \
    static int do_##name parameters

#define FREE_ROW(table, key)                            \
    ({                                                  \
        int row_ = 0;                                   \
        while (row_ < LIMIT && table[row_].key) row_++; \
        if (row_ == LIMIT) abort();                     \
        &table[row_];                                   \
    })

/* Shared memory of size bytes and a last page, full of POISON; that page counts who has it open. */
static int poisoned_memory(size_t size) {
    int fd = memfd_create("standin", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, size + PAGE)) return -1;
    char *all = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (all == MAP_FAILED) return -1;
    memset(all, POISON, size);
    munmap(all, size);
    return fd;
}

/* How often other processes have imported the memory of a handle, or set access to it: in its last page. ROCm makes the
 * access stale that the owner has been given before (rocm-systems#9908). */
static unsigned foreign_uses(struct handle *handle, unsigned more) {
    unsigned *count = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, handle->fd, handle->size);
    if (count == MAP_FAILED) abort();
    unsigned uses = __atomic_add_fetch(count + 1, more, __ATOMIC_SEQ_CST);
    munmap(count, PAGE);
    return uses;
}

static bool is_stale(struct piece *piece) {
    return piece->handle->device >= 0 && foreign_uses(piece->handle, 0) != piece->uses;
}

static int *open_count(struct block *block) { return (int *)(block->base + block->size); }

static bool inside(const char *at, size_t nbytes, const char *base, size_t size) {
    return base && at && at >= base && at + nbytes <= base + size;
}

/* Whether a copy may touch these bytes: host memory, or device memory that is mapped and accessible to the current
 * device. */
static bool usable(const void *at, size_t nbytes, bool device_only) {
    const char *byte = at, *end = byte + nbytes;
    for (bool moved = true; moved && byte < end;) {
        moved = false;
        for (int i = 0; i < LIMIT; i++) {
            struct piece *p = &pieces[i];
            struct block *own = &blocks[i], *other = &opened[i];
            if (inside(byte, 1, p->base, p->size) && p->accessors >> current & 1 && !is_stale(p))
                byte = p->base + p->size, moved = true;
            if (inside(byte, 1, own->base, own->size)) byte = own->base + own->size, moved = true;
            if (inside(byte, 1, other->base, other->size) && other->accessible)
                byte = other->base + other->size, moved = true;
        }
    }
    if (byte >= end) return true;
    for (int i = 0; i < LIMIT; i++)
        if (inside(byte, 1, ranges[i].base, ranges[i].size) || inside(byte, 1, opened[i].base, opened[i].size))
            return false;
    return !device_only;
}

/* Versions and devices. */
EXPORT(hipInit, (unsigned flags), (flags), "flags=%u", flags) { return flags ? INVALID_VALUE : 0; }
EXPORT(hipRuntimeGetVersion, (int *out), (out), "") { return *out = version, 0; }
EXPORT(hipGetDeviceCount, (int *out), (out), "") { return *out = device_count, device_count ? 0 : 100; }

EXPORT(hipSetDevice, (int device), (device), "device=%d", device) {
    if (device < 0 || device >= device_count) return INVALID_DEVICE;
    return current = device, 0;
}

EXPORT(hipDeviceGetAttribute, (int *out, int attribute, int device), (out, attribute, device), "attribute=%d device=%d",
       attribute, device) {
    if (device < 0 || device >= device_count) return INVALID_DEVICE;
    return *out = attribute == CHIPLETS ? chiplets : attribute != VMM_SUPPORTED || !no_vmm, 0;
}

EXPORT(hipDeviceGetPCIBusId, (char *text, int length, int device), (text, length, device), "length=%d device=%d",
       length, device) {
    if (device < 0 || device >= device_count) return INVALID_DEVICE;
    if (length < 13) return INVALID_VALUE;
    return snprintf(text, length, "0000:%02x:00.0", devices[device] / partitions), 0;
}

EXPORT(hipDeviceGetUuid, (char out[16], int device), (out, device), "device=%d", device) {
    if (device < 0 || device >= device_count) return INVALID_DEVICE;
    for (int i = 0; i < 16; i++) out[i] = i ? 0 : one_uuid ? 'X' : devices[device] + 1;
    return 0;
}

EXPORT(hipDeviceCanAccessPeer, (int *out, int device, int peer), (out, device, peer), "device=%d peer=%d", device,
       peer) {
    if (device < 0 || device >= device_count || peer < 0 || peer >= device_count) return INVALID_DEVICE;
    return *out = device != peer, 0;
}

EXPORT(hipDeviceEnablePeerAccess, (int peer, unsigned flags), (peer, flags), "peer=%d flags=%u", peer, flags) {
    if (flags) return INVALID_VALUE;
    if (peer < 0 || peer >= device_count || peer == current) return INVALID_DEVICE;
    if (peer_enabled[peer]) return ALREADY_ENABLED;
    peer_enabled[peer] = true;
    for (int i = 0; i < LIMIT; i++)
        if (opened[i].base && opened[i].device == devices[peer])
            opened[i].accessible = !mprotect(opened[i].base, opened[i].size, PROT_READ | PROT_WRITE);
    return 0;
}

/* Virtual memory. */
EXPORT(hipMemGetAllocationGranularity, (size_t *out, const struct prop *prop, int option), (out, prop, option),
       "type=%#x location=%d,%d option=%d", prop->type, prop->location.type, prop->location.id, option) {
    if ((prop->type != 1 && prop->type != UNCACHED) || prop->location.type != 1 || prop->location.id < 0)
        return INVALID_VALUE;
    if (prop->location.id >= device_count || option < 0 || option > 1) return INVALID_VALUE;
    return *out = option ? RECOMMENDED : PAGE, 0;
}

EXPORT(hipMemAddressReserve, (void **out, size_t size, size_t alignment, void *address, unsigned long long flags),
       (out, size, alignment, address, flags), "size=%zu alignment=%zu address=%p flags=%llu out=%p", size, alignment,
       address, flags, *out) {
    if (flags || !size || size % PAGE || alignment & (alignment - 1)) return INVALID_VALUE;
    size_t slack = alignment > PAGE ? alignment : 0;
    char *whole = mmap(address, size + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED) return OUT_OF_MEMORY;
    char *base = slack ? (char *)(((uintptr_t)whole + slack - 1) / slack * slack) : whole;
    if (base > whole) munmap(whole, base - whole);
    if (whole + slack > base) munmap(base + size, whole + slack - base);
    *FREE_ROW(ranges, base) = (struct range){base, size};
    return *out = base, 0;
}

EXPORT(hipMemAddressFree, (void *address, size_t size), (address, size), "address=%p size=%zu", address, size) {
    for (int i = 0; i < LIMIT; i++)
        if (pieces[i].base && inside(pieces[i].base, 1, address, size))
            return misuse("a reserved range is freed while memory is mapped in it");
    for (int i = 0; i < LIMIT; i++) {
        if (!ranges[i].base || ranges[i].base != address) continue;
        if (ranges[i].size != size) return misuse("a reserved range is freed with another size");
        ranges[i].base = NULL;
        return munmap(address, size) ? INVALID_VALUE : 0;
    }
    return misuse("a range is freed that is not reserved");
}

static struct handle *live(struct handle *handle) {
    return handle >= handles && handle < handles + LIMIT && handle->fd && !handle->released ? handle : NULL;
}

static struct piece *piece_around(const char *address) {
    for (int i = 0; i < LIMIT; i++)
        if (pieces[i].base && inside(address, 1, pieces[i].base, pieces[i].size)) return &pieces[i];
    return NULL;
}

static void drop(struct handle *handle) {
    if (!handle->released || handle->maps) return;
    close(handle->fd);
    *handle = (struct handle){0};
}

EXPORT(hipMemCreate, (struct handle * *out, size_t size, const struct prop *prop, unsigned long long flags),
       (out, size, prop, flags),
       "size=%zu type=%#x handle_types=%d location=%d,%d rdma=%d flags=%llu current=%d handle=%p", size, prop->type,
       prop->handle_types, prop->location.type, prop->location.id, prop->rdma, flags, current, (void *)*out) {
    if (flags || !size || (prop->type != 1 && prop->type != UNCACHED) || prop->location.type != 1 || prop->win32)
        return INVALID_VALUE;
    if (prop->type == UNCACHED && version < 70200000) return INVALID_VALUE;
    if (prop->type == UNCACHED && version < 71400000) return misuse("uncached virtual memory is coarse before 7.14");
    if (prop->location.id < 0 || prop->location.id >= device_count) return INVALID_DEVICE;
    if (prop->location.id != current)
        return misuse("memory is created for another device than the current one, and comes from that");
    if (prop->handle_types & ~1) return NOT_SUPPORTED;
    if (size % PAGE) return INVALID_VALUE;
    int fd = poisoned_memory(size);
    if (fd < 0) return OUT_OF_MEMORY;
    *out = FREE_ROW(handles, fd);
    **out = (struct handle){
        .fd = fd, .device = devices[current], .caller_fd = -1, .size = size, .exportable = prop->handle_types};
    return 0;
}

EXPORT(hipMemRelease, (struct handle * handle), (handle), "handle=%p", (void *)handle) {
    if (!live(handle)) return misuse("a handle is released twice, or never was one");
    handle->released = true;
    return drop(handle), 0;
}

EXPORT(hipMemExportToShareableHandle, (int *out, struct handle *handle, int type, unsigned long long flags),
       (out, handle, type, flags), "handle=%p type=%d flags=%llu fd=%d", (void *)handle, type, flags, *out) {
    if (!live(handle)) return misuse("a released handle is exported");
    if (flags || type != 1 || !handle->exportable) return INVALID_VALUE;
    *out = fcntl(handle->fd, F_DUPFD_CLOEXEC, 3);
    return *out < 0 ? INVALID_VALUE : 0;
}

EXPORT(hipMemImportFromShareableHandle, (struct handle * *out, void *argument, int type), (out, argument, type),
       "argument=%s type=%d handle=%p", (uintptr_t)argument > INT_MAX ? "pointer" : "value", type, (void *)*out) {
    if (!argument || type != 1) return INVALID_VALUE;
    bool value = (uintptr_t)argument <= INT_MAX;
    if (value != (version >= 70100000))
        return misuse("the descriptor goes by value from HIP 7.1 on, by a pointer to it before");
    int fd = value ? (int)(uintptr_t)argument : *(int *)argument, own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    struct stat status;
    if (own < 0 || fstat(own, &status)) return INVALID_VALUE;
    if (hidden) return close(own), INVALID_VALUE;
    *out = FREE_ROW(handles, fd);
    **out = (struct handle){
        .fd = own, .device = -1, .caller_fd = fd, .size = status.st_size - PAGE, .inode = status.st_ino};
    foreign_uses(*out, 1);
    return 0;
}

/* A new handle of the memory that is mapped there. */
EXPORT(hipMemRetainAllocationHandle, (struct handle * *out, const char *address), (out, address),
       "address=%p handle=%p", (const void *)address, (void *)*out) {
    struct piece *piece = piece_around(address);
    int fd = piece ? fcntl(piece->handle->fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (fd < 0) return INVALID_VALUE;
    *out = FREE_ROW(handles, fd);
    **out = (struct handle){.fd = fd,
                            .device = piece->handle->device,
                            .caller_fd = -1,
                            .size = piece->handle->size,
                            .exportable = piece->handle->exportable};
    return 0;
}

EXPORT(hipMemGetAddressRange, (char **base, size_t *size, const char *address), (base, size, address), "address=%p",
       (const void *)address) {
    struct piece *piece = piece_around(address);
    if (!piece) return INVALID_VALUE;
    *base = piece->base;
    return *size = piece->size, 0;
}

/* The descriptor a handle was imported from must stay open until the memory is mapped and accessible. */
static bool caller_closed(struct handle *handle) {
    struct stat status;
    return handle->caller_fd >= 0 && (fstat(handle->caller_fd, &status) || status.st_ino != handle->inode);
}

EXPORT(hipMemMap, (void *address, size_t size, size_t offset, struct handle *handle, unsigned long long flags),
       (address, size, offset, handle, flags), "address=%p size=%zu offset=%zu handle=%p flags=%llu", address, size,
       offset, (void *)handle, flags) {
    if (!live(handle)) return misuse("a released handle is mapped");
    if (!address || !size || offset || flags || size % PAGE || size > handle->size) return INVALID_VALUE;
    if (caller_closed(handle)) return misuse("the imported descriptor was closed before the memory was mapped");
    bool reserved = false;
    for (int i = 0; i < LIMIT; i++) {
        reserved |= inside(address, size, ranges[i].base, ranges[i].size);
        if (pieces[i].base && (char *)address < pieces[i].base + pieces[i].size &&
            pieces[i].base < (char *)address + size)
            return misuse("memory is mapped over mapped memory");
    }
    if (!reserved) return misuse("memory is mapped outside all reserved ranges");
    if (mmap(address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, handle->fd, 0) == MAP_FAILED) return OUT_OF_MEMORY;
    static unsigned order;
    *FREE_ROW(pieces, base) = (struct piece){address, size, handle, 0, ++order, 0};
    return handle->maps++, 0;
}

static struct piece *piece_at(const char *address) {
    for (int i = 0; i < LIMIT; i++)
        if (pieces[i].base && pieces[i].base == address) return &pieces[i];
    return NULL;
}

/* Whether whole mapped pieces, one after the other, make up these bytes. */
static bool whole_pieces(char *address, size_t size) {
    char *at = address;
    for (struct piece *piece; at < address + size && (piece = piece_at(at));) at += piece->size;
    return size && at == address + size;
}

/* Before 7.14 (rocm-systems#2451) the sizes of a range's pieces, from the one that was mapped first, must add up to
 * what is asked for. */
static bool first_pieces(const char *address, size_t size) {
    struct range *range = ranges;
    while (!inside(address, 1, range->base, range->size)) range++;
    size_t sum = 0;
    for (unsigned last = 0, next = 0; sum < size; last = next) {
        struct piece *first = NULL;
        for (int i = 0; i < LIMIT; i++)
            if (inside(pieces[i].base, 1, range->base, range->size) && pieces[i].order > last &&
                (!first || pieces[i].order < first->order))
                first = &pieces[i];
        if (!first) return false;
        sum += first->size;
        next = first->order;
    }
    return sum == size;
}

EXPORT(hipMemSetAccess, (void *address, size_t size, const struct access_desc *desc, size_t count),
       (address, size, desc, count), "address=%p size=%zu location=%d,%d access=%d count=%zu current=%d", address, size,
       desc->location.type, desc->location.id, desc->flags, count, current) {
    if (!count || !whole_pieces(address, size)) return misuse("access is set for other bytes than whole mapped pieces");
    if (version < 71400000 && !first_pieces(address, size))
        return misuse("access is checked against the range's first pieces before 7.14");
    for (size_t i = 0; i < count; i++) {
        if (desc[i].location.type != 1 || desc[i].location.id < 0 || desc[i].location.id >= device_count)
            return INVALID_VALUE;
        if (desc[i].flags != 0 && desc[i].flags != 1 && desc[i].flags != 3) return INVALID_VALUE;
    }
    for (char *at = address; at < (char *)address + size; at += piece_at(at)->size) {
        struct piece *piece = piece_at(at);
        if (caller_closed(piece->handle)) return misuse("the imported descriptor was closed before access was set");
        int protection = PROT_NONE; /* one address space stands for all devices', so what any may do is possible */
        for (size_t i = 0; i < count; i++) {
            if (desc[i].flags == 3) piece->accessors |= 1u << desc[i].location.id;
            protection |= (desc[i].flags & 1 ? PROT_READ : 0) | (desc[i].flags & 2 ? PROT_WRITE : 0);
        }
        mprotect(at, piece->size, protection);
        piece->handle->caller_fd = -1;
        piece->uses = foreign_uses(piece->handle, piece->handle->device < 0);
    }
    return 0;
}

EXPORT(hipMemUnmap, (void *address, size_t size), (address, size), "address=%p size=%zu", address, size) {
    if (!whole_pieces(address, size)) return misuse("other bytes are unmapped than whole mapped pieces");
    for (char *at = address, *end = at + size; at < end;) {
        struct piece *piece = piece_at(at);
        struct handle *handle = piece->handle;
        at += piece->size;
        piece->base = NULL;
        handle->maps--;
        drop(handle);
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return mmap(address, size, PROT_NONE, flags, -1, 0) == MAP_FAILED ? INVALID_VALUE : 0;
}

/* Blocks and handles for other processes. */
static int allocate(void **out, size_t size) {
    size_t whole = (size + PAGE - 1) / PAGE * PAGE;
    int fd = poisoned_memory(whole);
    if (fd < 0) return OUT_OF_MEMORY;
    char *base = mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return OUT_OF_MEMORY;
    *FREE_ROW(blocks, base) =
        (struct block){.base = base, .size = whole, .fd = fd, .device = devices[current], .accessible = true};
    return *out = base, 0;
}

EXPORT(hipMalloc, (void **out, size_t size), (out, size), "size=%zu current=%d out=%p", size, current, *out) {
    return size ? allocate(out, size) : INVALID_VALUE;
}

EXPORT(hipExtMallocWithFlags, (void **out, size_t size, unsigned flags), (out, size, flags),
       "size=%zu flags=%u current=%d out=%p", size, flags, current, *out) {
    bool known = flags == 0 || flags == 1 || (flags == 2 && size == 8) || (flags == 3 && version >= 50700000);
    return size && known ? allocate(out, size) : INVALID_VALUE;
}

static struct block *block_at(struct block *table, const char *base) {
    for (int i = 0; i < LIMIT; i++)
        if (base && table[i].base == base) return &table[i];
    return NULL;
}

EXPORT(hipFree, (void *address), (address), "address=%p", address) {
    if (!address) return 0;
    struct block *block = block_at(blocks, address);
    if (!block) return misuse("memory is freed twice, or never was allocated");
    if (*open_count(block)) return misuse("memory is freed while another process has it open");
    munmap(block->base, block->size + PAGE);
    close(block->fd);
    return *block = (struct block){0}, 0;
}

EXPORT(hipIpcGetMemHandle, (struct ipc * out, void *address), (out, address), "address=%p", address) {
    struct block *block = block_at(blocks, address);
    if (!block) return misuse("an IPC handle is asked for what is not the base of an allocation");
    memset(out, 0, sizeof *out);
    struct ipc_content content = {0x48495031, getpid(), block->fd, block->device, block->size};
    return memcpy(out, &content, sizeof content), 0;
}

EXPORT(hipIpcOpenMemHandle, (void **out, struct ipc handle, unsigned flags), (out, handle, flags), "flags=%u out=%p",
       flags, *out) {
    struct ipc_content content;
    memcpy(&content, &handle, sizeof content);
    if (flags != 1) return INVALID_VALUE;
    if (content.magic != 0x48495031) return BAD_POINTER;
    if (content.pid == getpid()) return INVALID_CONTEXT;
    for (int i = 0; i < LIMIT; i++)
        if (opened[i].base && opened[i].owner == content.pid && opened[i].fd == content.fd)
            return opened[i].opens++, *out = opened[i].base, 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", content.pid, content.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return BAD_POINTER;
    bool reached =
        true; /* handles attach below the filter of visible devices; before 7.0 a visible one must be enabled */
    for (int i = 0; i < device_count; i++)
        if (devices[i] == content.device && i != current && version < 70000000) reached = peer_enabled[i];
    char *base = mmap(NULL, content.size + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED) return BAD_POINTER;
    struct block *row = FREE_ROW(opened, base);
    *row = (struct block){.base = base,
                          .size = content.size,
                          .fd = content.fd,
                          .device = content.device,
                          .opens = 1,
                          .owner = content.pid,
                          .accessible = reached};
    __atomic_fetch_add(open_count(row), 1, __ATOMIC_SEQ_CST);
    if (!reached) mprotect(base, content.size, PROT_NONE);
    return *out = base, 0;
}

EXPORT(hipIpcCloseMemHandle, (void *address), (address), "address=%p", address) {
    struct block *row = block_at(opened, address);
    if (!row) return misuse("an IPC handle is closed that is not open");
    if (--row->opens) return 0;
    __atomic_fetch_sub(open_count(row), 1, __ATOMIC_SEQ_CST);
    munmap(row->base, row->size + PAGE);
    return *row = (struct block){0}, 0;
}

static bool mapped(const void *at) {
    for (int i = 0; i < LIMIT; i++)
        if (inside(at, 1, pieces[i].base, pieces[i].size)) return true;
    return false;
}

/* Work on streams. The host is the device here, and does it at once. */
EXPORT(hipMemcpyAsync, (void *target, const void *source, size_t nbytes, int kind, void *stream),
       (target, source, nbytes, kind, stream), "target=%p source=%p nbytes=%zu kind=%d stream=%p current=%d", target,
       source, nbytes, kind, stream, current) {
    if (kind < 0 || kind > 4) return INVALID_DIRECTION;
    if (!usable(target, nbytes, false) || !usable(source, nbytes, false))
        return misuse("a copy touches memory that the current device has no access to, or stale access");
    return lost && (mapped(target) || mapped(source)) ? 0 : (memmove(target, source, nbytes), 0);
}

EXPORT(hipMemsetD8Async, (uint8_t *target, uint8_t value, size_t count, void *stream), (target, value, count, stream),
       "target=%p value=%d count=%zu stream=%p current=%d", target, value, count, stream, current) {
    if (!usable(target, count, true))
        return misuse("a fill touches memory that the current device has no access to, or stale access");
    return memset(target, value, count), 0;
}

EXPORT(hipStreamWriteValue64, (void *stream, void *target, uint64_t value, unsigned flags),
       (stream, target, value, flags), "stream=%p target=%p value=%lu flags=%u", stream, target, value, flags) {
    if (flags || (uintptr_t)target % 8) return INVALID_VALUE;
    if (!usable(target, 8, true)) return misuse("a stream writes to memory that the current device has no access to");
    return *(uint64_t *)target = value, 0;
}

EXPORT(hipStreamSynchronize, (void *stream), (stream), "stream=%p", stream) { return 0; }
EXPORT(hipStreamQuery, (void *stream), (stream), "stream=%p", stream) { return 0; }

/* Exchanges the mode of the calling thread: 0 global, 1 of the thread, 2 relaxed. */
EXPORT(hipThreadExchangeStreamCaptureMode, (int *mode), (mode), "held=%d", *mode) {
    static __thread int held;
    int wanted = *mode;
    if (wanted < 0 || wanted > 2) return INVALID_VALUE;
    return *mode = held, held = wanted, 0;
}

EXPORT(hipModuleLaunchKernel,
       (void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
        void *stream, void **parameters, void **extra),
       (function, x, y, z, bx, by, bz, shared, stream, parameters, extra), "grid=%u,%u,%u threads=%u", x, y, z, bx) {
    if (!function || !x || !y || !z || !bx || by != 1 || bz != 1 || !parameters || extra) return INVALID_VALUE;
    return 0;
}

/* Graphs of copies and fills. Of the nodes that may run, a launch takes the one that was added last.

The classic executor (rocm-systems#11499) drops an edge to the fifth child or a later one that has no other parent,
unless both are on one of its QUEUES queues: child i of a node on queue q is on queue q + i. */
enum { QUEUES = 4, NODES = 16 };

struct fill {
    void *target;
    unsigned element;
    size_t height, pitch;
    unsigned value;
    size_t width;
};
struct graph {
    struct node {
        void *target;
        const void *source; /* NULL: a fill */
        size_t nbytes;
        unsigned value, parents, waits /* a bit for each node */;
    } nodes[NODES];
    int count;
};
static int graphs;

EXPORT(hipGraphCreate, (struct graph * *out, unsigned flags), (out, flags), "flags=%u graph=%p", flags, (void *)*out) {
    if (flags) return INVALID_VALUE;
    graphs++;
    return *out = calloc(1, sizeof **out), 0;
}

static int end_graph(struct graph *graph) {
    if (!graph) return INVALID_VALUE;
    graphs--;
    return free(graph), 0;
}

EXPORT(hipGraphDestroy, (struct graph * graph), (graph), "graph=%p", (void *)graph) { return end_graph(graph); }
EXPORT(hipGraphExecDestroy, (struct graph * graph), (graph), "graph=%p", (void *)graph) { return end_graph(graph); }

EXPORT(hipGraphInstantiate, (struct graph * *out, const struct graph *graph, void *bad, char *text, size_t room),
       (out, graph, bad, text, room), "graph=%p", (const void *)graph) {
    if (!graph || (text && !room)) return INVALID_VALUE;
    graphs++;
    *out = malloc(sizeof **out);
    return memcpy(*out, graph, sizeof **out), 0;
}

/* Handles of nodes are their numbers from 1 on. */
static int add_node(uintptr_t *out, struct graph *graph, const uintptr_t *before, size_t count, struct node node) {
    if (!graph || graph->count == NODES) return INVALID_VALUE;
    if (!usable(node.target, node.nbytes, false) || (node.source && !usable(node.source, node.nbytes, false)))
        return misuse("a node touches memory that the current device has no access to");
    for (size_t i = 0; i < count; i++) {
        if (!before[i] || before[i] > (uintptr_t)graph->count) return INVALID_VALUE;
        unsigned parent = 1u << (before[i] - 1);
        int children = 0;
        for (int j = 0; j < graph->count; j++) children += !!(graph->nodes[j].parents & parent);
        node.parents |= parent;
        if (!drops || count > 1 || children < QUEUES || children % QUEUES == 0) node.waits |= parent;
    }
    graph->nodes[graph->count++] = node;
    return *out = graph->count, 0;
}

EXPORT(hipGraphAddMemsetNode,
       (uintptr_t *out, struct graph *graph, const uintptr_t *before, size_t count, const struct fill *fill),
       (out, graph, before, count, fill), "graph=%p count=%zu width=%zu", (void *)graph, count, fill->width) {
    if (fill->element != 1 || fill->height != 1) return INVALID_VALUE;
    struct node node = {.target = fill->target, .nbytes = fill->width, .value = fill->value};
    return add_node(out, graph, before, count, node);
}

EXPORT(hipGraphAddMemcpyNode1D,
       (uintptr_t *out, struct graph *graph, const uintptr_t *before, size_t count, void *target, const void *source,
        size_t nbytes, int kind),
       (out, graph, before, count, target, source, nbytes, kind), "graph=%p count=%zu nbytes=%zu kind=%d",
       (void *)graph, count, nbytes, kind) {
    if (kind < 0 || kind > 4) return INVALID_DIRECTION;
    struct node node = {.target = target, .source = source, .nbytes = nbytes};
    return add_node(out, graph, before, count, node);
}

EXPORT(hipGraphLaunch, (const struct graph *graph, void *stream), (graph, stream), "graph=%p stream=%p",
       (const void *)graph, stream) {
    if (!graph) return INVALID_VALUE;
    for (unsigned done = 0, all = (1u << graph->count) - 1; done != all;) {
        int next = graph->count - 1;
        while (done >> next & 1 || graph->nodes[next].waits & ~done) next--;
        const struct node *node = &graph->nodes[next];
        if (node->source)
            memmove(node->target, node->source, node->nbytes);
        else
            memset(node->target, node->value, node->nbytes);
        done |= 1u << next;
    }
    return 0;
}

int hipGetLastError(void) {
    int code = last_error;
    threads_with_error -= code != 0;
    last_error = 0;
    return code;
}

/* The number of threads whose next launch torch would report as failed. */
int standin_errors_left(void) { return threads_with_error; }

/* Words for codes, and what tests ask. */
static const struct {
    int code;
    const char *text;
} ERRORS[] = {
    {0, "no error"},
    {INVALID_VALUE, "invalid argument"},
    {OUT_OF_MEMORY, "out of memory"},
    {BAD_POINTER, "invalid device pointer"},
    {INVALID_DEVICE, "invalid device ordinal"},
    {INVALID_CONTEXT, "invalid device context"},
    {ALREADY_ENABLED, "peer access is already enabled"},
    {NOT_SUPPORTED, "operation not supported"},
    {999, "unknown error"},
};

const char *hipGetErrorString(int code) {
    int row = 0;
    while (ERRORS[row].code != code && ERRORS[row].code != 999) row++;
    return ERRORS[row].text;
}

/* Seven counts: handles, mapped pieces, reserved ranges, allocations, opened IPC handles, graphs, misuses. */
void standin_ledger(int counts[7]) {
    memset(counts, 0, 7 * sizeof *counts);
    for (int i = 0; i < LIMIT; i++) {
        counts[0] += handles[i].fd != 0;
        counts[1] += pieces[i].base != NULL;
        counts[2] += ranges[i].base != NULL;
        counts[3] += blocks[i].base != NULL;
        counts[4] += opened[i].base != NULL;
    }
    counts[5] = graphs;
    counts[6] = misuses;
}
