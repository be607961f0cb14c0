"""Every call refuses what cannot be right: the kind of error, one sentence that says why, and nothing has changed on any PE.

What a row refuses is put into a call that is right otherwise, so that the refusal is due to it alone.
"""

import re

import numpy as np
import pytest
import torch
from support import assert_same, foreign, here, live, refuses, stretched

import pyshmem as shmem

ATOMICS = ["set", "add", "and", "or", "xor", "swap", "fetch_add", "fetch_and", "fetch_or", "fetch_xor"]
# routine: its arguments in order; the letter says what each is (see CASES), - what is not looked at here
ROUTINES = {
    "put": "target:A source:S pe:P size:N ctx:C",
    "put_nbi": "target:A source:S pe:P size:N ctx:C",
    "get": "target:S source:A pe:P size:N ctx:C",
    "get_nbi": "target:S source:A pe:P size:N ctx:C",
    "iput": "target:A source:S pe:P tst:T sst:T size:M ctx:C",
    "iget": "target:S source:A pe:P tst:T sst:T size:M ctx:C",
    "p": "target:W value:- pe:P ctx:C",
    "g": "source:W pe:P ctx:C",
    "put_signal": "target:A source:S pe:P signal:G value:U sigop:- size:N ctx:C",
    "put_signal_nbi": "target:A source:S pe:P signal:G value:U sigop:- size:N ctx:C",
    "signal_fetch": "signal:G",
    "signal_set": "signal:G value:U pe:P ctx:C",
    "signal_add": "signal:G value:U pe:P ctx:C",
    "signal_wait_until": "signal:G cmp:O value:U",
    "wait_until": "ivar:J cmp:O value:-",
    "test": "ivar:J cmp:O value:-",
    **{f"{kind}_{form}": "ivars:V cmp:O value:-" for kind in ("wait_until", "test") for form in ("all", "any", "some")},
    **{f"atomic_{name}": "target:I value:- pe:P ctx:C" for name in ATOMICS},
    "atomic_inc": "target:I pe:P ctx:C",
    "atomic_fetch_inc": "target:I pe:P ctx:C",
    "atomic_fetch": "source:I pe:P ctx:C",
    "atomic_compare_swap": "target:I cond:- value:- pe:P ctx:C",
    "ptr": "target:A pe:P",
}
ARGUMENTS = {name: dict(each.split(":") for each in text.split()) for name, text in ROUTINES.items()}

