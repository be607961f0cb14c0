/* What the C library (pyshmem/capi) calls in the module _native, which alone has teams and far PEs: a table of
 * functions. They need no turn of the host and call no Python. */
#pragma once
#include <stdint.h>

#include "../far/protocol.h"

/* What a call returns. MIXED: a member has passed private memory from Python. LOST: a far PE does not answer.
 * DIFFERENT: the members' calls differ. UNLIKE: this member's broadcast is not the root's. BROKEN: a member has left a
 * call before its end. */
enum {
    CALL_DONE,
    CALL_TIMED_OUT,
    CALL_INTERRUPTED,
    CALL_NO_MEMORY,
    CALL_MIXED,
    CALL_LOST,
    CALL_DIFFERENT,
    CALL_UNLIKE,
    CALL_BROKEN
};

/* bytes: of this table. team: of library_team. routine: what the program has called. word: tells the members' calls
 * apart, see pyshmem.diagnosis.mismatched_calls. Places are those of protocol.h; steps are in bytes. */
typedef struct {
    uint64_t bytes;
    int (*sync)(void *team, const char *routine, uint64_t word);
    int (*share)(void *team, const char *routine, uint64_t word, const void *note, uint64_t nbytes, void *all);
    int (*broadcast)(void *team, const char *routine, uint64_t word, int64_t root, void *dest, const void *source,
                     uint64_t nbytes, int keeps); /* keeps: the root's dest stays as it is */
    int (*scatter)(void *team, const char *routine, uint64_t word, void *dest, const void *source,
                   const uint64_t blocks[5]); /* blocks_t */
    int (*fold)(void *team, const char *routine, uint64_t word, const int how[3], void *dest, const void *source,
                uint64_t count);
    int (*put)(uint64_t place, const void *source, uint64_t nbytes);
    int (*get)(void *dest, uint64_t place, uint64_t nbytes, int wait);
    int (*put_strided)(uint64_t place, const void *source, uint64_t step, uint64_t own, uint64_t item, uint64_t count);
    int (*get_strided)(void *dest, uint64_t place, uint64_t own, uint64_t step, uint64_t item, uint64_t count);
    int (*atomic)(uint64_t place, uint32_t detail, uint64_t value, uint64_t cond, void *old, int wait);
    int (*put_signal)(uint64_t place, const void *source, uint64_t nbytes, uint64_t word, uint32_t detail,
                      uint64_t value);
    int (*quiet)(void);
    int (*quiet_pe)(int pe);
    int (*help)(int ends); /* called in a wait, and with `ends` at its end, see helper in spin.h */
    int (*fence)(void);    /* later operations on a PE take effect after earlier ones */
} native_calls_t;

enum { PLACE_SHIFT = FAR_SHIFT }; /* places from 1 << PLACE_SHIFT on are far */

enum { REDUCE, INSCAN, EXSCAN }; /* modes of a fold */

/* The numbers of calls in words, also of those that Python alone makes. */
enum {
    WORD_BROADCAST = 1,
    WORD_FCOLLECT,
    WORD_ALLTOALL,
    WORD_ALLTOALLS,
    WORD_COLLECT,
    WORD_SHARE,
    WORD_ALLOCATE,
    WORD_REALLOC,
    WORD_FREE,
    WORD_REGISTER,
    WORD_UNREGISTER,
    WORD_ALLTOALLV,
    WORD_FOLD = 16 /* and more: mode * OPERATORS + operator */
};
