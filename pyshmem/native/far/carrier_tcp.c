#include "carrier_tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "../base/host.h"
#include "../base/spin.h"
#include "greeting.h"

enum { PATIENCE_MS = 30000 };

/* ---- the carrier ---- */

static ssize_t tcp_send(connection_t *c, struct iovec *v, int n) {
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
    return sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t tcp_receive(connection_t *c, char *into, uint64_t room) { return recv(c->fd, into, room, MSG_DONTWAIT); }

static int tcp_sleep(connection_t *c, short events) {
    struct pollfd p = {c->fd, events, 0};
    poll(&p, 1, SLICE_MS);
    return 0; /* the next receive finds an end */
}

/* A forked process may hold the connection too. */
INTERNAL void tcp_close(connection_t *c) {
    if (c->fd >= 0) shutdown(c->fd, SHUT_RDWR), close(c->fd);
    c->fd = -1;
}

static int tcp_keeps_writes(void) { return 0; }

INTERNAL const carrier_t tcp_carrier = {tcp_send, tcp_receive, tcp_sleep, tcp_close, tcp_keeps_writes, 1};

/* ---- opening ---- */

static int tcp_set_option(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value);
}

/* How long this PE waits for a target that does not answer at all. */
static int tcp_patience_ms(void) {
    return far->limit && far->limit / 1000000 < PATIENCE_MS ? (int)(far->limit / 1000000) + 1 : PATIENCE_MS;
}

/* A broken network ends connections: after this limit if data wait for their acknowledgement, and by probes if none do.
 */
INTERNAL void tcp_set_options(int fd) {
    tcp_set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    tcp_set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, tcp_patience_ms());
    tcp_set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    tcp_set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    tcp_set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
}

/* Receives n bytes of the greeting. */
static int tcp_receive_greeting(link_t *l, void *data, size_t n) {
    int64_t since = now_ns();
    for (size_t have = 0; have < n;) {
        ssize_t k = recv(l->conn.fd, (char *)data + have, n - have, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno == ECONNRESET)) return link_fail(l, EACCES); /* it has hung up */
        if (k < 0 && errno != EAGAIN && errno != EINTR) return link_fail(l, errno);
        if (k > 0) have += (size_t)k;
        if (k < 0 && link_poll(l, POLLIN, since)) return -1;
    }
    return 0;
}

/* Proves that this PE belongs to the job, after the target has. The greeting counts as a request. */
static int tcp_greet(link_t *l) {
    hello_t h = far->hello;
    challenge_t c;
    reply_t welcome;
    if (fresh_nonce(h.nonce)) return link_fail(l, errno);
    if (link_write(l, &(struct iovec){&h, sizeof h}, 1) || tcp_receive_greeting(l, &c, sizeof c)) return -1;
    if (c.code != greeting_code(far->token, BY_SERVICE, &h, c.nonce, l->conn.pe)) return link_fail(l, EKEYREJECTED);
    uint64_t code = greeting_code(far->token, BY_CALLER, &h, c.nonce, l->conn.pe);
    if (link_write(l, &(struct iovec){&code, sizeof code}, 1) || tcp_receive_greeting(l, &welcome, sizeof welcome))
        return -1;
    if (welcome.executed != 1 || welcome.value != (uint64_t)l->conn.pe || welcome.nbytes) return link_fail(l, EPROTO);
    l->sent = l->asked = l->executed = 1;
    return 0;
}

static int tcp_dial(link_t *l) {
    socklen_t n = sizeof(int);
    int error = 0;
    int64_t begun = now_ns();
    l->conn.fd = socket(l->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->conn.fd < 0) return link_fail(l, errno);
    tcp_set_options(l->conn.fd);
    if (connect(l->conn.fd, (struct sockaddr *)&l->address, l->address_bytes) && errno != EINPROGRESS)
        return link_fail(l, errno);
    while (poll(&(struct pollfd){l->conn.fd, POLLOUT, 0}, 1, SLICE_MS) == 0) {
        if (caller_interrupted()) return link_fail(l, EINTR);
        if (now_ns() - begun > tcp_patience_ms() * INT64_C(1000000)) return link_fail(l, ETIMEDOUT);
    }
    if (getsockopt(l->conn.fd, SOL_SOCKET, SO_ERROR, &error, &n) || error) return link_fail(l, error ? error : errno);
    return tcp_greet(l);
}

enum { DIALS = 3 }; /* the most of a connection */

/* Opens the connection. A server that hangs up on a PE because it has not run for a while is dialled again. */
INTERNAL int tcp_connect(link_t *l) {
    int64_t begun = now_ns();
    l->conn.carrier = &tcp_carrier;
    for (int more = DIALS; tcp_dial(l); begun = now_ns()) {
        if (!--more || l->error != EACCES || now_ns() - begun < GREETING_NS) return -1;
        close(l->conn.fd), l->conn.fd = -1, l->error = 0;
    }
    l->conn.carrier = far->carrier;
    pthread_mutex_lock(&far->lock);
    far->open[far->n_open++] = l;
    pthread_mutex_unlock(&far->lock);
    return 0;
}
