"""The implementation of pyshmem.shmem: a table of C prototypes, and one body for each kind of call.

table    the prototypes, a row for each family of names
rows     what a row is, and the routines of each
constants  C's constants and handles, and spellings, C's types; packaging/stubs.py reads these four without torch
types    C's types as torch's and NumPy's
elements  which element types a typed name accepts
addresses  converts C's pointers to arrays that the Python API accepts
one_sided, waits, collectives, active_sets, management    the bodies
handles  the structs, and the values of the constants
unfold   creates the function of a name
"""
