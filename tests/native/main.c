#include "check.h"

/* The counts for `pyshmem top` are plain increments: of two threads at once, one may be lost (counts.h). */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return "race:no_activity\n"; }

#define RUN(NAME) {#NAME, NAME},
static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {TESTS(RUN)};

/* Runs all tests, or those whose names have one of the words. */
int main(int count, char **words) {
    size_t run = 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        int wanted = count < 2;
        for (int k = 1; k < count; k++) wanted |= strstr(tests[i].name, words[k]) != NULL;
        if (!wanted) continue;
        fprintf(stderr, "%s\n", tests[i].name);
        tests[i].run();
        run++;
    }
    printf("%zu tests passed\n", run);
    return run == 0;
}
