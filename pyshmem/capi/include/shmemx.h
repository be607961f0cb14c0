/* What ports of programs meet beside OpenSHMEM: names of other libraries that have a meaning here. The linker reports
 * all others by their names. */
#ifndef PYSHMEM_SHMEMX_H
#define PYSHMEM_SHMEMX_H
#include <shmem.h>

#include "shmemx_names.h"

/* of shmem_malloc_with_hints: memory of the GPU heap, or of the CPU heap if there is none */
#define PYSHMEM_HINT_GPU (1L << 16)

/* Sandia's */
#define SHMEMX_TEAM_NODE SHMEM_TEAM_SHARED
#define SHMEMX_MALLOC_NO_BARRIER 0L /* a hint: an allocation may end with a barrier all the same */

/* Cray's: shmem_putmem_signal, which sets the signal */
static inline void shmemx_putmem_signal(void *dest, const void *source, size_t nbytes, uint64_t *sig_addr,
                                        uint64_t signal, int pe) {
    shmem_putmem_signal(dest, source, nbytes, sig_addr, signal, SHMEM_SIGNAL_SET, pe);
}

#ifdef __cplusplus
extern "C" {
#endif

/* Sandia's and Cray's: seconds since some time in the past */
double shmemx_wtime(void);

#ifdef __cplusplus
}
#endif

#endif
