"""A timeline that begins after operators were called has the events of their kernels, and none of later calls.

Interpreted kernels record whatever their contexts are. Here they record, as compiled ones do, where the context has a ring.
"""

import math
import pathlib
from collections import Counter

import pyshmem as shmem
import pyshmem.device as dev
import pytest
import test_attention
import test_flash_decode
import test_norms
import tokens
import torch
import triton.language as tl
from mpi4py import MPI
from operands import Case as Product
from pyshmem import irregular, ops
from pyshmem.kernels.plans import known, remember
from pyshmem.ops.experts.schedules import SCHEDULES as EXPERTS
from pyshmem.ops.gemm.selection import ABLE
from pyshmem.base import interpreter
from pyshmem.diagnosis.event_ring import ring
from pyshmem.timelines import reading, taxes
from pyshmem.timelines.recording import recorder
from support import here, on_one_node

pytestmark = [
    pytest.mark.usefixtures("plans_closed"),
    pytest.mark.skipif(
        not on_one_node(), reason="operators by kernels are of one node, and so is the folder of timelines"
    ),
]


class Emulated:
    """The recording of compiled kernels by interpreted ones: events of contexts with the ring, for as long as it is open."""

    def __init__(self, monkeypatch):
        from pyshmem.device.arch.interpreter import events

        self.taken, self.plain, self.running = 0, events._begin, events.recording.running
        self.asked = events.recording
        start, stop = recorder.start, recorder.stop
        monkeypatch.setattr(events, "_begin", self.begin)
        monkeypatch.setattr(recorder, "start", lambda path: (start(path), self.open()))
        monkeypatch.setattr(recorder, "stop", lambda: (ring.close(), stop(), self.ask()))
        monkeypatch.setattr(ring, "memory", None)
        self.ask()

    def open(self):
        ring.open(1 << 10, "cpu")
        self.taken = 0

    def ask(self):
        """Let kernels say outside of timelines, too, what they would record."""
        self.asked.number_of = lambda name: 0

    def begin(self, ctx, *what):
        records = bool(ctx.events)
        self.taken += records
        if records and recorder.path:
            assert ctx.trace
            return self.plain(ctx, *what)
        self.running.append(-1)
        return -1


@pytest.fixture
def taken(monkeypatch):
    """How many events kernels have written since the ring was opened, whether somebody reads them or not."""
    if not interpreter.active():

        def counted():
            torch.cuda.synchronize()
            return int(ring.memory[0].view(torch.int64)[0])

        yield counted
        return
    emulated = Emulated(monkeypatch)
    yield lambda: emulated.taken
    emulated.asked.number_of = None


@pytest.fixture
def path(tmp_path_factory):
    return pathlib.Path(MPI.COMM_WORLD.bcast(str(tmp_path_factory.mktemp("timeline")), 0)) / "warm.json"


def product(operator, schedule):
    case = Product(operator)
    return lambda: case.check(case.call(schedule=schedule))


def norm(name, schedule):
    case = test_norms.Case(name)
    return lambda: case.check(case.call(schedule))


def experts(schedule):
    case = tokens.Case()
    return lambda: case.round_trip(schedule)


def attention(schedule):
    case = test_attention.Case()
    return lambda: case.check(case.call(schedule))


def decode(schedule):
    case = test_flash_decode.Case()
    return lambda: case.check(case.call(schedule))


def activations():
    me, n = shmem.my_pe(), shmem.n_pes()

    def call():
        ops.send_activations(torch.full((8,), float(me), device=here()), pe=(me + 1) % n)
        assert (ops.recv_activations(torch.empty(8, device=here()), pe=(me - 1) % n) == (me - 1) % n).all()

    return call


def reducer():
    layer = torch.nn.Linear(4, 2, device=here())
    ops.GradientReducer(layer, average=False)

    def call():
        layer.zero_grad()
        layer(torch.ones(1, 4, device=here())).sum().backward()
        assert (layer.weight.grad == shmem.n_pes()).all()

    return call


def triangles():
    vertices = 4 * shmem.n_pes()  # so that no PE's rows are empty below the diagonal
    dense = (torch.ones(vertices, vertices) - torch.eye(vertices)).to(here())
    matrix = irregular.csr(dense.to_sparse_csr())

    def call():
        assert irregular.triangle_count(matrix) == math.comb(vertices, 3)

    return call


@shmem.jit
def last_of_left(tensor, out):
    left = (dev.my_pe() + dev.n_pes() - 1) % dev.n_pes()
    tl.store(out, dev.load_at(tensor, left * 4 + 3))


def partition():
    tensor, out = shmem.partitioned((4 * shmem.n_pes(),), block=4), torch.zeros(1, device=here())
    tensor.local.fill_(shmem.my_pe())
    shmem.barrier_all()

    def call():
        last_of_left[(1,)](tensor, out)
        assert out.item() == (shmem.my_pe() - 1) % shmem.n_pes()

    return call


FAMILIES = {
    **{f"{name} {each}": (product, name, each) for name, able in ABLE.items() for each in able},
    **{f"{name} {each}": (norm, name, each) for name in test_norms.OPERATORS for each in test_norms.OPERATORS[name]},
    **{f"experts {each}": (experts, each) for each in EXPERTS},
    **{f"attention {each}": (attention, each) for each in test_attention.SCHEDULES},
    **{f"flash_decode {each}": (decode, each) for each in test_flash_decode.SCHEDULES},
    "activations": (activations,),
    "reducer": (reducer,),
    "triangles": (triangles,),
    "partition": (partition,),
}
# schedules whose kernels only compute or sum here, and what the host does in CPU memory
SILENT = ("bulk_synchronous", "library", "reducer")


def recorded(path, call, taken):
    """Trace a call, and make one more. Return the names of the slices that the kernels have recorded, with their numbers."""
    with shmem.trace(path):
        call()
    during = taken()
    call()
    assert taken() == during, "a kernel has recorded after the end"
    calls, _, notes = reading.read(path)
    assert not [each for each in notes if not each.startswith("times of GPUs")]
    own = [each for each in calls if each.pe == shmem.my_pe()]
    found = Counter(each.name for each in own if each.kind == "span" or each.name.startswith("dev."))
    assert sum(found.values()) == during, Counter((each.pe, each.kind) for each in calls)
    divided = taxes.divided(calls)
    for pe, parts in divided.parts.items():
        assert sum(parts.values()) == pytest.approx(divided.whole[pe])
    shmem.barrier_all()  # all have read the file
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_kernels_of_calls_made_before_record_what_those_of_the_first_call_do(name, path, taken):
    make, *how = FAMILIES[name]
    call = make(*how)
    for _ in range(2):
        call()
    warm = recorded(path, call, taken)
    ops.clear()
    cold = recorded(path, call, taken)
    assert warm == cold
    assert warm or name.endswith(SILENT)
    assert recorded(path, call, taken) == cold, "a second timeline has them, too"


def test_plans_of_collectives_on_streams_are_made_anew_for_a_timeline_and_after_it(path, taken):
    """They are bound to device contexts."""
    remember(("a call",), "its plan")
    with shmem.trace(path):
        inside = dict(known)
        remember(("a call",), "its plan")
    assert ("a call",) not in inside and ("a call",) not in known
