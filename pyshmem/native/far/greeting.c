#include "greeting.h"

#include <string.h>
#include <sys/random.h>

static uint64_t rotated(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static void sip_rounds(uint64_t v[4], int count) {
    while (count--) {
        v[0] += v[1], v[1] = rotated(v[1], 13) ^ v[0], v[0] = rotated(v[0], 32);
        v[2] += v[3], v[3] = rotated(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = rotated(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = rotated(v[1], 17) ^ v[2], v[2] = rotated(v[2], 32);
    }
}

/* SipHash-2-4 of n words. */
INTERNAL uint64_t sip_hash(const uint64_t key[2], const uint64_t *words, uint64_t n) {
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    for (uint64_t i = 0; i <= n; i++) {
        uint64_t word = i < n ? words[i] : n * 8 << 56; /* the last word has the number of bytes */
        v[3] ^= word;
        sip_rounds(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The code by which one side of a connection to PE `pe` proves itself. */
INTERNAL uint64_t greeting_code(const uint64_t key[2], int side, const hello_t *h, const uint64_t nonce[2], int pe) {
    uint64_t words[] = {(uint64_t)side,         h->nonce[0],     h->nonce[1], nonce[0], nonce[1],
                        (uint64_t)(uint32_t)pe, (uint32_t)h->pe, h->job};
    return sip_hash(key, words, sizeof words / sizeof *words);
}

INTERNAL int fresh_nonce(uint64_t nonce[2]) { return getrandom(nonce, 16, 0) == 16 ? 0 : -1; }

/* The hello of a PE, but for its nonce. */
INTERNAL hello_t greeting_hello(uint64_t job, int pe, int n_pes) {
    hello_t h = {.version = PROTOCOL_VERSION, .job = job, .pe = pe, .n_pes = n_pes};
    memcpy(h.name, PROTOCOL_NAME, sizeof h.name);
    return h;
}

/* Whether a PE of the same job says hello, in the same version of the protocol. */
INTERNAL int greeting_is_of_job(const hello_t *hello, const hello_t *own) {
    return !memcmp(hello->name, own->name, sizeof own->name) && hello->version == own->version &&
           hello->job == own->job && hello->n_pes == own->n_pes && hello->pe >= 0 && hello->pe < own->n_pes;
}
