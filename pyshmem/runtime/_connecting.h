/* The connection of a link: it is opened by the first request, with a greeting (_greeting.h), and entered by each call.
 */
#pragma once
#include "_links.h"

static int set_option(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value);
}

/* How long this PE waits for a target that does not answer at all. */
static int patience_ms(void) {
    return far->limit && far->limit / 1000000 < PATIENCE_MS ? (int)(far->limit / 1000000) + 1 : PATIENCE_MS;
}

/* A broken network ends connections: after this limit if data wait for their acknowledgement, and by probes if none do.
 */
static void set_options(int fd) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, patience_ms());
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
}

/* Receives n bytes of the greeting. */
static int receive_greeting(link_t *l, void *data, size_t n) {
    int64_t since = now_ns();
    for (size_t have = 0; have < n;) {
        ssize_t k = recv(l->fd, (char *)data + have, n - have, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno == ECONNRESET)) return link_fail(l, EACCES); /* it has hung up */
        if (k < 0 && errno != EAGAIN && errno != EINTR) return link_fail(l, errno);
        if (k > 0) have += (size_t)k;
        if (k < 0 && link_poll(l, POLLIN, since)) return -1;
    }
    return 0;
}

/* Proves that this PE belongs to the job, after the target has. The greeting counts as a request. */
static int link_greet(link_t *l) {
    hello_t h = far->hello;
    challenge_t c;
    reply_t welcome;
    if (fresh_nonce(h.nonce)) return link_fail(l, errno);
    if (link_write(l, &(struct iovec){&h, sizeof h}, 1) || receive_greeting(l, &c, sizeof c)) return -1;
    if (c.code != code_of(far->token, BY_SERVICE, &h, c.nonce, l->pe)) return link_fail(l, EKEYREJECTED);
    uint64_t code = code_of(far->token, BY_CALLER, &h, c.nonce, l->pe);
    if (link_write(l, &(struct iovec){&code, sizeof code}, 1) || receive_greeting(l, &welcome, sizeof welcome))
        return -1;
    if (welcome.executed != 1 || welcome.value != (uint64_t)l->pe || welcome.nbytes) return link_fail(l, EPROTO);
    l->sent = l->asked = l->executed = 1;
    return 0;
}

static int link_dial(link_t *l) {
    socklen_t n = sizeof(int);
    int error = 0;
    int64_t begun = now_ns();
    l->fd = socket(l->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0) return link_fail(l, errno);
    set_options(l->fd);
    if (connect(l->fd, (struct sockaddr *)&l->address, l->address_bytes) && errno != EINPROGRESS)
        return link_fail(l, errno);
    while (poll(&(struct pollfd){l->fd, POLLOUT, 0}, 1, SLICE_MS) == 0) {
        if (check_signals()) return link_fail(l, EINTR);
        if (now_ns() - begun > patience_ms() * INT64_C(1000000)) return link_fail(l, ETIMEDOUT);
    }
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &n) || error) return link_fail(l, error ? error : errno);
    return link_greet(l);
}

enum { DIALS = 3 }; /* the most of a connection */

/* Opens the connection. A service that hangs up on a PE because it has not run for a while is dialled again. */
static int link_connect(link_t *l) {
    int64_t begun = now_ns();
    for (int more = DIALS; link_dial(l); begun = now_ns()) {
        if (!--more || l->error != EACCES || now_ns() - begun < GREETING_NS) return -1;
        close(l->fd), l->fd = -1, l->error = 0;
    }
    l->wire.on = uses_messages();
    pthread_mutex_lock(&far->lock);
    far->open[far->n_open++] = l;
    pthread_mutex_unlock(&far->lock);
    return 0;
}

/* Waits for writes and reads by the fabric, if nothing else orders them before a request. Locks the link, and connects
 * it if necessary. Returns 0, or -1 for a failure, after which it is not locked. */
static int link_enter(link_t *l) {
    if ((!follows_writes(l) && fabric_settle(l)) || pthread_mutex_lock(&l->lock)) return -1;
    if (l->error || (l->fd < 0 && link_connect(l))) {
        pthread_mutex_unlock(&l->lock);
        return -1;
    }
    return 0;
}

static link_t *link_leave(link_t *l, int failed) {
    pthread_mutex_unlock(&l->lock);
    return failed ? l : NULL;
}