SYMMETRIC = "AWGIJV"  # what must be symmetric: an array, one word, a signal, one number, one integer, integers
ARRAYS = "a torch tensor or a NumPy array"
PRIVATE = r"that is not symmetric: private memory, such as the copy that x\[mask\] makes, or memory of an earlier init; expected an array from shmem\.zeros, empty, \.\.\. or a view of one"
LAYOUT = r"that is not C-contiguous; expected a contiguous one; for iput and iget a\.(view|reshape)\(-1\)\[k:\], from the first element on, and a stride"
ONE = r"got an array of shape .*; expected exactly one element, such as a\[j:j\+1\]"
E = shmem
# (what kinds of argument, name, value from the arena, error, text after the argument's name)
CASES = [
    (SYMMETRIC, "private", lambda a, k: a.good(k).clone(),
     E.NotSymmetricError, rf"got an? \w+ array of shape .* {PRIVATE}"),
    (SYMMETRIC, "private numpy", lambda a, k: foreign(a.good(k)).copy(),
     E.NotSymmetricError, rf"got an? \w+ array of shape .* {PRIVATE}"),
    (SYMMETRIC, "freed", lambda a, k: a.freed(k),
     E.NotSymmetricError, r"got an? \w+ array of shape .* that is not symmetric: its memory was freed; expected an array"),
    (SYMMETRIC, "past the end", lambda a, k: a.past_the_end(k),
     E.OutOfRangeError, r"got \d+ bytes from heap offset \d+; expected at most \d+, to the end of its allocation"),
    (SYMMETRIC, "big-endian", lambda a, k: a.good(k).numpy().view(a.good(k).numpy().dtype.newbyteorder()),
     E.DtypeError, r"got [<>]\w+; expected elements of fixed size in native byte order"),
    (SYMMETRIC + "S", "objects", lambda a, k: np.array([None] * a.good(k).numel()),
     E.DtypeError, r"got object; expected elements of fixed size"),
    (SYMMETRIC + "S", "list", lambda a, k: a.good(k).tolist(), E.ArgumentError, rf"got a list; expected {ARRAYS}"),
    (SYMMETRIC + "S", "int", lambda a, k: 1, E.ArgumentError, rf"got an int; expected {ARRAYS}"),
    (SYMMETRIC + "S", "float", lambda a, k: 1.0, E.ArgumentError, rf"got a float; expected {ARRAYS}"),
    (SYMMETRIC + "S", "NumPy scalar", lambda a, k: np.float32(1), E.ArgumentError, rf"got a float32; expected {ARRAYS}; NumPy's a\[j\] is a copy of the element, which is in memory as a\[j:j\+1\]$"),
    (SYMMETRIC + "S", "None", lambda a, k: None, E.ArgumentError, rf"got a NoneType; expected {ARRAYS}"),
    (SYMMETRIC + "S", "str", lambda a, k: "x", E.ArgumentError, rf"got a str; expected {ARRAYS}"),
    (SYMMETRIC + "S", "sparse", lambda a, k: torch.eye(3).to_sparse(),
     E.ArgumentError, r"got a torch\.sparse_coo tensor on cpu; expected a dense tensor in CPU memory"),
    (SYMMETRIC + "S", "meta", lambda a, k: torch.empty_like(a.good(k), device="meta"),
     E.ArgumentError, r"got a torch\.strided tensor on meta; expected a dense"),
    (SYMMETRIC + "S", "scales", lambda a, k: torch.empty(8, dtype=torch.float8_e8m0fnu),
     E.DtypeError, r"got torch\.float8_e8m0fnu; expected a boolean, "),
    ("AVS", "strided", lambda a, k: a.strided(k), E.ArgumentError, rf"got an array of shape .* {LAYOUT}"),
    ("AVS", "reversed numpy", lambda a, k: foreign(a.good(k))[::-1],
     E.ArgumentError, rf"got an array of shape .* {LAYOUT}"),
    ("WGIJ", "many elements", lambda a, k: a.many(k), E.ArgumentError, ONE),
    ("WGIJ", "no element", lambda a, k: a.many(k)[:0], E.ArgumentError, ONE),
    ("WGIJ", "misaligned", lambda a, k: a.misaligned(k),
     E.ArgumentError, r"got the address 0x\w+, which is not aligned; expected a multiple of [248], the size of the word"),
    ("GJV", "floats", lambda a, k: a.data if k == "V" else a.data[:1],
     E.DtypeError, r"got float32 elements; expected one of "),
    ("GIJV", "int16", lambda a, k: a.shorts if k == "V" else a.shorts[:1],
     E.DtypeError, r"got int16 elements; expected one of "),
    ("G", "int64", lambda a, k: a.words[:1], E.DtypeError, r"got int64 elements; expected one of uint64$"),
    *(("U", str(value), lambda a, k, value=value: value, E.DtypeError, "got ") for value in (-1, 2**64, 0.5, None, "1")),
    ("P", "-1", lambda a, k: -1, E.OutOfRangeError, r"got -1; expected a PE from 0 to {last}"),
    ("P", "n", lambda a, k: shmem.n_pes(), E.OutOfRangeError, r"got \d+; expected a PE from 0 to {last}"),
    ("P", "huge", lambda a, k: 2**70, E.OutOfRangeError, r"got \d+; expected a PE from 0 to {last}"),
    ("P", "str", lambda a, k: "0", E.ArgumentError, r"got '0'; expected an int"),
    ("P", "None", lambda a, k: None, E.ArgumentError, r"got None; expected an int"),
    ("P", "half", lambda a, k: 0.5, E.ArgumentError, r"got 0\.5; expected an int"),
    ("P", "0.0", lambda a, k: 0.0, E.ArgumentError, r"got 0\.0; expected an int"),
    ("P", "numpy 0.0", lambda a, k: np.float32(0), E.ArgumentError, r"got np\.float32\(0\.0\); expected an int"),
    ("P", "False", lambda a, k: False, E.ArgumentError, r"got False; expected an int"),
    ("P", "numpy False", lambda a, k: np.False_, E.ArgumentError, r"got np\.False_; expected an int"),
    ("P", "list", lambda a, k: [0], E.ArgumentError, r"got \[0\]; expected an int"),
    ("NM", "-1", lambda a, k: -1, E.OutOfRangeError, r"got -1; expected 0 or more"),
    ("N", "one more", lambda a, k: 9, E.OutOfRangeError, r"got 9 elements with \w+ of shape \(8,\); expected at most 8"),
    ("N", "huge", lambda a, k: 2**62,
     E.OutOfRangeError, r"got \d+ elements with \w+ of shape \(8,\); expected at most 8"),
    ("NM", "1.0", lambda a, k: 1.0, E.ArgumentError, r"got 1\.0; expected an int"),
    ("NM", "True", lambda a, k: True, E.ArgumentError, r"got True; expected an int"),
    ("NM", "str", lambda a, k: "8", E.ArgumentError, r"got '8'; expected an int"),
    ("T", "0", lambda a, k: 0, E.ArgumentError, r"got 0; expected 1 or more"),
    ("T", "-1", lambda a, k: -1, E.ArgumentError, r"got -1; expected 1 or more"),
    ("T", "1.5", lambda a, k: 1.5, E.ArgumentError, r"got 1\.5; expected an int"),
    ("O", "single =", lambda a, k: "=",
     E.ArgumentError, r"got '='; expected one of shmem\.CMP, or one of == != > >= < <="),
    ("O", "6", lambda a, k: 6, E.ArgumentError, r"got 6; expected one of shmem\.CMP"),
    ("O", "list", lambda a, k: ["=="], E.ArgumentError, r"got \['=='\]; expected one of shmem\.CMP"),
    ("O", "None", lambda a, k: None, E.ArgumentError, r"got None; expected one of shmem\.CMP"),
    ("C", "int", lambda a, k: 0, E.ArgumentError, r"got int; expected a Ctx, or None for CTX_DEFAULT"),
    ("C", "team", lambda a, k: shmem.TEAM_WORLD, E.ArgumentError, r"got Team; expected a Ctx, or None for CTX_DEFAULT"),
]  # fmt: skip
ROWS = [
    (routine, argument, kind) for routine, each in ARGUMENTS.items() for argument, kind in each.items() if kind != "-"
]


