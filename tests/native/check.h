/* Tests of the engine in C, which know neither Python nor MPI: each is a function of this list. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(CONDITION)                                                    \
    do {                                                                    \
        if (!(CONDITION)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #CONDITION); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

/* clang-format off */
#define TESTS(X) \
    X(layouts_of_the_protocol_have_no_gaps) \
    X(siphash_gives_its_authors_vector) \
    X(other_versions_are_no_greeting) \
    X(waits_end_in_time) \
    X(interrupted_waits_stop) \
    X(copies_of_overlapping_memory_are_those_of_memmove) \
    X(searches_begin_anywhere_and_skip_what_is_excluded) \
    X(atomics_by_number_are_those_by_name) \
    X(half_types_round_to_the_nearest) \
    X(pools_give_the_first_gap) \
    X(requests_outside_the_heap_are_refused) \
    X(requests_do_what_they_say) \
    X(large_replies_leave_from_the_heap) \
    X(a_session_does_not_care_how_bytes_arrive) \
    X(strangers_reach_nothing) \
    X(garbage_ends_the_process) \
    X(calls_reach_the_memory_of_a_pe) \
    X(small_puts_leave_together) \
    X(a_link_that_ends_fails_its_calls) \
    X(replies_that_nobody_expects_end_a_link) \
    X(barriers_let_nobody_pass) \
    X(small_reductions_combine_all_members) \
    X(broadcasts_reach_all_members) \
    X(calls_that_differ_are_refused_on_all_members) \
    X(a_member_that_does_not_come_is_waited_for_in_time)
/* clang-format on */
#define DECLARE_TEST(NAME) void NAME(void);
TESTS(DECLARE_TEST)

/* The same numbers in each run. */
static inline uint64_t chance(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}
