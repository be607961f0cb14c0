/* What PEs of different nodes send to each other. */
#include <stddef.h>

#include "../../pyshmem/native/far/greeting.h"
#include "../../pyshmem/native/far/protocol.h"
#include "check.h"

/* A PE of another build reads these bytes: another number here is another PROTOCOL_VERSION. */
void layouts_of_the_protocol_have_no_gaps(void) {
    CHECK(PROTOCOL_VERSION == 4);
    CHECK(sizeof(hello_t) == 40 && offsetof(hello_t, job) == 8 && offsetof(hello_t, pe) == 16);
    CHECK(sizeof(challenge_t) == 24 && offsetof(challenge_t, code) == 16);
    CHECK(sizeof(request_t) == 40 && offsetof(request_t, detail) == 4 && offsetof(request_t, offset) == 8);
    CHECK(offsetof(request_t, nbytes) == 16 && offsetof(request_t, value) == 24 && offsetof(request_t, cond) == 32);
    CHECK(sizeof(reply_t) == 24 && offsetof(reply_t, value) == 8 && offsetof(reply_t, nbytes) == 16);
    CHECK(sizeof(message_head_t) == 16 && MESSAGE <= UINT16_MAX);
    CHECK(PUT == 1 && FETCH == 6 && HOLD == 10);
    uint64_t place = (UINT64_C(5) << FAR_SHIFT) | FAR_GPU | 77;
    CHECK(is_far(place) && place_pe(place) == 4 && place_offset(place) == (FAR_GPU | 77));
    CHECK(!is_far(4096) && !is_far(UINT64_MAX));
}

void siphash_gives_its_authors_vector(void) {
    const uint64_t key[] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    const uint64_t word = UINT64_C(0x0706050403020100);
    CHECK(sip_hash(key, &word, 0) == UINT64_C(0x726fdb47dd0e0e31));
    CHECK(sip_hash(key, &word, 1) == UINT64_C(0x93f5f5799a932462));
}

void other_versions_are_no_greeting(void) {
    hello_t own = greeting_hello(77, 0, 4), hello = greeting_hello(77, 3, 4);
    CHECK(greeting_is_of_job(&hello, &own));
    hello.version--;
    CHECK(!greeting_is_of_job(&hello, &own));
    hello = greeting_hello(78, 3, 4);
    CHECK(!greeting_is_of_job(&hello, &own));
    hello = greeting_hello(77, 4, 4);
    CHECK(!greeting_is_of_job(&hello, &own));
    hello = greeting_hello(77, -1, 4);
    CHECK(!greeting_is_of_job(&hello, &own));
    hello = greeting_hello(77, 1, 5);
    CHECK(!greeting_is_of_job(&hello, &own));
    const uint64_t key[] = {1, 2}, nonce[] = {3, 4};
    CHECK(greeting_code(key, BY_CALLER, &own, nonce, 1) != greeting_code(key, BY_SERVICE, &own, nonce, 1));
    CHECK(greeting_code(key, BY_CALLER, &own, nonce, 1) != greeting_code(key, BY_CALLER, &own, nonce, 2));
}
