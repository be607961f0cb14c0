"""Every C name is called, with its own type, and what it did is compared with NumPy. A line of openshmem-1.6.txt is a test."""

import re
import warnings

import numpy as np
import pytest
import torch

import pyshmem as shmem
import pyshmem.shmem as c
from c_interface import NUMPY, read
from pyshmem.c_names import deprecation
from support import GUARD, neighbours

COUNT = 8
REDUCE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "max": np.maximum, "min": np.minimum,
          "sum": np.add, "prod": np.multiply}  # fmt: skip


class Call:
    """One name under test: its function, element type, ctx, and arguments in turn as NumPy array, bytes tensor, int."""

    def __init__(self, name, key, function=None, ctx=None):
        self.name, self.key = name, key
        self.function = function or getattr(c, name)
        self.dtype = np.dtype(NUMPY.get(key, "i8"))
        self.context = [ctx] if ctx is not None else [c.SHMEM_CTX_DEFAULT] if "_ctx_" in name else []
        self.typed = function is not None or name == "shmem_wait_until"  # generic: the element type must show
        self.turn = sum(name.encode())
        self.me, self.npes = shmem.my_pe(), shmem.n_pes()
        self.left, _, self.right = neighbours()

    def __call__(self, *arguments):
        return self.function(*self.context, *arguments)

    def symmetric(self, count, dtype=None):
        """Symmetric memory as a NumPy array, every byte GUARD, with an element behind what is asked for."""
        kind = np.dtype(dtype) if dtype else self.dtype
        array = shmem.full((count + 1) * kind.itemsize, GUARD, dtype=torch.uint8).numpy().view(kind)
        return array

    def address(self, array):
        """The array's memory in one of the ways to give an address."""
        self.turn += 1
        if self.typed or self.turn % 3 == 0:
            return array
        return array.ctypes.data if self.turn % 3 == 1 else torch.from_numpy(array.view(np.uint8))

    def values(self, pe, count=COUNT):
        """What ``pe`` sends: every value tells the sender and its place; small enough for 8 bits and for products."""
        return ((np.arange(count) * 3 + pe * 7 + 1) % 11 + 1).astype(self.dtype)

    def sent(self, count=COUNT):
        """This PE's values, symmetric, as an address."""
        array = self.symmetric(count)
        array[:count] = self.values(self.me, count)
        shmem.barrier_all()
        return self.address(array)

    def holds(self, array, values):
        """Whether the array begins with these and goes on untouched."""
        np.testing.assert_array_equal(array[: len(values)], values, err_msg=self.name)
        behind = array[len(values) :].view(np.uint8)
        assert (behind == GUARD).all(), f"{self.name} wrote behind its target"


def moves(call, pick):
    shmem.barrier_all()
    dest, source = call.symmetric(COUNT), call.sent()
    to = call.address(dest)
    call(to, source, COUNT, pick(call)[0])
    shmem.barrier_all()
    call.holds(dest, call.values(pick(call)[1]))


def put(call):
    moves(call, lambda each: (each.right, each.left))


def get(call):
    moves(call, lambda each: (each.right, each.right))


def p(call):
    dest = call.symmetric(1)
    assert call(call.address(dest), call.values(call.me, 1)[0], call.right) is None
    shmem.barrier_all()
    call.holds(dest, call.values(call.left, 1))


def g(call):
    assert call(call.sent(), call.right) == call.values(call.right, 1)[0]


def strided(call, from_left):
    dest, source = call.symmetric(7), call.sent(10)
    call(call.address(dest), source, 2, 3, 4, call.right)  # 4 elements, every 3rd to every 2nd
    shmem.barrier_all()
    pe = call.left if from_left else call.right
    np.testing.assert_array_equal(dest[::2], call.values(pe, 10)[::3], err_msg=call.name)
    assert (dest[1::2].copy().view(np.uint8) == GUARD).all()


def blocked(call, from_left):
    dest, source = call.symmetric(6), call.sent(5)
    call(call.address(dest), source, 4, 3, 2, 2, call.right)  # 2 blocks of 2, every 3rd to every 4th
    shmem.barrier_all()
    values = call.values(call.left if from_left else call.right, 5)
    np.testing.assert_array_equal(dest[[0, 1, 4, 5]], values[[0, 1, 3, 4]], err_msg=call.name)
    assert (dest[[2, 3, 6]].copy().view(np.uint8) == GUARD).all()


