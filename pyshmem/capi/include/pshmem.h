/* For tools: pshmem_<name> is the library's own function where a tool replaces shmem_<name>. */
#include <shmem.h>
