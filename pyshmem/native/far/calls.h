/* Calls on the memory of far PEs, by requests (link.h) or by the fabric (rma.h). */
#pragma once
#include "link.h"

INTERNAL link_t *far_put(uint64_t place, const char *source, uint64_t nbytes);
INTERNAL link_t *far_get(char *dest, uint64_t place, uint64_t nbytes, int wait);
INTERNAL link_t *far_ask(char *dest, uint64_t place, uint64_t nbytes, uint64_t *number);
INTERNAL link_t *far_await(uint64_t place, uint64_t number, uint64_t next);
INTERNAL int far_poll(link_t *l, uint64_t number, int64_t since);
INTERNAL link_t *far_put_strided(uint64_t place, const char *source, uint64_t step, uint64_t own_step, uint64_t item,
                                 uint64_t count);
INTERNAL link_t *far_get_strided(char *dest, uint64_t place, uint64_t own_step, uint64_t step, uint64_t item,
                                 uint64_t count);
INTERNAL link_t *far_atomic(uint64_t place, uint32_t detail, uint64_t value, uint64_t cond, void *old, int wait);
INTERNAL link_t *far_put_signal(uint64_t place, const char *source, uint64_t nbytes, uint64_t word, uint32_t detail,
                                uint64_t value);
INTERNAL link_t *far_post(uint64_t place, const char *source, uint64_t nbytes, uint64_t word, uint64_t epoch,
                          uint64_t asleep);
INTERNAL link_t *far_quiet(void);
INTERNAL link_t *far_quiet_pe(uint64_t pe);
INTERNAL link_t *far_fence(void);
INTERNAL void far_end_gets(void);
INTERNAL link_t *far_try(uint64_t place, uint64_t ms, uint64_t value, uint64_t *verdict);
INTERNAL int link_enter(link_t *l);
INTERNAL link_t *link_leave(link_t *l, int failed);
INTERNAL void link_say_bye(link_t *l);
