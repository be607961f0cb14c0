/* The collectives of PEs that map each other's memory; included by _native.c, which has checked nothing more than types.
 *
 * A team owns one area at the same place on each member: the barrier's epoch and flags (2048 bytes), two notes, the counters
 * of the calls begun here, the slots of small exchanges, and one flag for each possible root. Members make the same calls in
 * the same order, so equal counters mean the same call, and epochs only grow: nothing is ever reset between calls. Whatever a
 * peer stores in this PE's area, this PE waits for before the call returns, so an idle area may be given to another team. */
enum {
    NOTE = 256, NOTES = 2048,       /* bytes of a note; where the two are */
    COUNTERS = NOTES + 2 * NOTE,
    FLAT = 16,                      /* up to so many members every one of them writes to every other directly */
    SLOT = 128, PAYLOAD = SLOT - 8, /* an epoch and a payload, two cache lines */
    SLOTS = COUNTERS + 64,
    ROOTS = SLOTS + 2 * FLAT * SLOT,
    PULL_BYTES = 1 << 19,           /* what a root writes to all before it is better that the members read, all at once */
    YIELD_NS = 400000,              /* a yield that took longer gave the core to a program that computes */
    HASTY = 16, MOST_HASTY = 512,   /* so many waits after it sleep at once: twice as many each time that it happens again */
    HASTY_NS = 50000000,            /* within so long */
    YIELDS_NS = 2000000,            /* where PEs share cores, a member yields for so long at most before it sleeps */
    BLOCK = 8192,                   /* bytes of a reduction that are combined at a time: they stay in the nearest cache */
};

typedef struct { uint64_t notes, exchanges, broadcasts, asleep, hasty, penalty; int64_t disturbed; } counters_t;
typedef struct { char *area; int64_t stride, me, n; spin_t spin; PyThreadState *released; } team_t;

/* The first three arguments of every collective: team (area, bytes between the areas of neighbours, me, n), timeout, spins. */
static int to_team(PyObject *const *args, team_t *t) {
    PyObject *team[4];
    uint64_t area, spins;
    double timeout;
    for (int i = 0; i < 4; i++)
        if (!(team[i] = PyTuple_GetItem(args[0], i))) return 0;
    if (!to_u64(team[0], &area) || !to_i64(team[1], &t->stride) || !to_i64(team[2], &t->me) || !to_i64(team[3], &t->n) ||
        !to_f64(args[1], &timeout) || !to_u64(args[2], &spins))
        return 0;
    t->area = (char *)area;
    t->spin = spin_begin(timeout, spins);
    t->released = NULL;
    return 1;
}

static inline char *area_of(const team_t *t, int64_t pe) { return t->area + (pe - t->me) * t->stride; }
static inline counters_t *counters(const team_t *t) { return (counters_t *)(t->area + COUNTERS); }
static void release_gil(team_t *t) { if (!t->released) t->released = PyEval_SaveThread(); }

/* The end of every call: the GIL back, and what went wrong while waiting. */
static int finish(team_t *t) {
    if (t->released) PyEval_RestoreThread(t->released);
    if (t->spin.failed) spin_error(&t->spin);
    return !t->spin.failed;
}

/* Tell member j by a word of its area: only grows, and is seen with all that was written before it. Where PEs share cores,
 * the waiting one sleeps and is woken: yields would give its core to whatever else runs there, for milliseconds. */
