#include "failures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../team/engine.h"
#include "alone.h"
#include "areas.h"

/* ---- texts: each in memory of its own, which nobody frees, because the job ends ---- */

typedef struct {
    char *text;
    size_t length;
    FILE *file;
} words_t;

static FILE *begin_words(words_t *w) {
    w->text = NULL;
    w->file = open_memstream(&w->text, &w->length);
    if (!w->file) abort();
    return w->file;
}
static char *end_words(words_t *w) {
    fclose(w->file);
    return w->text;
}

/* "PE 1", "PEs 1 and 2", "PEs 1, 2 and 3" */
static void list_pes(FILE *out, const int64_t *pes, int64_t count) {
    fputs(count > 1 ? "PEs " : "PE ", out);
    for (int64_t i = 0; i < count; i++) fprintf(out, "%s%ld", !i ? "" : i == count - 1 ? " and " : ", ", (long)pes[i]);
}

/* Of which members each text is said: "a on PE 0 and b on PEs 1 and 2". NULL: nothing is. */
static char *grouped(char **said, int64_t n) {
    words_t w;
    FILE *out = begin_words(&w);
    int64_t *same = calloc((size_t)n, sizeof *same);
    for (int64_t j = 0, groups = 0; same && j < n; j++) {
        int64_t count = 0;
        for (int64_t k = j; said[j] && k < n; k++)
            if (said[k] && !strcmp(said[k], said[j])) same[count++] = k;
        if (!count) continue;
        fprintf(out, "%s%s on ", groups++ ? " and " : "", said[j]);
        list_pes(out, same, count);
        for (int64_t i = count - 1; i >= 0; i--) said[same[i]] = NULL;
    }
    return end_words(&w);
}

/* ---- time-outs, and where other PEs are ---- */

typedef struct {
    uint64_t pid, answers;
    char text[NOTE_BYTES - 2 * sizeof(uint64_t)];
} note_t;
static const char ENDED[] = "has come to the end of its program";

static note_t *note_of(int64_t pe) {
    return (note_t *)(alone.heap.system + AREAS_BYTES - NOTE_BYTES + (uint64_t)state.away[pe]);
}

/* The program ends without finalize: others that wait for this PE can say so. */
INTERNAL void note_end(void) {
    note_t *note = note_of(state.my_pe);
    strcpy(note->text, ENDED);
    __atomic_store_n(&note->answers, note->answers + 1, __ATOMIC_RELEASE);
}

static void explain(FILE *out, const int64_t *pes, int64_t count, const char *they) {
    int64_t *ended = calloc((size_t)state.n_pes, sizeof *ended), known = 0;
    for (int64_t i = 0; ended && i < count; i++)
        if (!strcmp(note_of(pes[i])->text, ENDED)) ended[known++] = pes[i];
    if (count && !known) fprintf(out, "; SHMEM_DEBUG=1 says where %s are", they);
    if (!known) return;
    fputs("; ", out);
    list_pes(out, ended, known);
    fprintf(out, " %s", known > 1 ? "have come to the end of their programs" : ENDED);
}

/* All PEs but this one. */
static int64_t *others(void) {
    int64_t *pes = calloc((size_t)state.n_pes, sizeof *pes), count = 0;
    for (int64_t pe = 0; pes && pe < state.n_pes; pe++)
        if (pe != state.my_pe) pes[count++] = pe;
    if (!pes) abort();
    return pes;
}

/* pes: those that may be the reason; NULL: all others. */
INTERNAL void refuse_timed_out(const char *routine, const char *argument, const char *got, const char *wants,
                               const int64_t *pes, int64_t count) {
    words_t w;
    FILE *out = begin_words(&w);
    fprintf(out, "%s; PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit", wants);
    explain(out, pes ? pes : others(), pes ? count : state.n_pes - 1, pes ? "they" : "the other PEs");
    refuse("WaitTimeoutError", routine, argument, end_words(&w), "%s in %g s", got, state.timeout);
}

INTERNAL void say_of_wait(const char *routine) {
    words_t w;
    FILE *out = begin_words(&w);
    fprintf(out, "pyshmem: PE 0 has waited %g s in %s", state.notice, routine);
    explain(out, others(), state.n_pes - 1, "the other PEs");
    fputs("; PYSHMEM_WAIT_NOTICE sets the seconds, 0 for never\n", out);
    fputs(end_words(&w), stderr);
}

/* ---- teams ---- */

static RARELY _Noreturn void refuse_team_timeout(const char *routine, team_t *team) {
    int64_t *members = calloc((size_t)team->size + 1, sizeof *members), count;
    char name[128], why[FACT_BYTES];
    words_t w;
    if (!members) abort();
    count = pyshmem_engine.absent(team->native, members);
    name_team(team, name, sizeof name);
    FILE *out = begin_words(&w);
    fputs("no call from ", out);
    if (count)
        list_pes(out, members, count);
    else
        fputs("some PE", out);
    fflush(out);
    snprintf(why, sizeof why, "%s\na time-out: %.150s in %g s", routine, w.text, state.timeout);
    pyshmem_engine.leave(team->native, why);
    for (int64_t i = 0; i < count; i++) members[i] = team->start + members[i] * team->stride;
    fprintf(out, " of %s", name);
    refuse_timed_out(routine, "team", end_words(&w), "all of them to call it", members, count);
}

