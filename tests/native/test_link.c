/* The side that asks: over a socketpair whose other end the test plays, and from a PE to itself by its own server. */
#include <errno.h>
#include <unistd.h>

#include "../../pyshmem/native/base/spin.h"
#include "../../pyshmem/native/base/word.h"
#include "../../pyshmem/native/far/calls.h"
#include "../../pyshmem/native/far/carrier_tcp.h"
#include "../../pyshmem/native/far/life.h"
#include "check.h"
#include "world.h"

/* PE 1 is at the other end of a pair of sockets, and has greeted. */
static link_t *open_pair(int *other) {
    int pair[2];
    struct sockaddr_storage unused = {0};
    open_world();
    CHECK(far_add(far, 1, "played", &unused, sizeof unused));
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    link_t *l = far->links[1];
    l->conn.fd = pair[0], l->sent = l->asked = l->executed = 1;
    far->open[far->n_open++] = l;
    *other = pair[1];
    return l;
}

static request_t next_request(int fd) {
    request_t r;
    CHECK(recv(fd, &r, sizeof r, MSG_WAITALL) == sizeof r);
    return r;
}

static const uint64_t PLACE = UINT64_C(2) << FAR_SHIFT;

void small_puts_leave_together(void) {
    int other;
    char data[8] = "pyshmem";
    link_t *l = open_pair(&other);
    int more = 64;
    l->batch_bytes = 0;
    /* a put follows another one within microseconds only if this thread keeps its core */
    while (l->batch_bytes == 0 && more--) CHECK(!far_put(PLACE + 8, data, 8));
    CHECK(l->batch_bytes == sizeof(request_t) + 8 && far->holding);
    uint64_t puts = l->sent - 1;
    reply_t done = {l->sent + 1, 0, 0}; /* the next request completes all */
    CHECK(!far_fence());
    request_t r = next_request(other);
    CHECK(r.op == PUT && r.offset == 8 && r.nbytes == 8 && r.asks);
    CHECK(recv(other, data, 8, MSG_WAITALL) == 8);
    for (uint64_t i = 2; i < puts; i++) CHECK(next_request(other).op == PUT && recv(other, data, 8, MSG_WAITALL) == 8);
    CHECK(recv(other, &r, sizeof r, MSG_DONTWAIT) == -1); /* the last one is held */
    CHECK(send(other, &done, sizeof done, 0) == sizeof done);
    CHECK(!far_quiet() && l->executed == done.executed);
    CHECK(next_request(other).op == PUT && recv(other, data, 8, MSG_WAITALL) == 8);
    CHECK(next_request(other).op == FLUSH);
    close(other);
    l->error = ECONNRESET;
    close_world();
}

void a_link_that_ends_fails_its_calls(void) {
    int other;
    uint64_t value = 0;
    link_t *l = open_pair(&other);
    close(other);
    CHECK(far_get((char *)&value, PLACE, 8, 1) == l && (l->error == EPIPE || l->error == ECONNRESET));
    CHECK(far_put(PLACE, (char *)&value, 8) == l && far_quiet() == l);
    close_world();
}

void replies_that_nobody_expects_end_a_link(void) {
    const reply_t wrong[] = {{9, 0, 0}, {2, 0, 16}, {2, 0, UINT64_MAX}};
    for (int i = 0; i < 3; i++) {
        int other;
        uint64_t value = 0;
        link_t *l = open_pair(&other);
        CHECK(send(other, &wrong[i], sizeof wrong[i], 0) == sizeof wrong[i]);
        CHECK(far_get((char *)&value, PLACE, 8, 1) == l && link_error(l) == EPROTO && value == 0);
        close(other);
        close_world();
    }
}

/* This PE calls its own server. */
void calls_reach_the_memory_of_a_pe(void) {
    struct sockaddr_storage address;
    socklen_t length;
    static char source[1 << 18], dest[1 << 18];
    const uint64_t place = UINT64_C(1) << FAR_SHIFT;
    uint64_t old = 0, state = 3;
    open_world();
    int listener = listen_on_loopback(&address, &length);
    CHECK(far_add(far, 0, "here", &address, length) && !far_start(far, listener));
    for (size_t i = 0; i < sizeof source; i++) source[i] = (char)chance(&state);
    for (uint64_t nbytes = 1; nbytes <= sizeof source; nbytes *= 3) {
        CHECK(!far_put(place + nbytes, source, nbytes) && !far_quiet());
        CHECK(!memcmp(heap + nbytes, source, nbytes));
        CHECK(!far_get(dest, place + nbytes, nbytes, 1) && !memcmp(dest, source, nbytes));
    }
    uint64_t *words = (uint64_t *)heap;
    words[0] = 5;
    CHECK(!far_atomic(place, OP_add * 16 + TYPE_uint64, 37, 0, &old, 1) && old == 5);
    CHECK(!far_atomic(place, OP_xor * 16 + TYPE_uint64, 1, 0, NULL, 1) && !far_quiet() && words[0] == 43);
    CHECK(!far_put_strided(place + 1024, source, 32, 8, 8, 1000) && !far_quiet());
    for (int i = 0; i < 1000; i++) CHECK(!memcmp(heap + 1024 + 32 * i, source + 8 * i, 8));
    CHECK(!far_get_strided(dest, place + 1024, 16, 32, 8, 1000));
    for (int i = 0; i < 1000; i++) CHECK(!memcmp(dest + 16 * i, source + 8 * i, 8));
    CHECK(!far_put_signal(place + 4096, source, 100000, place, OP_set * 16 + TYPE_uint64, 99));
    while (__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) != 99) usleep(10);
    CHECK(!memcmp(heap + 4096, source, 100000));
    CHECK(!far_fence() && !far_quiet_pe(0) && !far_quiet());
    close_world();
}
