/* The side that executes: one request, one connection, and what no PE of the job would send. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../pyshmem/native/base/word.h"
#include "../../pyshmem/native/far/carrier_tcp.h"
#include "../../pyshmem/native/far/greeting.h"
#include "../../pyshmem/native/far/life.h"
#include "../../pyshmem/native/far/session.h"
#include "check.h"
#include "world.h"

static session_t *new_session(int fd, int pe) {
    session_t *p = calloc(1, sizeof *p);
    CHECK(p);
    p->conn = (connection_t){.carrier = &tcp_carrier, .pe = pe, .end = TARGET, .fd = fd};
    return p;
}

void requests_outside_the_heap_are_refused(void) {
    open_world();
    const request_t wrong[] = {
        {.op = PUT, .offset = HEAP, .nbytes = 1},
        {.op = GET, .offset = 8, .nbytes = UINT64_MAX},
        {.op = PUT, .offset = 0, .nbytes = 8, .detail = 1},
        {.op = PUT_STRIDED, .detail = 0, .nbytes = 8, .value = 8},
        {.op = PUT_STRIDED, .detail = 8, .nbytes = 12, .value = 8},
        {.op = PUT_STRIDED, .detail = 8, .nbytes = CHUNK + 8, .value = 8},
        {.op = GET_STRIDED, .detail = 8, .nbytes = 16, .value = HEAP},
        {.op = UPDATE, .detail = OP_add * 16 + TYPE_uint64, .offset = HEAP - 4},
        {.op = FETCH, .detail = OP_COUNT * 16, .offset = 0},
        {.op = FETCH, .detail = TYPES, .offset = 0},
        {.op = POST, .offset = 4, .cond = 0},
        {.op = POST, .offset = 0, .cond = FAR_GPU},
        {.op = HOLD, .offset = 0, .value = 1}, /* outside of a self-test */
        {.op = PUT, .offset = FAR_GPU, .nbytes = 8},
        {.op = 0},
        {.op = HOLD + 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK(!request_is_valid(&wrong[i]));
    CHECK(request_is_valid(&(request_t){.op = PUT, .offset = HEAP - 8, .nbytes = 8}));
    CHECK(request_is_valid(&(request_t){.op = GET, .offset = HEAP}));
    CHECK(request_is_valid(&(request_t){.op = FLUSH}));
    close_world();
}

static reply_t last_reply(session_t *p) {
    reply_t r;
    memcpy(&r, p->out, sizeof r);
    p->out_end = 0;
    return r;
}

void requests_do_what_they_say(void) {
    open_world();
    session_t *p = new_session(-1, 1);
    uint64_t *words = (uint64_t *)heap, items[] = {1, 2, 3};
    execute_request(p, &(request_t){.op = PUT, .offset = 8, .nbytes = 8}, (char *)&(uint64_t){42});
    CHECK(words[1] == 42 && p->executed == 1 && !p->out_end);
    execute_request(p, &(request_t){.op = PUT_STRIDED, .detail = 8, .nbytes = 24, .value = 16, .asks = 1},
                    (char *)items);
    CHECK(words[0] == 1 && words[2] == 2 && words[4] == 3 && words[1] == 42 && last_reply(p).executed == 2);
    execute_request(p, &(request_t){.op = FETCH, .detail = OP_add * 16 + TYPE_uint64, .offset = 8, .value = 8}, NULL);
    CHECK(last_reply(p).value == 42 && words[1] == 50);
    execute_request(p, &(request_t){.op = GET_STRIDED, .detail = 8, .nbytes = 24, .value = 16}, NULL);
    CHECK(!memcmp(p->out + sizeof(reply_t), items, sizeof items) && last_reply(p).nbytes == 24);
    execute_request(p, &(request_t){.op = POST, .offset = 64, .value = 9, .cond = 72}, NULL);
    CHECK(words[8] == 9 && !p->out_end);
    execute_request(p, &(request_t){.op = UPDATE, .detail = OP_add * 16 + TYPE_uint64, .offset = 4, .value = 1}, NULL);
    CHECK(last_reply(p).nbytes == MISALIGNED && words[0] == 1 && words[1] == 50);
    execute_request(p, &(request_t){.op = BYE}, NULL);
    CHECK(p->left && p->executed == 7);
    free(p);
    close_world();
}

