"""Calls C names with sizes of 0, and with one wrong argument, in a forked process, which must end with that routine's error.

All PEs make the calls of size 0, and PE 0 the others, on the memory of the last PE. None of the memory changes: it has other
values on each PE. Run by test_sizes_c.py. Argument: seed.
"""

import ctypes
import os
import random
import re
import signal
import sys

import numpy as np
import pyshmem as shmem
import torch
from pyshmem.c_names.rows import names
from pyshmem.c_names.spellings import SPELLINGS
from pyshmem.c_names.table import ROWS
from pyshmem.capi.compiler import HERE
from pyshmem.memory.heap import heaps

BYTES, WORLD, DEFAULT, SECONDS, HEAP = 1024, 1, 1, 100, 4 << 20
library = ctypes.CDLL(str(HERE / "libpyshmem.so"))
chance = random.Random(int(sys.argv[1]))
WORDS = {"sig_addr", "ivar", "ivars", "lock", "pSync"}  # what must be aligned, beside the arrays of p, g and atomics
SIZES = {"nelems", "nreduce", "bsize", "nblocks", "npes"}


def valid(name, kind):
    """A right argument of this name."""
    symmetric = {"dest": 0, "source": 256, "ivar": 0, "ivars": 0, "sig_addr": 512, "lock": 512, "pWrk": 768}
    private = {"fetch": 0, "indices": 0, "cmp_values": 64, "target_pes": 128}
    if name in symmetric:
        return ctypes.c_void_p(base + symmetric[name])
    if name == "pSync":
        return ctypes.c_void_p(shmem.c_address(sync))
    if name == "signal":
        return ctypes.c_uint64(int.from_bytes(bytes([77 + last]) * 8, "little"))  # what is there
    if name in private:
        return ctypes.c_void_p(own.ctypes.data + private[name])
    if name in ("value", "cond", "cmp_value"):
        return scalar(kind)
    if name in ("dst", "sst"):
        return ctypes.c_ssize_t(2)
    numbers = {
        "team": WORLD,
        "ctx": DEFAULT,
        "status": 0,
        **dict.fromkeys(SIZES, 2),
        "pe": last,
        "PE_size": shmem.n_pes(),
    }
    return (ctypes.c_size_t if name in SIZES | {"team", "ctx", "status"} else ctypes.c_int)(numbers.get(name, 0))


def scalar(kind):
    if kind == np.longdouble:
        return ctypes.c_longdouble(1)
    return np.ctypeslib.as_ctypes_type(kind)(1)


