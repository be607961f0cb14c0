/* Teams, whose members meet and tell each other of their calls. They write into each other's memory: into that of
 * members on this node by stores, into that of far members by requests (far/calls.h).
 *
 * A team owns one area, which has the same offset on each member. It contains the epoch and flags of the barrier (2048
 * bytes), two notes, counters of the calls that this PE has begun, mailboxes for small exchanges, what the last calls
 * were, and flags for each member. Members make the same calls in the same order, so equal counters mean the same call.
 * Each call has a word, which tells routine, type, size and root. What members exchange as they meet also has the
 * number of the call, so that no two calls are combined: if it differs the call ends with the outcome DIFFERENT on all
 * of them
 * (differences.h), before it has written results. If an exception or a time-out ends a call on one member, all others
 * get the outcome BROKEN, in this call and in later ones (broken.h). Epochs only grow, and nothing is reset between
 * calls. A call waits for every store of a peer into this PE's area before it returns, so an idle area can be reused by
 * another team; only the two alarms may come later, and they tell for which team they are.
 *
 * A member may pass private memory, which the others cannot reach and do not know of. It tells them before they meet,
 * and then the call ends with the outcome STAGED on all of them, and pyshmem.transport.teams.staging completes it. */
#pragma once
#include "../base/copy.h"
#include "../base/host.h"
#include "../base/spin.h"
#include "../far/calls.h"

enum {
    NOTE = 256,   /* bytes of a note */
    NOTES = 2048, /* offset of the two notes */
    COUNTERS = NOTES + 2 * NOTE,
    FLAT = 16,     /* up to this number of members, each writes to every other directly */
    MAILBOX = 128, /* an epoch, a word and a payload, two cache lines */
    PAYLOAD = MAILBOX - 16,
    MAILBOXES = COUNTERS + 256,
    STREAMED = MAILBOXES + 2 * FLAT * MAILBOX, /* the marks of the last calls on streams, see streamed.h */
    STREAMED_CALLS = 16,
    CALLS = STREAMED + 8 * STREAMED_CALLS, /* the last calls, see call_t */
    LAST_CALLS = 16,
    FACTS = CALLS + 16 * LAST_CALLS, /* what this PE tells in words of a call that is refused or that it has left */
    ROOTS = FACTS + NOTE,            /* a flag of each root, and then one of each member, of refusals */
    NO_MEMORY = 3,                   /* why a call has failed, as in spin_t */
    INWARDS = 1,
    BETWEEN = 11,
    OUTWARDS = 22, /* the first flags of the three parts of a barrier over several nodes */
};
/* What remains to be done: nothing; everything, because nothing has happened; the call through staging memory; an
 * error, because the target is private here, or on the member through which the data come, and symmetric on the root;
 * an error, because the members' calls differ; an error of this member alone, because its broadcast is not the root's;
 * an error, because a member has left a call before its end.
 */
enum { DONE, UNTOUCHED, STAGED, REFUSED, DIFFERENT, UNLIKE, BROKEN };

/* calls: those that this PE has begun. Alarms: wanted, the refusal in which all members shall meet that have begun
 * call wanted_from; broken, the member that has left a call; refusals is the last refusal. They begin with the stamp of
 * the team, above STAMP_BITS.
 * heard: a call that another node waits in. staged, refused: the last call in which a member has told of private
 * memory, and the last that another one has refused. from: the source of this PE as root, from its area on. history:
 * the broadcasts in which nobody met, see collectives.h. streamed: the calls on streams, and their history. */
typedef struct {
    uint64_t notes, exchanges, calls, asleep, broken, wanted, refusals, history;
    uint64_t hasty, penalty;
    int64_t disturbed;
    uint64_t staged, refused;
    int64_t from;
    uint64_t streamed, streamed_history, heard, wanted_from;
} counters_t;
/* FLAG_BITS: below the number of a call in flags of broadcasts, and wide enough for a history */
enum { STAMP_BITS = 16, FLAG_BITS = 16 };

/* A call that this PE has begun: in the ring CALLS, by its number. root: and 1, of a broadcast; or 0. */
typedef struct {
    uint64_t word, root;
} call_t;
/* away: the distance to each member's memory, if it is not (j - me) * stride; for far members, to places of
 * far/protocol.h. node: the number of each member's node, if there are several. leaders: the first member on each node.
 * locals: the members on this node. */
typedef struct {
    char *area;
    int64_t stride, me, n;
    const int64_t *away, *node, *leaders, *locals;
    int64_t nodes, n_locals;
    spin_t spin;
    const host_t *host; /* of the calling thread, or NULL: C calls */
    void *released;
    link_t *failed;
    int left, refuses;
    /* the number of the call, what it is, and both with the history, which tells it from all other calls */
    uint64_t call, word, said;
} team_t;

static inline int64_t distance(const team_t *t, int64_t j) { return t->away ? t->away[j] : (j - t->me) * t->stride; }
static inline uint64_t place_of(const team_t *t, int64_t j, const void *here) {
    return (uint64_t)here + (uint64_t)distance(t, j);
}
static inline char *area_of(const team_t *t, int64_t j) { return (char *)place_of(t, j, t->area); }
static inline int is_away(const team_t *t, int64_t j) { return t->away && is_far(place_of(t, j, t->area)); }
static inline counters_t *counters(const team_t *t) { return (counters_t *)(t->area + COUNTERS); }
static inline call_t *call_at(const char *area, uint64_t number) {
    return (call_t *)(area + CALLS) + number % LAST_CALLS;
}

/* Whether a member has left a call, or wants this PE to meet the others in a refusal. */
static inline int is_broken(const team_t *t) {
    uint64_t broken = __atomic_load_n(&counters(t)->broken, __ATOMIC_RELAXED);
    return __builtin_expect(broken != 0, 0) && broken >> STAMP_BITS == counters(t)->refusals >> STAMP_BITS;
}
static inline int is_wanted(const team_t *t) {
    counters_t *own = counters(t);
    if (__builtin_expect(__atomic_load_n(&own->wanted, __ATOMIC_ACQUIRE) != own->refusals + 1, 1)) return 0;
    return t->call >= __atomic_load_n(&own->wanted_from, __ATOMIC_RELAXED) && !t->refuses;
}
/* Whether the call must not go on: then `left` says why. */
static inline int is_alarmed(team_t *t) {
    if (is_broken(t)) return t->left = BROKEN;
    return is_wanted(t) ? t->left = DIFFERENT : 0;
}
static inline int is_over(const team_t *t) {
    return t->failed || t->spin.failed || t->left == DIFFERENT || t->left == BROKEN;
}
INTERNAL int team_begin_rooted(team_t *t, uint64_t word, int64_t root);
INTERNAL int team_begin(team_t *t, uint64_t word);
INTERNAL void team_release_turn(team_t *t);
INTERNAL void team_note(team_t *t, link_t *failed);
INTERNAL void team_complete(team_t *t);
INTERNAL void team_send(team_t *t, int64_t j, char *dest, const char *source, uint64_t nbytes);
INTERNAL void team_read(team_t *t, int64_t j, char *dest, const char *source, uint64_t nbytes);
INTERNAL void team_post_far(team_t *t, int64_t j, uint64_t offset, uint64_t epoch, char *dest, const char *source,
                            uint64_t nbytes);
INTERNAL void team_post(team_t *t, int64_t j, uint64_t offset, uint64_t epoch);
