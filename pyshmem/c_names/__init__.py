"""What pyshmem.shmem is made of: a table of C prototypes, and one body for each shape of call.

table    the prototypes, a row for each family of names
types    C's types and the lists of them that rows unfold over
elements  which arrays may stand where a name has a type
addresses  from whatever C would take as a pointer to an array that the Python API takes
one_sided, waits, collectives, active_sets, management    the bodies
unfold   from rows to names, and from a name to its function
stub     writes pyshmem/shmem.pyi and docs/c-names.md; `make check` compares
"""
