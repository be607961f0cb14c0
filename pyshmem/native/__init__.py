"""The C code: the extension module ``_native`` and, in ``shmem``, the C library. CONTRIBUTING.md has its folders."""