class Arena:
    """What right calls use: 8 elements, one word, a signal; and what wrong ones do."""

    def __init__(self):
        self.data = shmem.full(8, 7.0)
        self.words = shmem.full(8, 7, dtype=torch.int64)
        self.signals = shmem.full(8, 7, dtype=torch.uint64)
        self.shorts = shmem.full(8, 7, dtype=torch.int16)
        self.private = torch.full((8,), 5.0, device=here())
        self.block = shmem.zeros(64, dtype=torch.uint8)
        shmem.free(self.block)
        self.watched = [self.data, self.words, self.signals, self.shorts, self.private]

    def many(self, kind):
        special = {"S": self.private, "A": self.data, "W": self.data, "G": self.signals}
        return special.get(kind, self.words)

    def good(self, kind):
        return self.many(kind)[:1] if kind in "WGIJ" else self.many(kind)

    def freed(self, kind):
        return self.block.view(self.good(kind).dtype)[: self.good(kind).numel()]

    def strided(self, kind):
        return self.many(kind).view(4, 2)[:, 0]

    def past_the_end(self, kind):
        """An array that begins in the allocation and ends after it: its last 2 bytes and more."""
        array = self.good(kind)
        start = self.many(kind).view(torch.uint8)[-2:]
        return stretched(start, (array.nbytes,), (1,)).view(foreign(array).dtype)

    def misaligned(self, kind):
        array = foreign(self.many(kind))
        return array.view(np.uint8)[1 : 1 + array.itemsize].view(array.dtype)

    def right_call(self, routine):
        chosen = {"P": shmem.my_pe(), "N": None, "M": 4, "T": 2, "O": ">=", "C": None, "U": 3, "-": 3}
        chosen.update({kind: self.good(kind) for kind in SYMMETRIC + "S"})
        call = {argument: chosen[kind] for argument, kind in ARGUMENTS[routine].items()}
        return {**call, "sigop": shmem.SIGNAL.ADD} if "sigop" in call else call