def put_signal(call):
    dest, signal, source = call.symmetric(COUNT), call.symmetric(1, "u8"), call.sent()
    start = int(signal[0])
    shmem.barrier_all()
    call(call.address(dest), source, COUNT, call.address(signal), 5, c.SHMEM_SIGNAL_ADD, call.right)
    assert c.shmem_signal_wait_until(signal, c.SHMEM_CMP_EQ, start + 5) == start + 5
    call.holds(dest, call.values(call.left))


def signal_set(call):
    signal = call.symmetric(1, "u8")
    call(call.address(signal), 9 + call.me, call.right)
    shmem.barrier_all()
    call.holds(signal, [9 + call.left])


def signal_add(call):
    signal = call.symmetric(1, "u8")
    call(call.address(signal), 9 + call.me, call.right)
    shmem.barrier_all()
    call.holds(signal, [int.from_bytes([GUARD] * 8, "little") + 9 + call.left])


def signal_fetch(call):
    signal = call.symmetric(1, "u8")
    signal[0] = 2**63 + call.me
    assert call(call.address(signal)) == 2**63 + call.me


def signal_wait_until(call):
    signal = call.symmetric(1, "u8")
    signal[0] = 0
    shmem.barrier_all()
    shmem.signal_set(torch.from_numpy(signal[:1]), 2**63 + call.me, call.right)
    assert call(call.address(signal), c.SHMEM_CMP_NE, 0) == 2**63 + call.left


# name: (arguments besides dest, what the word becomes, whether the old value is returned); w, v, u: word and arguments
ATOMICS = {
    "fetch": (0, lambda w: w, True),
    "set": (1, lambda w, v: v, False),
    "swap": (1, lambda w, v: v, True),
    "compare_swap": (2, lambda w, u, v: v if w == u else w, True),
    "inc": (0, lambda w: w + 1, False),
    "fetch_inc": (0, lambda w: w + 1, True),
    "add": (1, lambda w, v: w + v, False),
    "fetch_add": (1, lambda w, v: w + v, True),
    "and": (1, lambda w, v: w & v, False),
    "fetch_and": (1, lambda w, v: w & v, True),
    "or": (1, lambda w, v: w | v, False),
    "fetch_or": (1, lambda w, v: w | v, True),
    "xor": (1, lambda w, v: w ^ v, False),
    "fetch_xor": (1, lambda w, v: w ^ v, True),
}
OLD_ATOMICS = {"cswap": "compare_swap", "finc": "fetch_inc", "fadd": "fetch_add"}


def atomic(call, name, nbi=False):
    count, becomes, fetches = ATOMICS[name]
    word, fetched = call.symmetric(1), call.symmetric(1)
    word[0] = 50 + call.me

    def arguments(pe):  # compare_swap's condition holds for even PEs
        return [50 + (pe + 1) % call.npes + pe % 2, 9 + pe][2 - count :]

    shmem.barrier_all()
    first = [call.address(fetched)] if nbi else []
    old = call(*first, call.address(word), *arguments(call.me), call.right)
    shmem.barrier_all()
    call.holds(word, [becomes(50 + call.me, *arguments(call.left))])
    if nbi:
        assert old is None
        call.holds(fetched, [50 + call.right])
    else:
        assert old == (50 + call.right if fetches else None), call.name


def wait(call):
    word = call.symmetric(1)
    word[0] = 0
    shmem.barrier_all()
    shmem.put(word[:1], np.array([40 + call.me], call.dtype), call.right)
    arguments = (40 + call.left,) if call.name.endswith("_wait") else (c.SHMEM_CMP_GE, 40)
    if call.name.endswith("_wait"):
        call(call.address(word), 0)
    else:
        assert call(call.address(word), *arguments) is None
    assert word[0] == 40 + call.left


def look(call):
    word = call.symmetric(1)
    word[0] = 40 + call.me
    assert call(call.address(word), c.SHMEM_CMP_EQ, 40 + call.me) == 1
    assert call(call.address(word), c.SHMEM_CMP_GT, 40 + call.me) == 0


