/* Copies in CPU memory, which write words by single stores. Nothing here knows Python. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Copies of at least this size let other threads of Python run: taking the GIL again costs about 50 ns, copying 128 KiB
 * about 3 us. */
enum { RELEASE_BYTES = 131072 };

/* memmove, at full speed where dst lies less than 64 bytes after src within their pages, as memory of malloc does to a
 * heap's. glibc copies 4 KiB and more by rep movsb, which then takes up to 25 times as long on AMD's Zen 3 and later
 * (2026). Pieces are copied by other instructions; from the end on, no load follows a store to its place in a page.
 * That is the order of memmove too, if dst is the later one of two that overlap. */
enum { SHORT_COPY = 2048 };
static inline void copy_bytes(char *dst, const char *src, size_t nbytes) {
    uintptr_t apart = (uintptr_t)dst - (uintptr_t)src;
    int is_slow = nbytes > SHORT_COPY && (apart - 1) % 4096 < 63 && (dst > src || -apart >= nbytes);
    for (; is_slow && nbytes > SHORT_COPY; nbytes -= SHORT_COPY)
        memmove(dst + nbytes - SHORT_COPY, src + nbytes - SHORT_COPY, SHORT_COPY);
    memmove(dst, src, nbytes);
}

/* Copies an aligned word of at most 8 bytes by one store, because programs set flags with put and p and poll them
 * (spec, Atomicity). */
static inline void copy_item(char *dst, const char *src, size_t nbytes) {
    uintptr_t both = (uintptr_t)dst | (uintptr_t)src;
#define WORD(T)                                                  \
    {                                                            \
        T v = __atomic_load_n((const T *)src, __ATOMIC_RELAXED); \
        __atomic_store_n((T *)dst, v, __ATOMIC_RELAXED);         \
        return;                                                  \
    }
    if (nbytes == 8 && !(both & 7)) WORD(uint64_t)
    if (nbytes == 4 && !(both & 3)) WORD(uint32_t)
    if (nbytes == 2 && !(both & 1)) WORD(uint16_t)
    copy_bytes(dst, src, nbytes);
}

/* Copies from a buffer, in which a word may lie at any address. */
static inline void copy_unaligned(char *to, const char *from, uint64_t nbytes) {
    uint64_t word;
    if (nbytes <= 8) from = memcpy(&word, from, nbytes);
    copy_item(to, from, nbytes);
}