static void post(const team_t *t, int64_t j, uint64_t place, uint64_t epoch) {
    uint64_t *word = (uint64_t *)(area_of(t, j) + place);
    __atomic_store_n(word, epoch, __ATOMIC_RELEASE);
    if (t->spin.spins > CROWDED) return;
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* either this sees that it sleeps, or it sees the word */
    if (__atomic_load_n(&((counters_t *)(area_of(t, j) + COUNTERS))->asleep, __ATOMIC_RELAXED))
        syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static int sleep_on(team_t *t, uint64_t *word, uint64_t epoch) {
    struct timespec most = {0, 20000000};
    __atomic_store_n(&counters(t)->asleep, 1, __ATOMIC_SEQ_CST);
    uint64_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    if (seen < epoch) syscall(SYS_futex, word, FUTEX_WAIT, (uint32_t)seen, &most, NULL, 0); /* not if its lower half has changed */
    __atomic_store_n(&counters(t)->asleep, 0, __ATOMIC_RELAXED);
    return spin_check(&t->spin, &t->released);
}

/* Whether the word came while this member let others run: the quickest way where those are the other members. Where one of
 * them computes, or another program does, a yield lasts for milliseconds: then the next waits sleep at once, few of them where
 * that happens now and then, as when members come from other work, and many where it goes on. */
static int yield_for(team_t *t, const uint64_t *word, uint64_t epoch) {
    counters_t *own = counters(t);
    if (own->hasty) { own->hasty--; return 0; }
    int64_t begun = now_ns(), before = begun, now = begun;
    while (now - before < YIELD_NS && now - begun < YIELDS_NS) {
        before = now;
        sched_yield();
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
        now = now_ns();
    }
    if (now - before < YIELD_NS) return 0;
    own->penalty = now - own->disturbed > HASTY_NS ? HASTY : own->penalty < MOST_HASTY ? 2 * own->penalty : MOST_HASTY;
    own->disturbed = now;
    own->hasty = own->penalty;
    return 0;
}

static int await(team_t *t, uint64_t place, uint64_t epoch) {
    uint64_t *word = (uint64_t *)(t->area + place);
    int crowded = t->spin.spins <= CROWDED;
    for (uint64_t polls = 0; polls < (crowded ? t->spin.spins : 200); polls++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
        CPU_RELAX();
    }
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= epoch) return 1;
    release_gil(t);
    if (crowded && yield_for(t, word, epoch)) return 1;
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < epoch)
        if (!(crowded ? sleep_on(t, word, epoch) : spin_pause(&t->spin, &t->released))) return 0;
    return 1;
}

