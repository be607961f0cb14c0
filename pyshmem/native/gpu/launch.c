#include "launch.h"

#include <stddef.h>

INTERNAL int (*forget_error)(void);

/* Returns the driver's code. */
INTERNAL int handled(int code) {
    if (code && forget_error) forget_error();
    return code;
}

/* CUlaunchAttribute and CUlaunchConfig. */
typedef struct {
    int32_t id, unused;
    union {
        int32_t allowed;
        uint64_t words[8];
    } value;
} launch_attribute_t;
typedef struct {
    uint32_t grid[3], block[3], shared;
    void *stream;
    launch_attribute_t *attributes;
    uint32_t count;
} launch_config_t;
enum { PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

/* Returns the driver's code. Is called without the GIL. words: each holds a parameter in its low bytes. Zeros follow
 * for the parameters that Triton appends. */
INTERNAL int start_kernel(const uint64_t *head, uint64_t stream, uint64_t *words) {
    void *parameters[MOST_WORDS + 4];
    for (int i = 0; i < MOST_WORDS + 4; i++) parameters[i] = &words[i];
    int (*call)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    int (*call_early)(launch_config_t *, void *, void **, void **);
    call = (__typeof__(call))head[LAUNCHER];
    call_early = (__typeof__(call_early))head[LAUNCHER];
    uint32_t grid[3] = {(uint32_t)head[GRID_X], (uint32_t)head[GRID_Y], (uint32_t)head[GRID_Z]};
    uint32_t threads = (uint32_t)head[THREADS], shared = (uint32_t)head[SHARED];
    launch_attribute_t early = {PROGRAMMATIC_STREAM_SERIALIZATION, 0, {1}};
    launch_config_t config = {{grid[0], grid[1], grid[2]}, {threads, 1, 1}, shared, (void *)stream, &early, 1};
    if (head[EARLY]) return call_early(&config, (void *)head[KERNEL], parameters, NULL);
    return handled(
        call((void *)head[KERNEL], grid[0], grid[1], grid[2], threads, 1, 1, shared, (void *)stream, parameters, NULL));
}
