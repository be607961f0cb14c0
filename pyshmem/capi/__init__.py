"""The C library libpyshmem, on the job of this package: C programs and C libraries call OpenSHMEM by it.

generate      writes shmem.h and the functions of all names from the table of pyshmem.c_names
libpyshmem.c  the library: _state.h, and a header for each kind of call; what is alike in Python is in pyshmem/runtime/_*.h
bridge        Python's side: what is rare, and the description of the job
on_gpu        calls on the GPU heap
compiler      oshcc and oshc++
"""
