#include "world.h"

#include <netinet/in.h>
#include <sys/eventfd.h>

#include "../../pyshmem/native/far/life.h"
#include "check.h"

_Alignas(64) char heap[HEAP];

far_t *open_world(void) {
    static int wake;
    far = far_new(0, 2, JOB, token);
    if (!wake) wake = eventfd(0, EFD_CLOEXEC);
    CHECK(far && wake > 0);
    far->wake = wake; /* that of the server, if it is started */
    memset(heap, 0, sizeof heap);
    far->base = heap, far->length = HEAP, far->spins = 50, far->limit = INT64_C(20000000000);
    return far;
}

void close_world(void) {
    far_stop();
    far_free(far);
    far = NULL;
}

int listen_on_loopback(struct sockaddr_storage *address, socklen_t *length) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    *length = sizeof here;
    CHECK(listener >= 0 && !bind(listener, (struct sockaddr *)&here, sizeof here) && !listen(listener, 16));
    CHECK(!getsockname(listener, (struct sockaddr *)address, length));
    return listener;
}