static RARELY _Noreturn void refuse_broken_team(const char *routine, team_t *team) {
    char why[FACT_BYTES] = "", name[128];
    int64_t member = -1;
    for (int ms = 0; ms < 200 && !*why; ms++) { /* until the member has said why */
        member = pyshmem_engine.breaker(team->native, why);
        if (!*why) usleep(1000);
    }
    char *cause_of = strchr(why, '\n');
    if (cause_of) *cause_of++ = 0;
    name_team(team, name, sizeof name);
    refuse("BrokenTeamError", routine, "team", "a team whose calls have ended alike on all its PEs",
           "%s, whose %s has ended on PE %ld by %s", name, *why ? why : "call", (long)member,
           cause_of && *cause_of ? cause_of : "an exception");
}

INTERNAL void refuse_failed(const char *routine, int64_t outcome, team_t *team) {
    if (outcome == CALL_DIFFERENT) refuse_different(routine, team, NULL);
    if (outcome == CALL_BROKEN) refuse_broken_team(routine, team);
    if (outcome == CALL_NO_MEMORY)
        refuse("HeapExhaustedError", routine, "memory", "memory of the system for the call", "none left");
    refuse_team_timeout(routine, team);
}

/* ---- calls that differ: pyshmem.diagnosis.mismatched_calls ---- */

/* Such as "8 float32 elements at heap offset 64". */
static char *size_of_call(const facts_t *call) {
    words_t w;
    FILE *out = begin_words(&w);
    fprintf(out, "%lu %s elements", call->nelems, kinds[call->kind].name);
    if (call->at_offset || call->place)
        fprintf(out, " at %s %ld", call->at_offset ? "heap offset" : "stride", (long)call->place);
    if (call->root >= 0) fprintf(out, " from root %ld", (long)call->root);
    return end_words(&w);
}

static char *facts_of(const char *routine, const facts_t *call) {
    words_t w;
    FILE *out = begin_words(&w);
    if (call)
        fprintf(out, "%s\n%s\n%lu\n%s", routine, kinds[call->kind].name, call->nelems, size_of_call(call));
    else
        fprintf(out, "%s\n\n\n", routine);
    return end_words(&w);
}

/* Describes a call by what is kept of it. */
static const char *described(uint64_t word) {
    static const char *const called[] = {
        [0] = "a barrier",
        [WORD_BROADCAST] = "broadcast",
        [WORD_FCOLLECT] = "fcollect",
        [WORD_ALLTOALL] = "alltoall",
        [WORD_ALLTOALLS] = "alltoalls",
        [WORD_COLLECT] = "collect",
        [WORD_SHARE] = "an exchange of notes",
        [WORD_ALLOCATE] = "allocate",
        [WORD_REALLOC] = "realloc",
        [WORD_FREE] = "free",
        [WORD_REGISTER] = "register",
        [WORD_UNREGISTER] = "unregister",
        [WORD_ALLTOALLV] = "alltoallv",
    };
    uint64_t code = word >> 56 & 127;
    return code < sizeof called / sizeof *called ? called[code] : "a reduction or scan";
}

enum { ROUTINE, DTYPE, NELEMS, SIZE, FACTS_TOLD };
typedef struct {
    int64_t n;
    said_t *said;
    char *(*facts)[FACTS_TOLD];
    uint64_t last; /* the number of the latest call of all */
} told_calls_t;

/* Splits what each member has told into its lines. */
static void read_facts(told_calls_t *t) {
    t->last = 0;
    for (int64_t j = 0; j < t->n; j++) {
        char *at = t->said[j].facts;
        for (size_t end = strlen(at); end && at[end - 1] == ' '; end--) at[end - 1] = 0;
        for (int i = 0; i < FACTS_TOLD; i++) {
            t->facts[j][i] = at;
            at += strcspn(at, "\n");
            if (*at) *at++ = 0;
        }
        if (t->said[j].number > t->last) t->last = t->said[j].number;
    }
}

static int differ_in(const told_calls_t *t, int fact) {
    for (int64_t j = 1; j < t->n; j++)
        if (strcmp(t->facts[j][fact], t->facts[0][fact])) return 1;
    return 0;
}

/* What a member called as its call `number`: such as "shmem_sum_reduce of 8 float32 elements". */
static char *text_of(const told_calls_t *t, int64_t j, uint64_t number) {
    words_t w;
    FILE *out = begin_words(&w);
    const said_t *said = &t->said[j];
    if (number < said->number)
        fputs(described(said->words[said->number - number]), out);
    else
        fprintf(out, "%s%s%s", t->facts[j][ROUTINE], *t->facts[j][SIZE] ? " of " : "", t->facts[j][SIZE]);
    return end_words(&w);
}

