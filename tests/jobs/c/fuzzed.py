"""Calls every C name that reads or writes memory, with random arguments, beside a model of the memory that it works on.

PE 0 calls, on the memory of PE 1; waits and tests are on its own. Run by test_fuzzed_c.py. Arguments: seed, calls of each name.
"""

import ctypes
import operator
import random
import sys

import numpy as np
import pyshmem as shmem
import torch
from pyshmem.c_names.rows import names
from pyshmem.c_names.spellings import SPELLINGS
from pyshmem.c_names.table import ROWS
from pyshmem.capi.compiler import HERE

BYTES, PEER, CTX_DEFAULT = 1024, ctypes.c_int(1), ctypes.c_void_p(1)
COMPARE = (operator.eq, operator.ne, operator.gt, operator.ge, operator.lt, operator.le)  # by C's number
CHANGES = {
    "add": np.add, "inc": lambda old, _: old + 1, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "set": lambda _, new: new, "swap": lambda _, new: new, "fetch": lambda old, _: old,
}  # fmt: skip
size, status_of = ctypes.c_size_t, ctypes.c_int
library = ctypes.CDLL(str(HERE / "libpyshmem.so"))
chance = random.Random(int(sys.argv[1]))
own = np.frombuffer(chance.randbytes(BYTES), np.uint8)
model = np.zeros(BYTES, np.uint8)  # of the block on PE 1


def c_of(dtype):
    return ctypes.c_longdouble if dtype == np.longdouble else np.ctypeslib.as_ctypes_type(dtype)


def passed(value):
    """A NumPy scalar as an argument."""
    return c_of(value.dtype)(float(value) if value.dtype.kind == "f" else int(value))


def at(array, offset=0):
    return ctypes.c_void_p(array.ctypes.data + offset)


def there(offset):
    return ctypes.c_void_p(base + offset)


def some(dtype, count=1):
    """Random values; those of floats are exact in each type."""
    if dtype.kind == "f":
        return np.array([chance.randint(-99, 99) / 4 for _ in range(count)], dtype)
    return np.frombuffer(chance.randbytes(count * dtype.itemsize), dtype).copy()