@pytest.mark.parametrize("routine, argument, kind", ROWS)
def test_a_wrong_argument_is_refused_and_nothing_changes(routine, argument, kind, me, npes):
    arena = Arena()
    before, allocated = [array.clone() for array in arena.watched], live()
    for kinds, name, make, error, text in CASES:
        if kind not in kinds or (name == "big-endian" and here().type != "cpu"):
            continue
        call = {**arena.right_call(routine), argument: make(arena, kind)}
        with pytest.raises(shmem.ShmemError) as caught:
            getattr(shmem, routine)(**call)
        assert type(caught.value) is error, name
        pattern = rf"{routine}: PE {me}: {argument}: " + text.replace("{last}", str(npes - 1) + "( of TEAM_WORLD)?")
        assert re.match(pattern, str(caught.value)), f"{name}: {caught.value}"
    shmem.barrier_all()
    for array, old in zip(arena.watched, before, strict=True):
        assert_same(array.clone(), old)
    assert live() == allocated


@pytest.mark.parametrize("routine", ARGUMENTS)
def test_the_same_call_with_right_arguments_is_accepted(routine):
    """Otherwise the rows above would show nothing."""
    call = Arena().right_call(routine)
    getattr(shmem, routine)(**call)
    shmem.quiet()
    if "ctx" in call:
        getattr(shmem, routine)(**{**call, "ctx": shmem.CTX_DEFAULT, "pe": np.int64(shmem.my_pe())})
    shmem.barrier_all()


PAIRS = [(routine, next(a for a, k in arguments.items() if k == "A"), next(a for a, k in arguments.items() if k == "S"))
         for routine, arguments in ARGUMENTS.items() if {"A", "S"} <= set(arguments.values())]  # fmt: skip


@pytest.mark.parametrize("routine, symmetric, private", PAIRS, ids=[row[0] for row in PAIRS])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bfloat16, np.float64, np.longdouble], ids=str)
def test_arrays_of_different_types_are_refused_not_cast(routine, symmetric, private, dtype, me):
    arena = Arena()
    call = arena.right_call(routine)
    call[private] = torch.zeros(8, dtype=dtype) if isinstance(dtype, torch.dtype) else np.zeros(8, dtype)
    with pytest.raises(
        shmem.DtypeError,
        match=rf"^{routine}: PE {me}: {private}: got \S+ elements; expected the (torch\.)?float32 of {symmetric}: no casting",
    ):
        getattr(shmem, routine)(**call)
    shmem.barrier_all()
    assert arena.data.tolist() == [7.0] * 8 and not call[private].any()


@pytest.mark.parametrize("dtype", [torch.float8_e8m0fnu, torch.complex32], ids=str)
def test_words_and_collectives_of_other_types_of_torch_are_refused(dtype, me):
    arrays = [shmem.zeros(8 * dtype.itemsize, dtype=torch.uint8).view(dtype) for _ in range(2)]
    for routine, call in (
        ("p", lambda: shmem.p(arrays[0][:1], 1, me)),
        ("g", lambda: shmem.g(arrays[0][:1], me)),
        ("collect", lambda: shmem.collect(arrays[0], arrays[1][:1])),
        ("ptr", lambda: shmem.ptr(arrays[0], me)),
    ):
        with pytest.raises(
            shmem.DtypeError, match=rf"^{routine}: PE {me}: \w+: got {dtype}; expected a boolean, integer"
        ):
            call()


@pytest.mark.parametrize("routine", ["get", "get_nbi", "iget"])
def test_get_refuses_a_target_that_is_read_only(routine, me):
    arena = Arena()
    fixed = np.frombuffer(b"\0" * 32, np.float32)  # the bytes of a constant
    with pytest.raises(
        shmem.ArgumentError, match=rf"^{routine}: PE {me}: target: got a read-only array; expected a writable array$"
    ):
        getattr(shmem, routine)(**{**arena.right_call(routine), "target": fixed})
    assert not fixed.any()


@pytest.mark.parametrize(
    "routine, wrong", [("iput", "target"), ("iput", "source"), ("iget", "target"), ("iget", "source")]
)
def test_strides_may_not_run_past_the_end(routine, wrong, me):
    """4 elements at stride 2 span 7, at stride 3 span 10."""
    arena = Arena()
    call = arena.right_call(routine)
    call["tst" if wrong == "target" else "sst"] = 3
    with pytest.raises(
        shmem.OutOfRangeError,
        match=rf"^{routine}: PE {me}: {wrong}: got 8 elements; expected at least 10, for 4 at stride 3$",
    ):
        getattr(shmem, routine)(**call)
    shmem.barrier_all()
    assert arena.data.tolist() == [7.0] * 8 and arena.private.tolist() == [5.0] * 8