/* The place of a call among those that a member has told, or -1 if it is not known. */
static int64_t told_at(const said_t *said, uint64_t number) {
    if (number > said->number || said->number - number >= said->known) return -1;
    return said->words[said->number - number] ? (int64_t)(said->number - number) : -1;
}

/* Refuses the calls of a number if those that are known differ, and a member is in a later one. */
static void refuse_number(const char *routine, const char *team, const told_calls_t *t, uint64_t number) {
    int differs = 0, is_past = 0;
    int64_t first = -1;
    char **said = calloc((size_t)t->n, sizeof *said), ago[64] = "";
    for (int64_t j = 0; said && j < t->n; j++) {
        int64_t at = told_at(&t->said[j], number), one = first < 0 ? -1 : told_at(&t->said[first], number);
        is_past |= t->said[j].number > number;
        if (at < 0) continue;
        if (first < 0) first = j;
        differs |= one >= 0 && (t->said[j].words[at] != t->said[first].words[one] ||
                                t->said[j].roots[at] != t->said[first].roots[one]);
        said[j] = text_of(t, j, number);
    }
    if (!said || !differs || !is_past) return;
    uint64_t calls = t->last - number;
    if (calls) snprintf(ago, sizeof ago, calls == 1 ? ", a call before this" : ", %lu calls before this", calls);
    char wants[200];
    snprintf(wants, sizeof wants, "the same call on all PEs of %s", team);
    refuse("ArgumentError", routine, "call", wants, "%s%s", grouped(said, t->n), ago);
}

/* Refuses the first call in which members differ, unless that is the one that all are in. */
static void refuse_earlier(const char *routine, const char *team, const told_calls_t *t) {
    char **said = calloc((size_t)t->n, sizeof *said);
    int apart = 0, differ_now = 0;
    for (int64_t j = 0; said && j < t->n; j++) apart |= t->said[j].number != t->last;
    for (int fact = 0; fact < FACTS_TOLD; fact++) differ_now |= differ_in(t, fact);
    if (!said || (!apart && differ_now)) return;
    uint64_t back = t->last < TOLD_CALLS ? t->last : TOLD_CALLS;
    for (uint64_t number = t->last - back + 1; number <= t->last; number++) refuse_number(routine, team, t, number);
    if (!apart) return;
    for (int64_t j = 0; j < t->n; j++) {
        words_t w;
        fprintf(begin_words(&w), "call %lu of the team", t->said[j].number);
        said[j] = end_words(&w);
    }
    char wants[200];
    snprintf(wants, sizeof wants, "as many calls before on all PEs of %s", team);
    refuse("ArgumentError", routine, "call", wants, "%s", grouped(said, t->n));
}

static _Noreturn void refuse_present(const char *routine, const char *team, const facts_t *call,
                                     const told_calls_t *t) {
    int routines = differ_in(t, ROUTINE), dtypes = differ_in(t, DTYPE), sizes = differ_in(t, NELEMS);
    char **said = calloc((size_t)t->n, sizeof *said), wants[200];
    if (!said) abort();
    for (int64_t j = 0; j < t->n; j++) said[j] = routines ? text_of(t, j, t->said[j].number) : t->facts[j][SIZE];
    snprintf(wants, sizeof wants, "the same%s on all PEs of %s", routines ? " call" : "", team);
    int roots = call && call->root >= 0 && differ_in(t, SIZE);
    refuse(routines ? "ArgumentError"
           : dtypes ? "DtypeError"
           : sizes  ? "OutOfRangeError"
                    : "ArgumentError",
           routine,
           routines || !(dtypes || sizes || roots) ? "call"
           : dtypes                                ? "dtype"
           : sizes                                 ? "size"
                                                   : "root",
           wants, "%s", grouped(said, t->n));
}

INTERNAL void refuse_different(const char *routine, team_t *team, const facts_t *call) {
    told_calls_t t = {.n = team->size};
    char name[128];
    t.said = calloc((size_t)t.n, sizeof *t.said), t.facts = calloc((size_t)t.n, sizeof *t.facts);
    if (!t.said || !t.facts) abort();
    name_team(team, name, sizeof name);
    int outcome = pyshmem_engine.refuse(team->native, facts_of(routine, call), t.said);
    if (outcome == CALL_BROKEN) refuse_broken_team(routine, team);
    if (outcome != CALL_DONE) refuse_team_timeout(routine, team);
    read_facts(&t);
    refuse_earlier(routine, name, &t);
    refuse_present(routine, name, call, &t);
}

/* This PE's call is not the root's, and the others know nothing of it. */
INTERNAL void refuse_unlike(const char *routine, team_t *team, const facts_t *call) {
    char name[128], wants[200];
    name_team(team, name, sizeof name);
    snprintf(wants, sizeof wants, "the same on all PEs of %s", name);
    refuse("ArgumentError", routine, "call", wants,
           "%s here, and another size or type on the root, in this call or one before", size_of_call(call));
}
