/* What carries the bytes of a connection: TCP, or messages of a fabric. Links and sessions call it by this table alone,
 * so another carrier is another table (carrier_tcp.c, carrier_fabric.c), which far->carrier may name for the
 * connections that this PE opens. */
#pragma once
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { TARGET, ORIGIN }; /* the ends of a connection: that of a session, and that of the link that has opened it */

typedef struct connection connection_t;
typedef struct {
    ssize_t (*send)(connection_t *, struct iovec *v, int n);       /* what fits now, as sendmsg does */
    ssize_t (*receive)(connection_t *, char *into, uint64_t room); /* what has come, as recv does */
    int (*sleep)(connection_t *, short events); /* until poll's events, but not for long; -1: it has ended */
    void (*close)(connection_t *);
    int (*keeps_writes)(void); /* whether requests arrive after this PE's earlier RMA without a wait */
    int reports; /* whether the descriptor reports all that comes: otherwise it has the goodbye and the end alone */
} carrier_t;

/* The messages of a connection (carrier_fabric.c). Counts of them: sent, freed: by this side, and those that the other
 * one has taken; taken, told: of the other side, and what it knows of these. first: of the list of those that have
 * come, by number; at: the bytes of the next one that have been taken. ready: whether it is in the list of connections
 * of which messages have come. */
typedef struct {
    uint64_t sent, freed, taken, told, at;
    struct message *first;
    connection_t *next_ready;
    int ready;
} messages_t;

/* pe: at the other end; -1 before its greeting. fd: of TCP, which each connection has; or -1. */
struct connection {
    const carrier_t *carrier;
    int pe, end, fd;
    messages_t messages;
};