def test_a_put_of_more_than_the_target_holds_is_refused(me):
    small, large = shmem.full(4, 7.0), torch.ones(5)
    with pytest.raises(
        shmem.OutOfRangeError,
        match=rf"^put: PE {me}: source: got 5 elements with target of shape \(4,\); expected at most 4$",
    ):
        shmem.put(small, large, me)
    with pytest.raises(
        shmem.OutOfRangeError,
        match=rf"^get: PE {me}: target: got 5 elements with source of shape \(4,\); expected at most 4$",
    ):
        shmem.get(large, small, me)
    assert small.tolist() == [7.0] * 4 and large.tolist() == [1.0] * 5


@pytest.mark.parametrize("length", [2, 9])
def test_a_private_copy_is_called_private_whatever_its_length(length):
    """x[mask] is a copy of some of x's elements: a put to it would change nothing that others see."""
    x = shmem.full(16, 7.0)
    x[:3] = 0.0
    with refuses(
        "put", "target: got a float32 array of shape .* not symmetric: private memory", shmem.NotSymmetricError
    ):
        shmem.put(x[x < 5], torch.zeros(length, device=here()), 0)


def test_a_slice_may_not_reach_into_the_next_allocation(me):
    """The heap goes on there, and the next array is live: it is another allocation all the same."""
    first, second = shmem.full(16, 1.0), shmem.full(16, 2.0)
    both = stretched(first, (32,), (4,))
    assert second.data_ptr() == first.data_ptr() + 64
    with pytest.raises(
        shmem.OutOfRangeError, match=r"^put: .*got 128 bytes from heap offset \d+; expected at most 64, to the end"
    ):
        shmem.put(both, np.zeros(32, np.float32), me)
    assert first.tolist() == [1.0] * 16 and second.tolist() == [2.0] * 16


def test_a_symmetric_source_that_members_would_overwrite_is_refused_and_its_own_place_is_not(me, npes):
    x = shmem.zeros(4 * npes + 4)
    x.copy_(torch.arange(4 * npes + 4) + 100 * me)
    before, whole = x.clone(), x[: 4 * npes]
    beside, own = "; expected memory beside it$", "; expected memory beside it, or "
    for name in ("fcollect", "collect"):
        with refuses(name, "source: got memory of target" + own + "this PE's place in it$"):
            getattr(shmem, name)(whole, x[4 * me + 1 : 4 * me + 5])
    for name in ("alltoall", "alltoalls"):
        with refuses(name, "source: got memory of target" + beside):
            getattr(shmem, name)(whole, x[2 : 4 * npes + 2])
        with refuses(name, "source: got memory of target" + beside):
            getattr(shmem, name)(whole, whole)
    for name in ("sum_reduce", "max_reduce", "sum_inscan", "sum_exscan"):
        with refuses(name, "source: got memory of target" + own + "all of it$"):
            getattr(shmem, name)(x[:4], x[2:6])
    with refuses("broadcast", "source: got memory of target" + own + "all of it$"):
        shmem.broadcast(x[:4], x[2:6], 0)
    assert torch.equal(x, before)
    shmem.barrier_all()
    shmem.fcollect(whole, x[4 * me : 4 * me + 4])
    wanted = torch.cat([torch.arange(4 * pe, 4 * pe + 4) + 100 * pe for pe in range(npes)])
    assert x[: 4 * npes].tolist() == wanted.tolist()


@pytest.mark.parametrize("name", ["alltoall", "fcollect", "reduce", "sum_inscan", "broadcast"])
def test_calls_on_streams_refuse_a_source_that_members_would_overwrite(name, npes):
    x, more = shmem.zeros(4 * npes + 4), [0] * (name == "broadcast")
    with refuses(f"{name}_on_stream", "source: got memory of target; expected memory beside it"):
        getattr(shmem, f"{name}_on_stream")(x[: 4 * npes], x[1 : 5 if name == "fcollect" else 4 * npes + 1], *more)


@pytest.mark.parametrize(
    "name, hint",
    [
        ("team_split_strided", "it is Team.split_strided"),
        ("ctx_create", "it is Ctx.create"),
        ("shmem_put", "the names of C are in pyshmem.shmem"),
        ("team_nothing", None),
    ],
)
def test_a_name_that_is_elsewhere_is_refused_with_its_place(name, hint):
    wanted = f"module 'pyshmem' has no attribute '{name}'" + (f"; {hint}" if hint else "")
    with pytest.raises(AttributeError, match=f"^{re.escape(wanted)}$"):
        getattr(shmem, name)