def many(call, which, waits, vector):
    words, status = call.symmetric(3), np.array([0, 1, 0, 0], np.int32)
    words[:3] = 0
    shmem.barrier_all()
    shmem.put(words[:3], np.array([10, 20, 30], call.dtype), call.right)
    if not waits:
        shmem.barrier_all()
    indices = np.full(4, GUARD, np.uint64)

    def look(cmp, value):
        wanted = call.address(np.array([value] * 4, call.dtype)) if vector else value
        places = [call.address(indices)] if which == "some" else []
        return call(call.address(words), 3, *places, call.address(status), cmp, wanted)

    if waits:
        shmem.wait_until(words[2:3], "==", 30)  # all are there, so that every answer is known
        shmem.wait_until(words[0:1], "==", 10)
    found = look(c.SHMEM_CMP_GE, 10)
    assert {"all": found == (None if waits else 1), "any": found in (0, 2), "some": found == 2}[which], call.name
    if which == "some":
        assert indices.tolist() == [0, 2, GUARD, GUARD]
    if not waits:
        assert look(c.SHMEM_CMP_GT, 30) == {"all": 0, "any": 2**64 - 1, "some": 0}[which], call.name


class Group:
    """A collective's members as the call names them: a team first, or an active set last, with its pSync (and pWrk)."""

    def __init__(self, call, work=False):
        self.team = [] if "pSync" in call.parameters else [c.SHMEM_TEAM_WORLD]
        self.psync = None if self.team else call.symmetric(c.SHMEM_SYNC_SIZE, "i8")
        if not self.team:
            self.psync[: c.SHMEM_SYNC_SIZE] = c.SHMEM_SYNC_VALUE
        pwrk = [call.symmetric(c.SHMEM_REDUCE_MIN_WRKDATA_SIZE)] if work else []
        self.last = [] if self.team else [0, 0, call.npes, *pwrk, self.psync]
        self.call = call
        shmem.barrier_all()

    def __call__(self, *arguments):
        status = self.call(*self.team, *arguments, *self.last)
        assert status == (0 if self.team else None), self.call.name
        shmem.barrier_all()
        if not self.team:
            assert (self.psync[: c.SHMEM_SYNC_SIZE] == c.SHMEM_SYNC_VALUE).all()


def everybody(call, count=COUNT):
    return [call.values(pe, count) for pe in range(call.npes)]


def broadcast(call):
    dest, group, root = call.symmetric(COUNT), Group(call), call.npes - 1
    group(call.address(dest), call.sent(), COUNT, root)
    written = group.team or call.me != root  # with active sets the root's own is not
    call.holds(dest, call.values(root) if written else [])


def collect(call):
    dest, group = call.symmetric(call.npes * call.npes), Group(call)
    group(call.address(dest), call.sent(call.npes), call.me)  # PE 0 has nothing
    call.holds(dest, np.concatenate([call.values(pe, pe) for pe in range(call.npes)]))


def fcollect(call):
    dest, group = call.symmetric(COUNT * call.npes), Group(call)
    group(call.address(dest), call.sent(), COUNT)
    call.holds(dest, np.concatenate(everybody(call)))


def alltoall(call):
    dest, group = call.symmetric(2 * call.npes), Group(call)
    group(call.address(dest), call.sent(2 * call.npes), 2)
    mine = slice(2 * call.me, 2 * call.me + 2)
    call.holds(dest, np.concatenate([each[mine] for each in everybody(call, 2 * call.npes)]))


def alltoalls(call):
    total = 2 * call.npes
    dest, group = call.symmetric(2 * total), Group(call)
    group(call.address(dest), call.sent(3 * total), 2, 3, 2)
    blocks = [each[::3][2 * call.me : 2 * call.me + 2] for each in everybody(call, 3 * total)]
    np.testing.assert_array_equal(dest[: 2 * total : 2], np.concatenate(blocks), err_msg=call.name)
    assert (dest[1 : 2 * total : 2].copy().view(np.uint8) == GUARD).all()


def reduce(call, operator):
    dest, group = call.symmetric(COUNT), Group(call, work=True)
    group(call.address(dest), call.sent(), COUNT)
    with np.errstate(over="ignore"):
        call.holds(dest, REDUCE[operator].reduce(everybody(call), axis=0, dtype=call.dtype))


