/* A check that fails ends the job with its line. The program has its PE in `me`. */
#pragma once
#include <shmem.h>
#include <stdio.h>

#define CHECK(...)                                                               \
    do {                                                                         \
        if (!(__VA_ARGS__)) {                                                    \
            fprintf(stderr, "PE %d: line %d: %s\n", me, __LINE__, #__VA_ARGS__); \
            shmem_global_exit(3);                                                \
        }                                                                        \
    } while (0)
