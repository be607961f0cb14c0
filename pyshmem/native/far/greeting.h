/* How two PEs that have just connected prove to each other that they belong to one job.
 *
 * Both know the job's token, which came over MPI, and neither sends it: each sends a fresh nonce and a code of both
 * nonces, SipHash-2-4 (Aumasson and Bernstein) with the token as key. The service proves itself first. What a listener
 * records proves nothing on the next connection. Data are neither encrypted nor authenticated. */
#pragma once
#include "../base/internal.h"
#include "protocol.h"

enum { TOKEN = 16, BY_CALLER = 1, BY_SERVICE = 2 };
enum { GREETING_NS = 2000000000 }; /* after which a server hangs up on who has not greeted it */

INTERNAL hello_t greeting_hello(uint64_t job, int pe, int n_pes);
INTERNAL int greeting_is_of_job(const hello_t *hello, const hello_t *own);
INTERNAL uint64_t greeting_code(const uint64_t key[2], int side, const hello_t *h, const uint64_t nonce[2], int pe);
INTERNAL uint64_t sip_hash(const uint64_t key[2], const uint64_t *words, uint64_t n);
INTERNAL int fresh_nonce(uint64_t nonce[2]);