void large_replies_leave_from_the_heap(void) {
    open_world();
    session_t *p = new_session(-1, 1);
    execute_request(p, &(request_t){.op = GET, .offset = 64, .nbytes = 3 * CHUNK}, NULL);
    CHECK(p->tail == heap + 64 && p->tail_left == 3 * CHUNK && p->out_end == sizeof(reply_t));
    free(p);
    close_world();
}

/* Appends a random request, performs it on `model`, and returns its bytes. */
static uint64_t random_request(uint64_t *state, char *to, char *model) {
    request_t r = {.op = PUT, .offset = chance(state) % (HEAP / 2), .nbytes = chance(state) % 300};
    if (chance(state) % 20 == 0) r.nbytes = CHUNK + chance(state) % (2 * CHUNK);
    if (chance(state) % 3 == 0) {
        r = (request_t){.op = UPDATE, .detail = OP_add * 16 + TYPE_uint64, .value = chance(state)};
        r.offset = chance(state) % (HEAP / 8) * 8;
        uint64_t sum;
        memcpy(&sum, model + r.offset, 8);
        sum += r.value;
        memcpy(model + r.offset, &sum, 8);
    }
    memcpy(to, &r, sizeof r);
    for (uint64_t i = 0; i < request_data(&r); i++) to[sizeof r + i] = model[r.offset + i] = (char)chance(state);
    return sizeof r + request_data(&r);
}

void a_session_does_not_care_how_bytes_arrive(void) {
    static char model[HEAP], bytes[1 << 20];
    for (uint64_t seed = 1; seed < 9; seed++) {
        int pair[2];
        uint64_t state = seed, n = 0;
        open_world();
        memset(model, 0, sizeof model);
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
        session_t *p = new_session(pair[0], 1);
        while (n < sizeof bytes - 4 * CHUNK) n += random_request(&state, bytes + n, model);
        for (uint64_t at = 0; at < n;) {
            uint64_t most = chance(&state) % 5 ? 1 + chance(&state) % 100 : 1 + chance(&state) % 30000;
            ssize_t k = send(pair[1], bytes + at, at + most < n ? most : n - at, 0);
            if (k > 0) at += (uint64_t)k;
            CHECK(session_serve(p) >= 0);
        }
        while (p->have || p->rest) CHECK(session_serve(p) >= 0);
        CHECK(!memcmp(heap, model, HEAP));
        close(pair[1]);
        CHECK(session_serve(p) == -1);
        close(pair[0]);
        free(p);
        close_world();
    }
}

/* Greets with a code of another token, or with chance. */
static int greets(session_t *p, int fd, uint64_t *state, int kind) {
    hello_t hello = greeting_hello(JOB, 1, 2);
    challenge_t c;
    char noise[sizeof hello];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)chance(state);
    if (kind == 0) return send(fd, noise, sizeof noise, 0) < 0 || session_serve(p) < 0;
    CHECK(send(fd, &hello, sizeof hello, 0) == sizeof hello && session_serve(p) >= 0);
    CHECK(recv(fd, &c, sizeof c, 0) == sizeof c);
    CHECK(c.code == greeting_code(token, BY_SERVICE, &hello, c.nonce, 0));
    const uint64_t other[] = {token[0], token[1] ^ (kind == 1)};
    uint64_t code = greeting_code(other, BY_CALLER, &hello, c.nonce, 0);
    CHECK(send(fd, &code, sizeof code, 0) == sizeof code);
    return session_serve(p) < 0;
}

void strangers_reach_nothing(void) {
    uint64_t state = 5;
    for (int kind = 0; kind < 3; kind++) {
        int pair[2];
        open_world();
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
        session_t *p = new_session(pair[0], -1);
        CHECK(greets(p, pair[1], &state, kind) == (kind < 2));
        CHECK((p->conn.pe == 1) == (kind == 2) && (far->incoming[1] == &p->conn) == (kind == 2));
        close(pair[0]), close(pair[1]);
        free(p);
        close_world();
    }
}

void garbage_ends_the_process(void) {
    for (uint64_t seed = 1; seed < 6; seed++) {
        int pair[2], status;
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            uint64_t state = seed;
            char noise[4096];
            for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)chance(&state);
            int null = open("/dev/null", O_WRONLY);
            dup2(null, 2);
            open_world();
            session_t *p = new_session(pair[0], 1);
            if (send(pair[1], noise, sizeof noise, 0) > 0) session_serve(p);
            _exit(7); /* it has taken them for requests */
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1);
        close(pair[0]), close(pair[1]);
    }
}
