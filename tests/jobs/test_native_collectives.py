"""The collectives in C with threads as PEs: also of more PEs than any machine that runs the tests has cores for."""

import hashlib
import threading

import numpy as np
import pytest

from pyshmem.native import _native

LIMITS = (60.0, 10)  # seconds, and polls before a thread yields: they share the cores
AREA = 16384
ROOM = 1 << 20
STRIDE = AREA + 2 * ROOM
PES = [1, 2, 3, 5, 16, 17, 20, 33]  # up to 16 write to each other directly, more by trees and rounds
INT64, FLOAT32 = 6, 8  # rows of the table of element types
SUM = 0


class Pe:
    """One thread's view: its wires, and `target` and `source`, at one place in every PE's memory."""

    def __init__(self, memory, me, n):
        base = memory.ctypes.data + me * STRIDE
        self.me, self.n, self.wires = me, n, (base, STRIDE, me, n)
        self.dest, self.src = base + AREA, base + AREA + ROOM
        own = memory[me]
        self.target = own[AREA : AREA + ROOM].view(np.int64)
        self.source = own[AREA + ROOM :].view(np.int64)

    def call(self, name, *arguments):
        return getattr(_native, name)(self.wires, *LIMITS, *arguments)

    def sync(self):
        _native.sync(self.wires, *LIMITS)


