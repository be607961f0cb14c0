#include "barrier.h"

/* The least and the greatest word of the members from which this PE has heard. */
typedef struct {
    uint64_t least, most;
} words_t;

/* A dissemination barrier of `n` members, of which this PE is number `me`, with flags from `flag` on. members: NULL:
 * all of the team. Beside each flag are two places for words, which alternate: the sender may be one epoch ahead. */
static int barrier_disseminate_among(team_t *t, const int64_t *members, int64_t n, int64_t me, uint64_t flag,
                                     uint64_t epoch, words_t *words) {
    for (int64_t step = 1; step < n; step *= 2, flag++) {
        int64_t to = members ? members[(me + step) % n] : (me + step) % n;
        uint64_t place = 64 * flag + 8 + (epoch & 1) * sizeof *words;
        if (is_away(t, to))
            team_post_far(t, to, 64 * flag, epoch, t->area + place, (const char *)words, sizeof *words);
        else {
            memcpy(area_of(t, to) + place, words, sizeof *words);
            team_post(t, to, 64 * flag, epoch);
        }
        if (!team_await(t, 64 * flag, epoch)) return 0;
        const words_t *heard = (const words_t *)(t->area + place);
        if (heard->least < words->least) words->least = heard->least;
        if (heard->most > words->most) words->most = heard->most;
    }
    return 1;
}

static int64_t index_of(const int64_t *members, int64_t member) {
    int64_t i = 0;
    while (members[i] != member) i++;
    return i;
}

/* The barrier: of each node, of the leaders, and of each node again. The epoch is in the first 64 bytes of the area;
 * flags follow, 64 bytes apart. */
INTERNAL int barrier_disseminate(team_t *t) {
    uint64_t epoch = ++*(uint64_t *)t->area;
    int passed = 1;
    words_t words = {t->said, t->said};
    /* seq_cst: a load after the barrier must not overtake a store of this PE before it (store buffering) */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (t->nodes > 1) {
        int64_t me = index_of(t->locals, t->me);
        passed = barrier_disseminate_among(t, t->locals, t->n_locals, me, INWARDS, epoch, &words) &&
                 (me || barrier_disseminate_among(t, t->leaders, t->nodes, t->node[t->me], BETWEEN, epoch, &words)) &&
                 barrier_disseminate_among(t, t->locals, t->n_locals, me, OUTWARDS, epoch, &words);
    } else
        passed = barrier_disseminate_among(t, NULL, t->n, t->me, INWARDS, epoch, &words);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return passed && (words.least == words.most || calls_differ(t));
}

/* Sends the payload of each member to every other member, for at most FLAT members. Member j's payload is at
 * *mailboxes + j * MAILBOX + 16. Two alternating sets of mailboxes are sufficient: before a member writes into a set
 * again, it has received the payloads of the exchange between, which the others sent after they had read this set. */
INTERNAL int barrier_exchange(team_t *t, const void *payload, uint64_t nbytes, const char **mailboxes) {
    uint64_t epoch = ++counters(t)->exchanges;
    uint64_t set = MAILBOXES + (epoch & 1) * FLAT * MAILBOX;
    for (int64_t k = 1; k <= t->n; k++) {
        int64_t j = (t->me + k) % t->n;
        uint64_t mailbox = set + (uint64_t)t->me * MAILBOX;
        if (is_away(t, j)) {
            char letter[8 + PAYLOAD];
            memcpy(letter, &t->said, 8);
            memcpy(letter + 8, payload, nbytes);
            team_post_far(t, j, mailbox, epoch, t->area + mailbox + 8, letter, 8 + nbytes);
            continue;
        }
        char *to = area_of(t, j) + mailbox;
        memcpy(to + 8, &t->said, 8);
        memcpy(to + 16, payload, nbytes);
        team_post(t, j, mailbox, epoch);
    }
    *mailboxes = t->area + set;
    int alike = 1;
    for (int64_t k = 1; k < t->n; k++) {
        uint64_t mailbox = set + (uint64_t)((t->me + t->n - k) % t->n) * MAILBOX;
        if (!team_await(t, mailbox, epoch)) return 0;
        alike &= *(const uint64_t *)(t->area + mailbox + 8) == t->said;
    }
    return alike || calls_differ(t);
}

