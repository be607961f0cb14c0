"""The implementation of pyshmem.shmem: a table of C prototypes, and one body for each kind of call.

table    the prototypes, a row for each family of names
types    C's types, and the lists of types for which rows define names
elements  which element types a typed name accepts
addresses  converts C's pointers to arrays that the Python API accepts
one_sided, waits, collectives, active_sets, management    the bodies
unfold   creates names from rows, and the function of a name
stub     writes pyshmem/shmem.pyi and docs/c-names.md; `make check` compares them
"""