def run(n, body):
    """``body`` on n PEs at once; what one of them raises is raised here."""
    memory = np.zeros((n, STRIDE), np.uint8)
    failures = []

    def each(me):
        try:
            body(Pe(memory, me, n))
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    threads = [threading.Thread(target=each, args=(me,)) for me in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure


def values(pe, turn, count):
    return np.arange(count, dtype=np.int64) * 7 + pe * 1000 + turn * 100_000


def be_late(pe, turn):
    """One PE computes without the GIL, so that the others go on."""
    if (turn + pe.me) % pe.n == 0:
        hashlib.sha256(bytes(200_000)).digest()


@pytest.mark.parametrize("count", [1, 100, 8000, 100_000])
@pytest.mark.parametrize("n", PES)
def test_broadcast_reaches_all_from_every_root_and_leaves_the_source_free(n, count):
    def body(pe):
        for turn in range(8):
            root = turn * 5 % n
            pe.source[:count] = values(pe.me, turn, count)
            be_late(pe, turn)
            pe.call("broadcast", root, pe.dest, pe.src, 8 * count, 0, 0)
            pe.source[:count] = -1
            np.testing.assert_array_equal(pe.target[:count], values(root, turn, count))
            pe.sync()  # the target is used again

    run(n, body)


@pytest.mark.parametrize("n", PES)
def test_a_root_may_be_calls_ahead_of_the_others(n):
    """Turn t has a target of its own, and its root changes every third turn: no meeting at all between the calls."""

    def body(pe):
        for turn in range(60):
            be_late(pe, turn)
            pe.source[turn] = turn * 1000 + pe.me
            pe.call("broadcast", turn // 3 % n, pe.dest + 8 * turn, pe.src + 8 * turn, 8, 0, 0)
            assert pe.target[turn] == turn * 1000 + turn // 3 % n

    run(n, body)


@pytest.mark.parametrize("mode", ["reduce", "inscan", "exscan"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("count", [1, 14, 15, 2000, 9000])
@pytest.mark.parametrize("n", PES)
def test_fold_sums_what_the_members_brought(n, count, in_place, mode):
    def body(pe):
        for turn in range(5):
            array, address = (pe.target, pe.dest) if in_place else (pe.source, pe.src)
            array[:count] = values(pe.me, turn, count)
            be_late(pe, turn)
            pe.call("fold", ["reduce", "inscan", "exscan"].index(mode), SUM, INT64, pe.dest, address, count, 0, 0)
            if not in_place:
                pe.source[:count] = -1
            number = {"reduce": n, "inscan": pe.me + 1, "exscan": pe.me}[mode]
            wanted = sum((values(each, turn, count) for each in range(number)), np.zeros(count, np.int64))
            np.testing.assert_array_equal(pe.target[:count], wanted)
            pe.sync()

    run(n, body)


@pytest.mark.parametrize("n", [2, 3, 8, 16])
def test_small_sums_follow_each_other_without_a_word_between(n):
    """The mailboxes of one call are written again only when everybody has read them."""

    def body(pe):
        wanted = np.arange(n).sum() + n * 10 * np.arange(14)
        for turn in range(1500):
            pe.source[:14] = turn + pe.me + 10 * np.arange(14)
            pe.call("fold", 0, SUM, INT64, pe.dest, pe.src, 14, 0, 0)
            np.testing.assert_array_equal(pe.target[:14], wanted + n * turn)

    run(n, body)


@pytest.mark.parametrize("count", [1, 100, 400])
@pytest.mark.parametrize("n", PES)
def test_scatter_puts_block_j_on_member_j(n, count):
    def body(pe):
        for turn in range(6):
            pe.source[: n * count] = values(pe.me, turn, n * count)
            be_late(pe, turn)
            pe.call("scatter", pe.dest + 8 * count * pe.me, pe.src, 8 * count, 8 * count, 0, 0, 1, 0, 0)
            pe.source[: n * count] = -1
            for j in range(n):
                wanted = values(j, turn, n * count)[pe.me * count :][:count]
                np.testing.assert_array_equal(pe.target[j * count :][:count], wanted)
            pe.sync()

    run(n, body)


@pytest.mark.parametrize("n", PES)
def test_share_gives_the_notes_of_all_turn_after_turn(n):
    def body(pe):
        for turn in range(40):
            be_late(pe, turn)
            notes = pe.call("share", b"%3d of turn %3d" % (pe.me, turn), 0)
            assert notes == b"".join(b"%3d of turn %3d" % (each, turn) for each in range(n))

    run(n, body)


@pytest.mark.parametrize("n", PES)
def test_sync_lets_nobody_go_before_all_have_come(n):
    arrived = [0] * n

    def body(pe):
        for turn in range(1, 40):
            be_late(pe, turn)
            arrived[pe.me] = turn
            pe.sync()
            assert min(arrived) >= turn

    run(n, body)


@pytest.mark.parametrize("name, arguments", [
    ("share", (b"x", 0)), ("broadcast", (1, 0, 0, 0, 0, 0)), ("scatter", (0, 0, 0, 0, 0, 0, 1, 0, 0)),
    ("fold", (0, SUM, INT64, 0, 0, 1, 0, 0)), ("agree", (0, 0)),
])  # fmt: skip
@pytest.mark.parametrize("n", [2, 17])
def test_a_call_that_the_others_do_not_make_gives_up(n, name, arguments):
    pe = Pe(np.zeros((n, STRIDE), np.uint8), 0, n)
    if name == "fold":
        arguments = (*arguments[:3], pe.dest, pe.src, 1, 0, 0)
    with pytest.raises(TimeoutError):
        getattr(_native, name)(pe.wires, 0.05, 10, *arguments)


def test_fold_refuses_operators_that_a_type_does_not_have():
    pe = Pe(np.zeros((1, STRIDE), np.uint8), 0, 1)
    for operator, kind in ((4, FLOAT32), (2, 10), (7, INT64), (-1, INT64), (0, 14), (0, -1)):
        with pytest.raises(ValueError, match="no such operator"):
            pe.call("fold", 0, operator, kind, pe.dest, pe.src, 1, 0, 0)


def test_a_member_does_not_take_one_roots_word_for_anothers():
    """PE 0 stopped between serving PE 1 and PE 2; PE 1 is a call ahead, its root. PE 2 still waits for PE 0."""
    memory = np.zeros((3, STRIDE), np.uint8)
    pes = [Pe(memory, me, 3) for me in range(3)]
    # the flag of PE 0's first call has reached PE 1
    memory[1][_native.area_bytes(0) :][:8].view(np.uint64)[0] = 1 << 16
    pes[1].call("broadcast", 0, pes[1].dest, pes[1].src, 8, 0, 0)
    pes[1].call("broadcast", 1, pes[1].dest, pes[1].src, 8, 0, 0)
    with pytest.raises(TimeoutError):
        _native.broadcast(pes[2].wires, 0.05, 10, 0, pes[2].dest, pes[2].src, 8, 0, 0)


# ---- private memory: what is left to do on each PE ----

DONE, UNTOUCHED, STAGED, REFUSED, DIFFERENT, UNLIKE, BROKEN = range(7)
TARGET, SOURCE = 1, 2


@pytest.mark.parametrize("count", [1, 100_000])
@pytest.mark.parametrize("n", [2, 3, 16, 17, 33])
def test_a_broadcast_is_staged_on_all_when_the_roots_target_is_private(n, count):
    def body(pe):
        for turn in range(6):
            root, private = turn % n, TARGET if turn % 2 else 0
            pe.source[:count], pe.target[:count] = values(pe.me, turn, count), -2
            pe.sync()
            be_late(pe, turn)
            mine = private if pe.me == root else SOURCE  # the source of others does not matter
            left = pe.call("broadcast", root, pe.dest, pe.src, 8 * count, mine, 0)
            assert left == (STAGED if private else DONE)
            np.testing.assert_array_equal(pe.target[:count], -2 if private else values(root, turn, count))
            pe.sync()

    run(n, body)


@pytest.mark.parametrize("n", [2, 3, 17, 33])
def test_a_private_target_under_a_root_whose_own_is_symmetric_refuses_the_broadcast_there_and_below(n):
    """A member below gets its data from the refusing one, so it is refused too; nobody waits, and the next call works."""

    def body(pe):
        for turn in range(8):
            odd = 1 + turn % (n - 1)
            pe.source[0], pe.target[0] = turn, -2
            pe.sync()
            left = pe.call("broadcast", 0, pe.dest, pe.src, 8, TARGET if pe.me == odd else 0, 0)
            below = pe.me & ((1 << odd.bit_length()) - 1) == odd if n > 16 else pe.me == odd  # in a binomial tree
            assert left == (REFUSED if below else DONE)
            assert left == REFUSED or pe.target[0] == turn  # its parent may have written to the one that refuses
            pe.sync()

    run(n, body)


@pytest.mark.parametrize("n", [2, 3, 16, 17, 33])
@pytest.mark.parametrize("name", ["fold", "scatter", "agree"])
def test_one_private_array_is_known_to_all_members(name, n):
    def body(pe):
        for turn in range(8):
            private = int(turn % 2 == 1 and pe.me == turn % n)
            pe.target[:], pe.source[:n] = -2, turn
            pe.sync()
            be_late(pe, turn)
            if name == "fold":
                left = pe.call("fold", 0, SUM, INT64, pe.dest, pe.src, 20, private, 0)
            elif name == "scatter":
                left = pe.call("scatter", pe.dest + 8 * pe.me, pe.src, 8, 8, 0, 0, 1, private, 0)
            else:
                left = pe.call("agree", private, 0)
            assert left == (STAGED if turn % 2 else DONE)
            if turn % 2 and name == "fold":
                assert (pe.target == -2).all()
            pe.sync()

    run(n, body)


# ---- calls that differ ----


@pytest.mark.parametrize("name", ["sync", "share", "agree", "fold", "scatter"])
@pytest.mark.parametrize("n", [2, 3, 16, 17, 33])
def test_members_whose_words_differ_all_learn_it_write_no_sums_and_call_again(name, n):
    """One member differs, in turn each of them, in its word and so in the way that the data would take."""

    def body(pe):
        for turn in range(6):
            odd = turn % 2 == 1 and pe.me == turn % n
            word, count = (2**64 - 1, 40) if odd else (turn, 2)
            arguments = {
                "sync": (word,),
                "share": (b"x", word),
                "agree": (0, word),
                "fold": (0, SUM, INT64, pe.dest, pe.src, count, 0, word),
                "scatter": (pe.dest + 8 * pe.me, pe.src, 8, 8, 0, 0, 1, 0, word),
            }[name]
            pe.target[:40] = -2
            pe.sync()
            be_late(pe, turn)
            left = pe.call(name, *arguments)
            assert left == DIFFERENT if turn % 2 else left in (DONE, b"x" * n)
            assert name == "scatter" or turn % 2 == 0 or (pe.target[:40] == -2).all()
            if turn % 2:
                told = pe.call("refuse", b"%256d" % pe.me)
                assert [int(facts) for _, facts, _ in told] == list(range(n))
                assert {calls[0][0] for _, _, calls in told} == {turn, 2**64 - 1}
            pe.call("broadcast", 0, pe.dest + 800, pe.src + 800, 8, 0, 0)  # calls are numbered alike on all members

    run(n, body)


@pytest.mark.parametrize("name", ["sync", "agree", "fold", "scatter"])
def test_members_whose_calls_differ_in_number_alone_all_learn_it(name):
    """Member 0 has made a broadcast, which waits for nobody, and whose word leaves the history of calls as it was."""
    no_word = -0xD6E8FEB86659FD93 % 2**64  # with that of root 0, see begin_rooted

    def body(pe):
        arguments = {
            "sync": (7,),
            "agree": (0, 7),
            "fold": (0, SUM, INT64, pe.dest, pe.src, 2, 0, 7),
            "scatter": (pe.dest + 8 * pe.me, pe.src, 8, 8, 0, 0, 1, 0, 7),
        }[name]
        if pe.me == 0:
            pe.call("broadcast", 0, pe.dest, pe.src, 8, 0, no_word)
        assert pe.call(name, *arguments) == DIFFERENT

    run(2, body)


CALLS = {
    "sync": (7,),
    "share": (b"x", 7),
    "agree": (0, 7),
    "fold": (0, SUM, INT64, 8 * 8000, 8 * 8000, 100, 0, 7),
    "small fold": (0, SUM, INT64, 8 * 8000, 8 * 8000, 1, 0, 7),
    "scatter": (8 * 8000, 8 * 8000, 8, 8, 0, 0, 1, 0, 7),
    "broadcast": (1, 8 * 8000, 8 * 8000, 8, 0, 7),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("n", [2, 3, 16, 17])
def test_a_call_that_times_out_on_one_member_ends_on_all_and_so_do_all_later_ones(n, name):
    """Member 1 comes late, when member 0 has given up; the others wait meanwhile, and give up with it."""
    left = threading.Event()

    def body(pe):
        at = (pe.dest - 8 * 8000, pe.src - 8 * 8000)
        places = iter(at)
        given = [next(places) + each if each == 8 * 8000 else each for each in CALLS[name]]
        call = getattr(_native, name.split()[-1])
        pe.sync()
        if pe.me == 0:
            with pytest.raises(TimeoutError):
                call(pe.wires, 0.05, 10, *given)
            left.set()
        elif pe.me == 1:
            left.wait()
        if pe.me:
            assert call(pe.wires, *LIMITS, *given) == BROKEN
        for later in ("sync", "agree", "share"):
            assert pe.call(later, *CALLS[later]) == BROKEN
        assert pe.call("breaker")[0] == 0
        pe.call("leave", b"heard of member 0 alone")
        assert pe.call("breaker")[1] in (b"", b"heard of member 0 alone")

    run(n, body)


def test_a_mark_does_not_outlive_its_team():
    """The area of member 1 belongs to another team when the mark comes; its own stamp is another one."""
    memory = np.zeros((2, STRIDE), np.uint8)
    pes = [Pe(memory, me, 2) for me in range(2)]
    for pe, stamp in zip(pes, (5, 6), strict=True):
        _native.stamp(pe.wires[0], stamp)
    pes[0].call("leave", b"late")
    assert pes[0].call("breaker") == (0, b"late")
    assert pes[1].call("breaker") == (-1, b"")
    _native.stamp(pes[1].wires[0], 5)
    assert pes[1].call("breaker") == (0, b"late")
    _native.stamp(pes[0].wires[0], 7)
    assert pes[0].call("breaker") == (-1, b"")
    assert pes[1].call("breaker") == (0, b"")  # whose area has other facts now


def test_a_sum_of_what_a_member_has_changed_after_it_has_left_is_not_returned():
    """Member 0 has done its share and leaves while the other one, whose share is on fresh pages, still reads its source."""
    count, room, seen = 1 << 21, 1 << 24, 0
    for _ in range(100):
        memory = np.zeros((2, AREA + 2 * room), np.uint8)
        arrays = memory[:, AREA:].view(np.int64).reshape(2, 2, count)
        arrays[:, :, : count // 2] = 1
        wires = [(memory.ctypes.data + me * memory.strides[0], memory.strides[0], me, 2) for me in range(2)]
        left = {}

        def body(me, wires=wires, left=left):
            places = wires[me][0] + AREA, wires[me][0] + AREA + room
            left[me] = _native.fold(wires[me], *LIMITS, 0, SUM, INT64, *places, count, 0, 0)

        threads = [threading.Thread(target=body, args=(me,)) for me in range(2)]
        for thread in threads:
            thread.start()
        done, last, target = count // 2 - 1, arrays[1, 1, -1:], arrays[1, 0]
        last[0] = 1
        while target[done] != 2 and target[-1] != 1:
            pass  # neither share is done
        _native.leave(wires[0], *LIMITS, b"")
        in_time = target[done] == 2 and target[-1] != 1
        for thread in threads:
            thread.join()
        assert left[1] == BROKEN or not in_time
        seen += in_time
        if seen == 3:
            return
    pytest.fail("member 1 was never the later one")