def scan(call, inclusive):
    dest, group = call.symmetric(COUNT), Group(call)
    group(call.address(dest), call.sent(), COUNT)
    part = everybody(call)[: call.me + inclusive]
    call.holds(dest, np.add.reduce(part, axis=0, dtype=call.dtype) if part else np.zeros(COUNT, call.dtype))


def driver_of(stem):
    """The test of a name without shmem_, ctx_, type or size."""
    atomic_name = stem.removeprefix("atomic_").removesuffix("_nbi")
    atomic_name = OLD_ATOMICS.get(atomic_name, atomic_name)
    found = re.fullmatch(r"(wait_until|test)_(all|any|some)(_vector)?", stem)
    operator = re.fullmatch(r"(\w+)_(reduce|to_all)", stem)
    if found:
        return lambda call: many(call, found[2], found[1] == "wait_until", bool(found[3]))
    if operator:
        return lambda call: reduce(call, operator[1])
    if atomic_name in ATOMICS and not stem.startswith("signal"):
        return lambda call: atomic(call, atomic_name, stem.endswith("_nbi"))
    return DRIVERS[stem]


DRIVERS = {
    "put": put, "put_nbi": put, "get": get, "get_nbi": get, "p": p, "g": g,
    "iput": lambda call: strided(call, True), "iget": lambda call: strided(call, False),
    "ibput": lambda call: blocked(call, True), "ibget": lambda call: blocked(call, False),
    "put_signal": put_signal, "put_signal_nbi": put_signal, "signal_set": signal_set, "signal_add": signal_add,
    "signal_fetch": signal_fetch, "signal_wait_until": signal_wait_until,
    "wait": wait, "wait_until": wait, "test": look,
    "broadcast": broadcast, "collect": collect, "fcollect": fcollect, "alltoall": alltoall, "alltoalls": alltoalls,
    "sum_inscan": lambda call: scan(call, 1), "sum_exscan": lambda call: scan(call, 0),
}  # fmt: skip


def stem_of(line):
    """put of shmem_ctx_<TYPENAME>_put, shmem_put<SIZE>, shmem_putmem and shmem_put alike."""
    plain = re.sub(r"<TYPENAME>_|<SIZE>|32|64|(?<!sh)mem", "", line.name)
    return plain.removeprefix("shmem_").removeprefix("ctx_")


FAMILIES = [line for line in read("current", "deprecated") if "<" in line.name or line.names[0][1]
            or "signal" in line.name or line.name in ("shmem_wait", "shmem_wait_until")]  # fmt: skip
GENERIC = [line for line in read("generic") if line.name != "shmem_sync"]


def title(line):
    return line.prototype.split("(")[0].split(" ")[-1] + ("_ctx" if "(shmem_ctx_t" in line.prototype else "")


@pytest.mark.parametrize("line", FAMILIES, ids=title)
def test_every_name_of_the_family_does_what_it_says_for_its_type(line):
    deprecation._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name, key in line.names:
            call = Call(name, key)
            call.parameters = line.parameters
            for _ in range(2 if line.state == "deprecated" else 1):
                driver_of(stem_of(line))(call)
    deprecated = line.state == "deprecated" and line.name != "shmem_wait_until"  # C11 has that one anew
    assert names_in(caught) == ([name for name, _ in line.names] if deprecated else [])


@pytest.mark.parametrize("line", GENERIC, ids=title)
def test_a_generic_name_takes_its_type_from_the_array(line):
    deprecation._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call_generic(line)
    deprecated = stem_of(line) in ("fetch", "set", "swap", "cswap", "finc", "inc", "fadd", "add")
    assert names_in(caught) == [line.name] * deprecated


def names_in(caught):
    """The names that warned; NumPy and torch may warn too."""
    return [str(each.message).split(" ")[0] for each in caught if "OpenSHMEM" in str(each.message)]


def call_generic(line):
    stem = stem_of(line)
    typed = next(each for each in FAMILIES if each.name == f"shmem_<TYPENAME>_{stem}" and each.keys[0] != "short") \
        if "TYPE" in line.prototype else None  # fmt: skip
    for key in typed.keys if typed else ("",):
        ctx = c.SHMEM_CTX_DEFAULT if line.parameters[0] == "ctx" else None
        call = Call(line.name, key, getattr(c, line.name), ctx)
        call.parameters = line.parameters
        driver_of(stem)(call)
