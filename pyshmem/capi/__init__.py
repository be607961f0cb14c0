"""The C library libpyshmem, on the job of this package: C programs and C libraries call OpenSHMEM by it.

generate   writes shmem.h and the functions of all names from the table of pyshmem.c_names
bridge     Python's side of the library, which is in pyshmem/native/shmem: what is rare, and the description of the job
on_gpu     calls on the GPU heap
compiler   oshcc and oshc++
"""