def sizes_of(name, item):
    """Numbers of elements that wrap: their bytes are few, or 0, modulo 2**64, or a negative int64."""
    few = chance.randrange(1, 9)
    wrapped = (
        [2**64 // item + few, 2**64 - few, 2**63 // item + few, 2**64 // item] if item > 1 else [2**64 - few, 2**63]
    )
    if name in ("dst", "sst"):
        return [-few, 0, *(each + few for each in (2**63 // item, 2**64 // item) if each + few < 2**63)]
    return [2**64 - few, 2**63] if name == "nblocks" else wrapped


def wrong(routine, name, item):
    """Wrong arguments of this name, and the arguments that an error may name."""
    word = name in WORDS or (name in ("dest", "source") and re.search("_(p|g)$|atomic", routine.name))
    if name in SIZES - {"npes"} and "int nreduce" not in routine.prototype:
        yield from ((ctypes.c_size_t(each), (name, "dst", "sst", "nelems")) for each in sizes_of(name, item))
    elif name == "nreduce":
        yield ctypes.c_int(-chance.randrange(1, 2**31)), ("nreduce",)
    elif name in ("dst", "sst"):
        yield from ((ctypes.c_ssize_t(each), ("dst", "sst", "dest", "source")) for each in sizes_of(name, item))
    elif (word and item > 1) or name in WORDS:
        least = 8 if name in WORDS - {"ivar", "ivars"} or item > 8 else item
        away = valid(name, None).value + chance.randrange(1, least) if least > 1 else None
        yield from [(ctypes.c_void_p(away), (name,))] if away else []
    elif name == "cmp":
        yield ctypes.c_int(chance.choice((6, -1, 99))), ("cmp",)
    elif name in ("indices", "target_pes"):
        yield ctypes.c_void_p(0), (name,)
    elif name == "sig_op":
        yield ctypes.c_int(chance.choice((2, -1))), ("sig_op",)
    elif name == "pe":
        yield ctypes.c_int(chance.choice((-1, shmem.n_pes(), 2**31 - 1, -(2**31)))), ("pe",)


def said_by(routine, arguments):
    """What a forked process that makes the call says, and how it ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writing, 2)
        signal.alarm(SECONDS)
        getattr(library, routine.name)(*arguments)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as text:
        said = text.read()
    return said, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check(routine, arguments, argument, given):
    said, status = said_by(routine, arguments)
    wants = rf"{routine.name}: PE 0: ({'|'.join(argument)}): got [^\n]*; expected [^\n]*\n"
    values = [getattr(each, "value", each) for each in arguments]
    assert status == 1 and re.fullmatch(wants, said), (routine.prototype, argument[0], given, values, status, said)
    library.shmem_getmem(
        ctypes.c_void_p(actual.ctypes.data), ctypes.c_void_p(base), ctypes.c_size_t(BYTES), ctypes.c_int(last)
    )
    assert (actual == 77 + last).all() and (block == 77).all(), (routine.prototype, argument[0], given)


def elements_of(routine):
    """The type of the elements, and their bytes."""
    digits = routine.typename if routine.typename.isdigit() else {"mem": "8"}.get(routine.typename)
    if digits:
        return np.dtype("uint8"), int(digits) // 8
    kind = np.dtype(
        SPELLINGS[routine.typename][1] if routine.typename else "uint64" if "sig_" in routine.prototype else "int64"
    )
    return kind, kind.itemsize


def call_with_nothing(routine, given, kind):
    """A call of no elements, whose arrays may be anywhere: at the ends of the heap, beside it, or NULL."""
    arguments = [valid(each, kind) for each in given]
    of_blocks = chance.choice(({"bsize"}, {"nblocks"}, {"bsize", "nblocks"}))
    anywhere = base, base + BYTES, base + HEAP - 8, base + HEAP, own.ctypes.data, 0
    for at, name in enumerate(given):
        if name in SIZES and ((name[0] != "b" and name != "nblocks") or name in of_blocks):
            arguments[at] = (ctypes.c_int if "int nreduce" in routine.prototype else ctypes.c_size_t)(0)
        if name in ("dest", "source", "ivars", "indices", "cmp_values", "target_pes"):
            arguments[at] = ctypes.c_void_p(chance.choice(anywhere))
    getattr(library, routine.name)(*[ctypes.c_void_p(DEFAULT)] * routine.ctx, *arguments)


def check_zeros():
    for routines in by_row.values():
        given = [each for each in routines[0].row.parameters if each != "..."]
        for _ in range(4 if SIZES & set(given) else 0):
            routine = chance.choice(routines)
            call_with_nothing(routine, given, elements_of(routine)[0])
    library.shmem_barrier_all()
    assert (block == 77 + shmem.my_pe()).all() and (rest == 77 + shmem.my_pe()).all() and not sync.any()
    library.shmem_barrier_all()


def check_contexts():
    """Handles that never were contexts, one that has ended, and no room for a handle."""
    made = ctypes.c_void_p()
    assert library.shmem_ctx_create(ctypes.c_long(0), ctypes.byref(made)) == 0
    library.shmem_ctx_destroy(made)
    row = names(ROWS)
    for handle in (made.value, 7, made.value + 8, 2**64 - 1, own.ctypes.data):
        ctx = ctypes.c_void_p(handle)
        arguments = ctx, ctypes.c_void_p(base), ctypes.c_void_p(own.ctypes.data), ctypes.c_size_t(1), ctypes.c_int(last)
        check(row["shmem_ctx_long_put"], arguments, ("ctx",), handle)
        for name in ("shmem_ctx_quiet", "shmem_ctx_fence", "shmem_ctx_destroy"):
            check(row[name], (ctx,), ("ctx",), handle)
    none = ctypes.c_void_p(0)
    check(row["shmem_ctx_create"], (ctypes.c_long(0), none), ("ctx",), None)
    check(row["shmem_team_get_config"], (ctypes.c_void_p(WORLD), ctypes.c_long(1), none), ("config",), None)


def check_allocations():
    """No memory is NULL, on all PEs; and so is an alignment that is no power of two."""
    few, null, huge = chance.randrange(1, 99), [], ctypes.c_size_t
    for name in ("shmem_malloc", "shmem_malloc_with_hints", "shmem_calloc", "shmem_align", "shmem_realloc"):
        getattr(library, name).restype = ctypes.c_void_p
    kept = library.shmem_malloc(huge(64))
    for nbytes in (2**63 - few, 2**63, 2**63 + few, 2**64 - few, 2**60):
        null.append(library.shmem_malloc(huge(nbytes)))
        null.append(library.shmem_malloc_with_hints(huge(nbytes), ctypes.c_long(0)))
        null += [library.shmem_calloc(huge(a), huge(b)) for a, b in ((1, nbytes), (nbytes, 1), (nbytes, nbytes))]
        null += [library.shmem_calloc(huge(2**32 + few), huge(2**32)), library.shmem_calloc(huge(2**61 + 1), huge(8))]
        null += [library.shmem_align(huge(64), huge(nbytes)), library.shmem_align(huge(nbytes | 2**59), huge(64))]
        null.append(library.shmem_realloc(ctypes.c_void_p(kept), huge(nbytes)))
    null += [library.shmem_align(huge(each), huge(64)) for each in (0, 3, 48, 2**63, 2**64 - 1)]
    assert null == [None] * len(null)
    library.shmem_free(ctypes.c_void_p(kept))


shmem.init(heap_size="4m")
last = shmem.n_pes() - 1
block, sync = (
    shmem.full(BYTES, 77 + shmem.my_pe(), dtype=torch.uint8, device="cpu"),
    shmem.zeros(8, dtype=torch.int64, device="cpu"),
)
base, own, actual = shmem.c_address(block), np.zeros(1 << 16, np.uint8), np.zeros(BYTES, np.uint8)
check_allocations()
rest = shmem.full(heaps["cpu"].allocator.largest_hole(), 77 + shmem.my_pe(), dtype=torch.uint8, device="cpu")
called = 0
by_row = {}
for routine in names(ROWS).values():
    by_row.setdefault(routine.row.prototype, []).append(routine)
check_zeros()
for routines in by_row.values() if shmem.my_pe() == 0 else ():
    routine = chance.choice(routines)
    kind, item = elements_of(routine)
    given = [each for each in routine.row.parameters if each != "..."]
    for at, name in enumerate(given) if routine.row.host or "lock" in given or "target_pes" in given else ():
        for value, argument in wrong(routine, name, item):
            arguments = [valid(each, kind) for each in given]
            arguments[at] = value
            check(routine, [ctypes.c_void_p(DEFAULT)] * routine.ctx + arguments, argument, value.value)
            called += 1
if shmem.my_pe() == 0:
    check_contexts()
    print(called)
shmem.barrier_all()
assert (block == 77 + shmem.my_pe()).all() and (rest == 77 + shmem.my_pe()).all()
shmem.finalize()