/* Dissemination barrier: the epoch in the first 64 bytes of the area, after it one flag per round, 64 bytes apart. */
static int disseminate(team_t *t) {
    uint64_t epoch = ++*(uint64_t *)t->area;
    int64_t round = 1;
    /* seq_cst: a store of this PE before the barrier must not be overtaken by a load after it (store buffering) */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (int64_t distance = 1; distance < t->n; distance *= 2, round++) {
        post(t, (t->me + distance) % t->n, 64 * (uint64_t)round, epoch);
        if (!await(t, 64 * (uint64_t)round, epoch)) return 0;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return 1;
}

/* At most FLAT members: each one's payload to every other, *slots[j * SLOT + 8] being member j's. Two sets of slots, by turns,
 * are enough: who writes into a set again has had everybody's payload of the turn between, sent after they read this one. */
static int exchange(team_t *t, const void *payload, uint64_t nbytes, const char **slots) {
    uint64_t epoch = ++counters(t)->exchanges;
    uint64_t set = SLOTS + (epoch & 1) * FLAT * SLOT;
    for (int64_t k = 1; k <= t->n; k++) {
        int64_t j = (t->me + k) % t->n;
        memcpy(area_of(t, j) + set + t->me * SLOT + 8, payload, nbytes);
        post(t, j, set + (uint64_t)t->me * SLOT, epoch);
    }
    *slots = t->area + set;
    for (int64_t k = 1; k < t->n; k++)
        if (!await(t, set + (uint64_t)((t->me + t->n - k) % t->n) * SLOT, epoch)) return 0;
    return 1;
}

/* Nobody returns before every member has come here, with all it wrote before. */
static int meet(team_t *t) {
    const char *slots;
    return t->n <= FLAT ? exchange(t, "", 0, &slots) : disseminate(t);
}

/* area_bytes(n_pes) -> how much of each heap a team of up to n_pes takes. */
static PyObject *py_area_bytes(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    uint64_t n_pes;
    if (!arity("area_bytes", n, 1) || !to_u64(args[0], &n_pes)) return NULL;
    return PyLong_FromUnsignedLongLong((ROOTS + 8 * n_pes + 63) / 64 * 64);
}

/* sync(team, timeout, spins) */
static PyObject *py_sync(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    if (!arity("sync", n, 3) || !to_team(args, &t)) return NULL;
    disseminate(&t);
    if (!finish(&t)) return NULL;
    Py_RETURN_NONE;
}

/* Calls begun by member j, of every kind: it is not at the call that this PE is in where any is fewer than this PE's. */
static int is_behind(const team_t *t, int64_t j) {
    counters_t *theirs = (counters_t *)(area_of(t, j) + COUNTERS), *own = counters(t);
    uint64_t syncs = __atomic_load_n((uint64_t *)area_of(t, j), __ATOMIC_ACQUIRE);
    return syncs < *(uint64_t *)t->area || __atomic_load_n(&theirs->notes, __ATOMIC_ACQUIRE) < own->notes ||
           __atomic_load_n(&theirs->exchanges, __ATOMIC_ACQUIRE) < own->exchanges ||
           __atomic_load_n(&theirs->broadcasts, __ATOMIC_ACQUIRE) < own->broadcasts;
}

/* absent(team, timeout, spins) -> the members that have not come to the call in which this PE has given up. */
static PyObject *py_absent(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    if (!arity("absent", n, 3) || !to_team(args, &t)) return NULL;
    PyObject *found = PyList_New(0);
    for (int64_t j = 0; found && j < t.n; j++) {
        if (!is_behind(&t, j)) continue;
        PyObject *member = PyLong_FromLongLong(j);
        if (!member || PyList_Append(found, member)) Py_CLEAR(found);
        Py_XDECREF(member);
    }
    return found;
}

/* share(team, timeout, spins, note) -> the notes of all members, one after the other; they have one length, at most NOTE. */
static PyObject *py_share(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    char *note;
    Py_ssize_t length;
    if (!arity("share", n, 4) || !to_team(args, &t) || PyBytes_AsStringAndSize(args[3], &note, &length)) return NULL;
    if (length > NOTE) { PyErr_SetString(PyExc_ValueError, "the note is too long"); return NULL; }
    uint64_t place = NOTES + (++counters(&t)->notes & 1) * NOTE; /* by turns, for the reason of exchange */
    memcpy(t.area + place, note, (size_t)length);
    meet(&t);
    if (!finish(&t)) return NULL;
    PyObject *all = PyBytes_FromStringAndSize(NULL, t.n * length);
    for (int64_t j = 0; all && j < t.n; j++) memcpy(PyBytes_AsString(all) + j * length, area_of(&t, j) + place, (size_t)length);
    return all;
}

/* ---- copies: the target of every member is ready before any of them calls, so it may be written without asking ---- */

static void spread_from_root(team_t *t, int64_t root, uint64_t epoch, char *dest, const char *source, uint64_t nbytes) {
    int64_t place = (t->me - root + t->n) % t->n; /* a binomial tree; flat for few: the root is everybody's parent */
    for (int64_t step = 1; step < t->n; step = t->n <= FLAT ? step + 1 : step * 2) {
        if (t->n <= FLAT ? place > 0 : place >= step) continue;
        if (place + step >= t->n) break;
        int64_t child = (place + step + root) % t->n;
        if (nbytes) memcpy(dest + (child - t->me) * t->stride, source, nbytes);
        post(t, child, ROOTS + 8 * (uint64_t)root, epoch);
    }
}

/* A root may be several calls ahead of a member, but each root has a flag of its own on each member, with one writer: its
 * parent in that root's tree. */
static void broadcast(team_t *t, int64_t root, char *dest, const char *source, uint64_t nbytes) {
    uint64_t epoch = ++counters(t)->broadcasts;
    int pull = nbytes * (uint64_t)(t->n - 1) >= PULL_BYTES;
    if (pull) release_gil(t);
    const char *from = source + (root - t->me) * t->stride;
    if (t->me != root && !await(t, ROOTS + 8 * (uint64_t)root, epoch)) return;
    spread_from_root(t, root, epoch, dest, t->me == root ? from : dest, pull ? 0 : nbytes);
    if ((pull || t->me == root) && from != dest) memmove(dest, from, nbytes);
    if (pull) meet(t); /* the root's source is free when all have read it */
}

/* broadcast(team, timeout, spins, root, dest, source, nbytes) */
static PyObject *py_broadcast(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    int64_t root;
    uint64_t dest, source, nbytes;
    if (!arity("broadcast", n, 7) || !to_team(args, &t) || !to_i64(args[3], &root) || !to_u64(args[4], &dest) ||
        !to_u64(args[5], &source) || !to_u64(args[6], &nbytes))
        return NULL;
    broadcast(&t, root, (char *)dest, (char *)source, nbytes);
    if (!finish(&t)) return NULL;
    Py_RETURN_NONE;
}

/* `count` items of `item` bytes from source + j * skip to dest on member j, for every j; then everybody has everything. */
typedef struct { uint64_t skip, item, dest_step, source_step, count; } blocks_t;

static void scatter(team_t *t, char *dest, const char *source, const blocks_t *b) {
    if (b->item * b->count * (uint64_t)t->n >= RELEASE_BYTES) release_gil(t);
    for (int64_t k = 1; k <= t->n; k++) {
        int64_t j = (t->me + k) % t->n; /* each begins with another one */
        char *to = dest + (j - t->me) * t->stride;
        const char *from = source + (uint64_t)j * b->skip;
        for (uint64_t i = 0; i < b->count && to != from; i++) copy_item(to + i * b->dest_step, from + i * b->source_step, b->item);
    }
    meet(t);
}

/* scatter(team, timeout, spins, dest, source, skip, item, dest_step, source_step, count), all but the last in bytes */
static PyObject *py_scatter(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    uint64_t dest, source;
    blocks_t b;
    if (!arity("scatter", n, 10) || !to_team(args, &t) || !to_u64(args[3], &dest) || !to_u64(args[4], &source) ||
        !to_u64(args[5], &b.skip) || !to_u64(args[6], &b.item) || !to_u64(args[7], &b.dest_step) ||
        !to_u64(args[8], &b.source_step) || !to_u64(args[9], &b.count))
        return NULL;
    scatter(&t, (char *)dest, (char *)source, &b);
    if (!finish(&t)) return NULL;
    Py_RETURN_NONE;
}

/* ---- reductions: one operator on one element type is a loop over two arrays ---- */

typedef void (*combine_t)(void *, const void *, uint64_t);
#define LOOP(NAME, T, EXPRESSION)                                                                                \
    static void NAME(void *total, const void *part, uint64_t count) {                                            \
        T *restrict a = total;                                                                                   \
        const T *restrict b = part;                                                                              \
        for (uint64_t i = 0; i < count; i++) { T x = a[i], y = b[i]; a[i] = (T)(EXPRESSION); }                   \
    }
/* W: an unsigned type no narrower than int, in which overflow wraps around */
#define BITS(T, W)                                                                                               \
    LOOP(sum_##T, T##_t, (W)x + (W)y) LOOP(prod_##T, T##_t, (W)x * (W)y)                                         \
    LOOP(and_##T, T##_t, x & y) LOOP(or_##T, T##_t, x | y) LOOP(xor_##T, T##_t, x ^ y)
#define ORDER(T) LOOP(min_##T, T##_t, x < y ? x : y) LOOP(max_##T, T##_t, x > y ? x : y)
/* a NaN on either side is the result */
#define REAL(T)                                                                                                  \
    LOOP(sum_##T, T##_t, x + y) LOOP(prod_##T, T##_t, x * y)                                                     \
    LOOP(min_##T, T##_t, x < y || x != x ? x : y) LOOP(max_##T, T##_t, x > y || x != x ? x : y)
#define COMPLEX(NAME, T)                                                                                         \
    static void sum_##NAME(void *total, const void *part, uint64_t count) { sum_##T(total, part, 2 * count); }   \
    static void prod_##NAME(void *total, const void *part, uint64_t count) {                                     \
        T##_t *restrict a = total;                                                                               \
        const T##_t *restrict b = part;                                                                          \
        for (uint64_t i = 0; i < 2 * count; i += 2) {                                                            \
            T##_t real = a[i] * b[i] - a[i + 1] * b[i + 1];                                                      \
            a[i + 1] = a[i] * b[i + 1] + a[i + 1] * b[i];                                                        \
            a[i] = real;                                                                                         \
        }                                                                                                        \
    }
BITS(uint8, uint32_t) BITS(uint16, uint32_t) BITS(uint32, uint32_t) BITS(uint64, uint64_t)
ORDER(int8) ORDER(uint8) ORDER(int16) ORDER(uint16) ORDER(int32) ORDER(uint32) ORDER(int64) ORDER(uint64)
REAL(float32) REAL(float64) COMPLEX(complex64, float32) COMPLEX(complex128, float64)

/* Half types are combined in float32 and rounded once, to nearest even. */
static float bits_to_float(uint32_t bits) { float f; memcpy(&f, &bits, 4); return f; }
static uint32_t float_to_bits(float f) { uint32_t bits; memcpy(&bits, &f, 4); return bits; }

static float from_bfloat16(uint16_t h) { return bits_to_float((uint32_t)h << 16); }
static uint16_t to_bfloat16(float f) {
    uint32_t bits = float_to_bits(f);
    if (f != f) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_float16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13;
    if (magnitude >= 0x0f800000) return bits_to_float(sign | 0x70000000 | magnitude); /* infinity, NaN */
    return bits_to_float(sign | float_to_bits(bits_to_float(magnitude) * 0x1p112f));  /* the exponents' biases; subnormals too */
}
static uint16_t to_float16(float f) {
    uint32_t sign = float_to_bits(f) >> 16 & 0x8000, bits = float_to_bits(f) & 0x7fffffff;
    if (f != f) return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds past the largest */
    if (bits < 0x38800000) return (uint16_t)(sign | (float_to_bits(bits_to_float(bits) + 0.5f) - 0x3f000000)); /* subnormal */
    return (uint16_t)(sign | ((bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13));
}

#define HALF(T)                                                                                                  \
    static void widen_##T(void *wide, const void *half, uint64_t count) {                                        \
        for (uint64_t i = 0; i < count; i++) ((float *)wide)[i] = from_##T(((const uint16_t *)half)[i]);         \
    }                                                                                                            \
    static void narrow_##T(void *half, const void *wide, uint64_t count) {                                       \
        for (uint64_t i = 0; i < count; i++) ((uint16_t *)half)[i] = to_##T(((const float *)wide)[i]);           \
    }
HALF(float16) HALF(bfloat16)

/* The element types, in the order of pyshmem.host.collectives; the operators are sum, prod, min, max, and, or, xor. What a
 * type is not defined for has no function. */
typedef struct { uint64_t item, wide; combine_t combine[7], widen, narrow; } kind_t;
#define INTEGER_KIND(T, U) \
    {sizeof(T##_t), sizeof(T##_t), {sum_##U, prod_##U, min_##T, max_##T, and_##U, or_##U, xor_##U}, NULL, NULL},
#define REAL_KIND(T) {sizeof(T##_t), sizeof(T##_t), {sum_##T, prod_##T, min_##T, max_##T, 0, 0, 0}, NULL, NULL},
#define COMPLEX_KIND(T, BYTES) {BYTES, BYTES, {sum_##T, prod_##T, 0, 0, 0, 0, 0}, NULL, NULL},
#define HALF_KIND(T) {2, 4, {sum_float32, prod_float32, min_float32, max_float32, 0, 0, 0}, widen_##T, narrow_##T},
static const kind_t kinds[] = {
    INTEGER_KIND(int8, uint8) INTEGER_KIND(uint8, uint8) INTEGER_KIND(int16, uint16) INTEGER_KIND(uint16, uint16)
    INTEGER_KIND(int32, uint32) INTEGER_KIND(uint32, uint32) INTEGER_KIND(int64, uint64) INTEGER_KIND(uint64, uint64)
    REAL_KIND(float32) REAL_KIND(float64) COMPLEX_KIND(complex64, 8) COMPLEX_KIND(complex128, 16)
    HALF_KIND(float16) HALF_KIND(bfloat16)
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* What is combined: member j's elements are at source + j * source_step, its results go to dest + j * dest_step; only: the one
 * member whose results are wanted, -1 for all. */
enum { REDUCE, INSCAN, EXSCAN };
typedef struct {
    const kind_t *kind;
    combine_t combine;
    int64_t mode, n, only, source_step, dest_step;
    const char *source;
    char *dest;
} fold_t;

static void write_result(const fold_t *f, int64_t j, uint64_t offset, const void *total, uint64_t count) {
    if (f->only >= 0 && f->only != j) return;
    char *to = f->dest + j * f->dest_step + offset;
    if (f->kind->narrow) f->kind->narrow(to, total, count);
    else memcpy(to, total, count * f->kind->item);
}

/* One block: always in the order of the members, so that all get the same bits whichever way they take. Each source is read
 * before the target of the same member is written, so the two may be one array. */
static void fold_block(const fold_t *f, uint64_t offset, uint64_t count) {
    _Alignas(64) char total[BLOCK], copy[BLOCK];
    int64_t last = f->mode == REDUCE || f->only < 0 ? f->n - 1 : f->only;
    for (int64_t j = 0; j <= last; j++) {
        const char *part = f->source + j * f->source_step + offset;
        if (f->kind->widen) { f->kind->widen(copy, part, count); part = copy; }
        else if (f->mode == EXSCAN || (uintptr_t)part % f->kind->item) part = memcpy(copy, part, count * f->kind->item);
        if (f->mode == EXSCAN && j == 0) memset(total, 0, count * f->kind->wide);
        if (f->mode == EXSCAN) write_result(f, j, offset, total, count);
        if (j == 0) memcpy(total, part, count * f->kind->wide);
        else f->combine(total, part, count);
        if (f->mode == INSCAN) write_result(f, j, offset, total, count);
    }
    for (int64_t j = 0; f->mode == REDUCE && j < f->n; j++) write_result(f, j, offset, total, count);
}

static void fold(const fold_t *f, uint64_t first, uint64_t end) {
    uint64_t most = BLOCK / f->kind->wide;
    for (; first < end; first += most) fold_block(f, first * f->kind->item, end - first < most ? end - first : most);
}

/* Each member combines one share of the elements for all: read and written by nobody else, so in place is safe too. */
static void fold_shares(team_t *t, fold_t *f, char *dest, const char *source, uint64_t count) {
    uint64_t line = 64 / f->kind->item, share = ((count + (uint64_t)t->n - 1) / (uint64_t)t->n + line - 1) / line * line;
    uint64_t first = (uint64_t)t->me * share;
    f->source = source - t->me * t->stride;
    f->dest = dest - t->me * t->stride;
    f->source_step = f->dest_step = t->stride;
    f->only = -1;
    if (count * f->kind->item >= RELEASE_BYTES) release_gil(t);
    if (!meet(t)) return;
    if (first < count) fold(f, first, first + share < count ? first + share : count);
    meet(t);
}

/* Small ones travel in the slots, and each member combines them for itself. */
static void reduce(team_t *t, fold_t *f, char *dest, const char *source, uint64_t count) {
    if (t->n > FLAT || count * f->kind->item > PAYLOAD) { fold_shares(t, f, dest, source, count); return; }
    if (!exchange(t, source, count * f->kind->item, &f->source)) return;
    f->source += 8;
    f->source_step = SLOT;
    f->dest = dest - t->me * t->stride;
    f->dest_step = t->stride;
    f->only = t->me;
    fold(f, 0, count);
}

static int to_fold(const team_t *t, int64_t mode, int64_t operator, int64_t kind, fold_t *f) {
    if (operator < 0 || operator > 6 || kind < 0 || kind >= KINDS || !kinds[kind].combine[operator]) return 0;
    *f = (fold_t){.kind = &kinds[kind], .combine = kinds[kind].combine[operator], .mode = mode, .n = t->n};
    return 1;
}

/* fold(team, timeout, spins, mode, operator, kind, dest, source, count) */
static PyObject *py_fold(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    fold_t f;
    int64_t mode, operator, kind;
    uint64_t dest, source, count;
    if (!arity("fold", n, 9) || !to_team(args, &t) || !to_i64(args[3], &mode) || !to_i64(args[4], &operator) ||
        !to_i64(args[5], &kind) || !to_u64(args[6], &dest) || !to_u64(args[7], &source) || !to_u64(args[8], &count))
        return NULL;
    if (!to_fold(&t, mode, operator, kind, &f)) { PyErr_SetString(PyExc_ValueError, "no such operator on this type"); return NULL; }
    reduce(&t, &f, (char *)dest, (char *)source, count);
    if (!finish(&t)) return NULL;
    Py_RETURN_NONE;
}

/* ---- the short way: two plain, live tensors of one type, nothing wrong; what is done then costs more than the words ---- */

static int plain_pair(PyObject *views, PyObject *const *arrays, operand_t *dest, operand_t *source, view_t *v) {
    view_t other;
    return read_plain(views, arrays[0], dest) && read_plain(views, arrays[1], source) && dest->code == source->code &&
           dest->item == source->item && find_view(views, dest, v) && find_view(views, source, &other) &&
           v->heap == other.heap && is_live(v, dest->address, dest->nbytes) && is_live(v, source->address, source->nbytes) &&
           !is_lazily_negated(arrays[0], dest) && !is_lazily_negated(arrays[1], source);
}

/* kinds' index of a plain tensor's type, KINDS for those that nothing is combined on */
static int64_t kind_of(const operand_t *o) {
    int64_t size = o->item == 1 ? 0 : o->item == 2 ? 1 : o->item == 4 ? 2 : 3;
    switch (o->code) {
    case 0: return 2 * size;
    case DL_UINT: return 2 * size + 1;
    case DL_FLOAT: return o->item == 2 ? 12 : 6 + size;
    case 4: return 13; /* bfloat16 */
    default: return KINDS;
    }
}

/* quick(team, timeout, spins, call, detail, views, heap, target, source, size) -> True: done; False, and nothing has happened:
 * the arguments need another look. call, detail: 0, the root: broadcast; 1: fcollect; 2: alltoall; 3, mode * 7 + operator. */
static PyObject *py_quick(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    team_t t;
    fold_t f;
    view_t v;
    operand_t to, own;
    int64_t call, detail;
    if (!arity("quick", n, 10) || !to_team(args, &t) || !to_i64(args[3], &call)) return NULL;
    if (!PyLong_CheckExact(args[4]) || !to_i64(args[4], &detail) || !plain_pair(args[5], args + 7, &to, &own, &v) ||
        v.heap != args[6]) {
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    uint64_t members = (uint64_t)t.n, room = to.nbytes / to.item, length = own.nbytes / own.item, count = length;
    if (call == 2 && args[9] == Py_None && length % members) Py_RETURN_FALSE;
    if (call == 2) length = count = length / members;
    if (call == 1 || call == 2) room /= members;
    if (args[9] != Py_None && (!PyLong_CheckExact(args[9]) || !to_u64(args[9], &count))) { PyErr_Clear(); Py_RETURN_FALSE; }
    if (count == 0 || count > room || count > length || (call == 0 && (detail < 0 || detail >= t.n))) Py_RETURN_FALSE;
    if (call == 3 && !to_fold(&t, detail / 7, detail % 7, kind_of(&to), &f)) Py_RETURN_FALSE;
    char *dest = (char *)to.address, *source = (char *)own.address;
    uint64_t nbytes = count * own.item;
    blocks_t blocks = {call == 2 ? nbytes : 0, nbytes, 0, 0, 1};
    if (call == 0) broadcast(&t, detail, dest, source, nbytes);
    else if (call == 3) reduce(&t, &f, dest, source, count);
    else scatter(&t, dest + (uint64_t)t.me * nbytes, source, &blocks);
    if (!finish(&t)) return NULL;
    Py_RETURN_TRUE;
}

/* locate_pair(views, target, source) -> (heap, address, address, elements of target, of source, kind) of such a pair, else
 * None. kind as locate_word gives it. */
static PyObject *py_locate_pair(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self;
    view_t v;
    operand_t dest, source;
    if (!arity("locate_pair", n, 3)) return NULL;
    if (!plain_pair(args[0], args + 1, &dest, &source, &v)) Py_RETURN_NONE;
    return Py_BuildValue("OKKKKK", v.heap, dest.address, source.address, dest.nbytes / dest.item, source.nbytes / source.item,
                         dest.code * UINT64_C(16) + dest.item);
}