def place(item, count=1):
    """The offset of a random range of elements."""
    return chance.randint(0, BYTES // item - count) * item


def call(routine, *arguments, returns=None):
    function = getattr(library, chance.choice(("", "p")) + routine.name)
    function.restype = returns
    return function(*([CTX_DEFAULT] if routine.ctx else []), *arguments)


def returned(routine, kind):
    return None if routine.prototype.startswith("void") else kind


def write(where, value):
    """Give PE 1 and the model a value."""
    model[where : where + value.nbytes] = value.view(np.uint8)
    library.shmem_putmem(there(where), at(value), size(value.nbytes), PEER)
    library.shmem_quiet()


def fetched(routine, want, there_, *arguments):
    """Call a get into a copy of ``own`` at an offset, which must be as ``want`` then."""
    back = own.copy()
    call(routine, at(back, there_[0]), there(there_[1]), *arguments, PEER)
    library.shmem_quiet()
    assert (back == want).all(), routine.name


def copies(routine, host, dtype):
    item = dtype.itemsize
    count = chance.choice((0, 1, 2, 3, 8, 40))
    to, source, nbytes = place(item, count), place(item, count), count * item
    if host.startswith("get"):
        want = own.copy()
        want[to : to + nbytes] = model[source : source + nbytes]
        fetched(routine, want, (to, source), size(count))
        return
    tail = []
    if "signal" in host:
        word = chance.choice([each for each in range(0, BYTES, 8) if each + 8 <= to or each >= to + nbytes])
        value, adds, signal = some(np.dtype(np.uint64)), chance.randint(0, 1), model[word : word + 8].view(np.uint64)
        tail = [there(word), passed(value[0]), ctypes.c_int((shmem.SIGNAL.SET, shmem.SIGNAL.ADD)[adds])]
        signal[:] = value + signal * np.uint64(adds)
    model[to : to + nbytes] = own[source : source + nbytes]
    call(routine, there(to), at(own, source), size(count), *tail, PEER)


def strided(routine, host, dtype):
    item, blocked = dtype.itemsize, "b" in host
    many, count = chance.randint(1, 3) if blocked else 1, chance.randint(0, 4)
    dst, sst = (many + chance.randint(0, 3) for _ in range(2))
    to, source = (place(item, step * count + many) for step in (dst, sst))
    given = [ctypes.c_ssize_t(dst), ctypes.c_ssize_t(sst), *([size(many)] if blocked else []), size(count)]
    read, written = (model, own.copy()) if "get" in host else (own, model)
    for i in range(count):
        a, b = to + i * dst * item, source + i * sst * item
        written[a : a + many * item] = read[b : b + many * item]
    if "get" in host:
        fetched(routine, written, (to, source), *given)
    else:
        call(routine, there(to), at(own, source), *given, PEER)


def atomics(routine, host, dtype):
    where, name = place(dtype.itemsize), host.removeprefix("atomic_").removesuffix("_nbi")
    old, value, fetch = some(dtype), some(dtype), np.zeros(1, dtype)
    write(where, old)
    given = [] if name in ("fetch", "fetch_inc", "inc") else [passed(value[0])]
    if name == "compare_swap":
        cond = chance.choice((old, some(dtype)))
        new, given = (value if cond == old else old), [passed(cond[0]), *given]
    else:
        new = CHANGES[name.removeprefix("fetch_")](old, value)
    model[where : where + dtype.itemsize] = new.astype(dtype).view(np.uint8)
    later = [at(fetch)] if host.endswith("_nbi") else []
    seen = call(routine, *later, there(where), *given, PEER, returns=returned(routine, c_of(dtype)))
    library.shmem_quiet()
    assert (fetch[0] if later else old[0] if seen is None else seen) == old[0], routine.name


def elements(routine, host, dtype):
    """p, g, signal_set and signal_add."""
    where, old, value = place(dtype.itemsize), some(dtype), some(dtype)
    write(where, old)
    if host == "g":
        assert call(routine, there(where), PEER, returns=c_of(dtype)) == old[0], routine.name
        return
    call(routine, there(where), passed(value[0]), PEER)
    new = (old + value if host == "signal_add" else value).view(np.uint8)
    library.shmem_getmem(at(old), there(where), size(dtype.itemsize), PEER)
    new[10 if dtype == np.longdouble else 16 :] = old.view(np.uint8)[10 if dtype == np.longdouble else 16 :]  # padding
    model[where : where + dtype.itemsize] = new


def waits(routine, host, dtype):
    """A call on one word or on several; a wait only if it ends."""
    which = next((each for each in ("any", "some", "all") if each in host.split("_")), "")
    count, item = chance.randint(1, 4) if which else 1, dtype.itemsize
    where, words, wanted = place(item, count), some(dtype, count), some(dtype, count)
    for i in range(count):
        wanted[i] = chance.choice((words[i], wanted[i])) if host.endswith("vector") or not i else wanted[0]
    ctypes.memmove(base + where, words.ctypes.data, words.nbytes)
    cmp = [] if "int cmp," not in routine.prototype else [chance.randrange(6)]
    status = np.array([bool(which) and chance.random() < 0.3 for _ in range(count)], np.int32)
    included = np.flatnonzero(status == 0).tolist()
    holds = [i for i in included if COMPARE[cmp[0] if cmp else 1](words[i], wanted[i])]
    enough = bool(holds) or not included if which in ("any", "some") else holds == included
    if host.startswith("wait") and not enough:
        return
    indices = np.zeros(count, np.uintp)
    several = [size(count), *([at(indices)] if which == "some" else []), at(status)] if which else []
    value = at(wanted) if host.endswith("vector") else passed(wanted[0])
    kind = returned(routine, size if which in ("any", "some") else ctypes.c_int)
    seen = call(routine, there(where), *several, *map(ctypes.c_int, cmp), value, returns=kind)
    if which == "some":
        assert indices[:seen].tolist() == holds, routine.name
    elif which == "any":
        assert seen in holds or (not holds and seen == size(-1).value), routine.name
    else:
        assert seen is None or bool(seen) == enough, routine.name


FAMILIES = {
    "put": copies, "get": copies, "iput": strided, "iget": strided, "ibput": strided, "ibget": strided, "p": elements,
    "g": elements, "signal": elements, "atomic": atomics, "wait": waits, "test": waits,
}  # fmt: skip
_OTHERS = ("signal_fetch", "signal_wait_until")

shmem.init()
block = shmem.zeros(BYTES, dtype=torch.uint8, device="cpu")
base, actual = shmem.c_address(block), np.zeros(BYTES, np.uint8)
np.seterr(over="ignore")
called = 0
for routine in names(ROWS).values() if shmem.my_pe() == 0 else ():
    host = routine.row.host
    family = FAMILIES.get(host.split("_")[0])
    if family is None or host in _OTHERS:
        continue
    kind = routine.typename or ("uint64" if "signal" in host else "long")
    for _ in range(int(sys.argv[2])):
        family(routine, host, np.dtype(SPELLINGS[kind][1]))
    called += 1
    library.shmem_quiet()
    library.shmem_getmem(at(actual), there(0), size(BYTES), PEER)
    assert (actual == model).all(), routine.name
shmem.barrier_all()
if shmem.my_pe() == 0:
    print(called)
shmem.finalize()
