/* How the files of pyshmem/native name what they share. Each library is one unit: module.c, or shmem/libpyshmem.c,
 * includes the .c files in the order of their layers, so that the compiler sees all of them at once and exports
 * nothing. `make check` compiles each file by itself too: so each header is complete, and nothing is used that it
 * does not declare. */
#pragma once
#ifdef PYSHMEM_UNIT
#define INTERNAL static /* a function of one file that others call */
#define GLOBAL static   /* the declaration of a variable of one file that others use */
#else
#define INTERNAL
#define GLOBAL extern
#endif
