/* How two PEs that have just connected prove to each other that they belong to one job.
 *
 * Both know the job's token, which came over MPI, and neither sends it: each sends a fresh nonce and a code of both
 * nonces, SipHash-2-4 (Aumasson and Bernstein) with the token as key. The service proves itself first. What a listener
 * records proves nothing on the next connection. Data are neither encrypted nor authenticated. */
#pragma once
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

enum { TOKEN = 16, BY_CALLER = 1, BY_SERVICE = 2 };
enum { GREETING_NS = 2000000000 }; /* after which a service hangs up on who has not greeted it */

/* The caller sends hello_t, the service answers with challenge_t, and the caller with its code. A reply whose value is
 * the number of the service's PE welcomes it. */
typedef struct {
    char magic[8];
    uint64_t job;
    int32_t pe, n_pes;
    uint64_t nonce[2];
} hello_t;
typedef struct {
    uint64_t nonce[2], code;
} challenge_t;
static const char MAGIC[8] = "pyshmem2"; /* the last character is the version of the protocol */

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
static uint64_t sip_hash(const uint64_t key[2], const uint64_t *words, uint64_t n) {
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
static uint64_t code_of(const uint64_t key[2], int side, const hello_t *h, const uint64_t nonce[2], int pe) {
    uint64_t words[] = {(uint64_t)side,         h->nonce[0],     h->nonce[1], nonce[0], nonce[1],
                        (uint64_t)(uint32_t)pe, (uint32_t)h->pe, h->job};
    return sip_hash(key, words, sizeof words / sizeof *words);
}

static int fresh_nonce(uint64_t nonce[2]) { return getrandom(nonce, 16, 0) == 16 ? 0 : -1; }
