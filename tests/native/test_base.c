/* What all layers stand on: waits, searches, atomics, reductions, pools. */
#include "../../pyshmem/native/base/combine.h"
#include "../../pyshmem/native/base/copy.h"
#include "../../pyshmem/native/base/pool.h"
#include "../../pyshmem/native/base/spin.h"
#include "../../pyshmem/native/base/word.h"
#include "check.h"

void waits_end_in_time(void) {
    spin_t s = spin_begin(0.01, 10);
    int64_t begun = now_ns();
    while (spin_pause(&s)) {}
    CHECK(s.failed == 1 && now_ns() - begun >= 10000000);
    spin_end(&s);
    CHECK(!s.counted && activity->waits == 1);
}

static int interrupt(spin_t *s) { return ++*(int *)s->with == 2; }

void interrupted_waits_stop(void) {
    int looks = 0;
    spin_t s = spin_begin(0, 10);
    s.interrupted = interrupt, s.with = &looks;
    while (spin_pause(&s)) {}
    CHECK(s.failed == 2 && looks == 2);
    spin_end(&s);
}

/* At distances at which pieces are copied, of memory that overlaps too. */
void copies_of_overlapping_memory_are_those_of_memmove(void) {
    enum { ROOM = 20000, NBYTES = 9001 };
    static char ours[ROOM], theirs[ROOM];
    static const int distances[] = {16, 63, 64, 4112, 9000, 9001, 10000, -16, -4080, -4096, -8176, -9001, -10000};
    for (size_t k = 0; k < sizeof distances / sizeof *distances; k++) {
        for (int i = 0; i < ROOM; i++) ours[i] = theirs[i] = (char)(i * 31 + i / 256);
        int from = distances[k] < 0 ? -distances[k] : 0, to = from + distances[k];
        copy_bytes(ours + to, ours + from, NBYTES);
        memmove(theirs + to, theirs + from, NBYTES);
        CHECK(!memcmp(ours, theirs, ROOM));
    }
}

void searches_begin_anywhere_and_skip_what_is_excluded(void) {
    const int32_t words[] = {5, 1, 5, 5}, five = 5;
    const int32_t excluded[] = {0, 0, 1, 0};
    CHECK(find_int32(words, 4, EQ, &five, 0, NULL, 0) == 0);
    CHECK(find_int32(words, 4, EQ, &five, 0, NULL, 1) == 2);
    CHECK(find_int32(words, 4, EQ, &five, 0, excluded, 1) == 3);
    CHECK(find_int32(words, 4, LT, &five, 0, NULL, 3) == 1);
    CHECK(find_int32(words, 4, GT, &five, 0, NULL, 0) == -1);
    int seen[4] = {0};
    for (int i = 0; i < 40; i++) seen[next_first(4)]++;
    for (int i = 0; i < 4; i++) CHECK(seen[i] > 5);
}

void atomics_by_number_are_those_by_name(void) {
    uint64_t word = 40;
    CHECK(appliers[TYPE_uint64].apply(OP_add, &word, 2, 0) == 40 && word == 42);
    CHECK(appliers[TYPE_uint64].apply(OP_compare_swap, &word, 7, 42) == 42 && word == 7);
    CHECK(appliers[TYPE_int64].apply(OP_xor, &word, UINT64_MAX, 0) == 7 && word == ~UINT64_C(7));
    float halves = 0.5f;
    CHECK(appliers[TYPE_float32].item == 4);
    appliers[TYPE_float32].apply(OP_add, &halves, bits_float32(0.25f), 0);
    CHECK(halves == 0.75f);
    CHECK(appliers[TYPE_float32].apply(OP_and, &halves, 0, 0) == 0 && halves == 0.75f); /* not defined for floats */
}

void half_types_round_to_the_nearest(void) {
    const kind_t *half = &kinds[KIND_float16], *brain = &kinds[KIND_bfloat16];
    const float exact[] = {0.0f, 1.0f, -2.5f, 65504.0f, 0x1p-24f, 1.0f + 0x1p-11f};
    for (int i = 0; i < 6; i++) {
        uint16_t narrow;
        float wide;
        half->narrow(&narrow, &exact[i], 1), half->widen(&wide, &narrow, 1);
        CHECK(wide == (i == 5 ? 1.0f : exact[i])); /* half of the last bit goes to the even neighbour */
        brain->narrow(&narrow, &exact[i], 1), brain->widen(&wide, &narrow, 1);
        CHECK(wide >= exact[i] * 0.99f || exact[i] < 0);
    }
}

void pools_give_the_first_gap(void) {
    static char memory[4096];
    size_t count;
    CHECK(pool_add((uint64_t)memory, sizeof memory, POOL_CPU));
    void *a = pool_take(100, POOL_CPU), *b = pool_take(600, POOL_CPU), *c = pool_take(1, POOL_CPU);
    CHECK(a == memory && b == memory + 512 && c == memory + 512 + 1024);
    CHECK(!pool_take(1, POOL_GPU) && !pool_take(4096, POOL_CPU));
    pool_give((uint64_t)b);
    CHECK(pool_take(1024, POOL_CPU) == b);
    free(pool_blocks(POOL_CPU, &count));
    CHECK(count == 3);
    pool_give((uint64_t)a), pool_give((uint64_t)b);
    CHECK(pool_take(1536, POOL_CPU) == a); /* neighbours become one */
    pool_end();
    free(pool_blocks(POOL_STALE, &count));
    CHECK(count == 2);
    pool_give((uint64_t)a), pool_give((uint64_t)c);
    free(pool_blocks(POOL_STALE, &count));
    CHECK(count == 0);
}