/* A barrier. Stores and copies that a member made before it are visible to all members after it. */
INTERNAL int barrier_meet(team_t *t) {
    const char *mailboxes;
    if (is_over(t)) return 0; /* the others must not take what this member has not done for done */
    if (t->n <= FLAT)
        return barrier_exchange(t, "", 0, &mailboxes); /* every member posts to every other, behind its copies */
    team_complete(t);
    return barrier_disseminate(t);
}

/* Stores the number of this call into a word of all members. The caller then posts to them. */
INTERNAL void barrier_tell(team_t *t, uint64_t *word, uint64_t call) {
    for (int64_t j = 0; j < t->n; j++) team_send(t, j, (char *)word, (const char *)&call, sizeof call);
    team_complete(t);
}

/* A barrier, after which all members know whether the memory of one of them is private. Returns whether the call can go
 * on. */
INTERNAL int barrier_agree(team_t *t, int private) {
    counters_t *own = counters(t);
    if (private) barrier_tell(t, &own->staged, t->call);
    if (!barrier_meet(t)) return 0;
    if (own->staged == t->call) t->left = STAGED;
    return t->left == DONE;
}

/* Reads what member j has begun, or asks for it. */
static void ask_for_calls(team_t *t, int64_t j, begun_t *b) {
    uint64_t area = place_of(t, j, t->area);
    if (!is_away(t, j)) {
        memcpy(&b->syncs, (char *)area, sizeof b->syncs);
        memcpy(&b->calls, (char *)area + COUNTERS, sizeof b->calls);
        return;
    }
    b->failed = far_ask((char *)&b->syncs, area, sizeof b->syncs, &b->numbers[0]);
    if (!b->failed) b->failed = far_ask((char *)&b->calls, area + COUNTERS, sizeof b->calls, &b->numbers[1]);
}

/* Whether member j has not yet reached the call that this PE is in, since it has begun fewer calls of some kind than
 * this PE, or does not answer. */
static char is_behind(team_t *t, int64_t j, begun_t *b, int64_t since) {
    counters_t *own = counters(t);
    link_t *link = is_away(t, j) ? link_to(place_of(t, j, t->area)) : NULL;
    uint64_t last = b->numbers[1] ? b->numbers[1] : b->numbers[0];
    if ((last && link_await_since(link, b->numbers[0], last, since)) || b->failed) return SILENT;
    return b->syncs < *(uint64_t *)t->area || b->calls.notes < own->notes || b->calls.exchanges < own->exchanges ||
           b->calls.calls < own->calls;
}

/* Sets which members are behind. All are asked first, so that those that do not answer are waited for once. */
INTERNAL void barrier_find_absent(team_t *t, begun_t *each, char *behind) {
    int64_t since = now_ns();
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (int64_t j = 0; j < t->n; j++) ask_for_calls(t, j, &each[j]);
    for (int64_t j = 0; j < t->n; j++) behind[j] = is_behind(t, j, &each[j], since);
}

/* Collects the notes of all members in `all`. All notes have the same length, at most NOTE; a barrier. The two notes of
 * an area alternate, as the mailboxes of exchange do. */
INTERNAL int barrier_share(team_t *t, const char *note, uint64_t length, char *all) {
    uint64_t offset = NOTES + (++counters(t)->notes & 1) * NOTE;
    memcpy(t->area + offset, note, length);
    if (!barrier_meet(t)) return 0;
    for (int64_t j = 0; j < t->n; j++) team_read(t, j, all + (uint64_t)j * length, t->area + offset, length);
    team_complete(t);
    return !t->failed;
}
