"""HIP's classic executor of graphs loses edges: which plans would break there if they were replayed. They are enqueued."""

import itertools
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from pyshmem.ops import streams
from pyshmem.ops.gemm import copy_engine
from pyshmem.ops.gemm.copy_engine import GatherRows, MultiplyGathered, ReduceScatter

ROWS, COLUMNS, INNER = 8 * 1024, 16896, 64
QUEUES = 4  # DEBUG_HIP_FORCE_GRAPH_QUEUES


class Stream:
    """after: the operations that the next one waits for, as in a graph that is being captured."""

    def __init__(self, graph, **options):
        self.graph, self.after = graph, []

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def wait_event(self, event):
        self.after += [each for each in event if each not in self.after]

    def record_event(self):
        return list(self.after)


class Event(list):
    """Operations that a stream waits for."""

    def record(self, stream):
        self[:] = stream.after


class Graph:
    """The operations of a schedule, each with those that it waits for, from the streams on which it enqueues them."""

    def __init__(self, monkeypatch, vendor):
        self.names, self.before, self.vendor = [], [], vendor
        self.stream = Stream(self)
        monkeypatch.setattr(torch.cuda, "Stream", lambda **options: Stream(self))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self.stream)
        monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "stream", stream))
        monkeypatch.setattr(torch.cuda, "Event", Event)
        heap = SimpleNamespace(streams=True, driver=SimpleNamespace(vendor=vendor, version=70200000))
        monkeypatch.setattr(streams, "default", lambda: heap)
        monkeypatch.setattr(streams, "_ring", [])
        monkeypatch.setattr(streams, "_capturing", lambda: False)

    @contextmanager
    def on(self, stream):
        kept, self.stream = self.stream, stream
        yield
        self.stream = kept

    def add(self, name):
        self.names.append(name)
        self.before.append(self.stream.record_event())
        self.stream.after = [len(self.names) - 1]

    def does(self, name):
        return lambda *arguments: self.add(name)

    def kernel(self, name):
        """What stands for a prepared kernel, whose numbers do not matter."""
        kernel = self.does(name)
        kernel.with_numbers = lambda *numbers: kernel
        return kernel

    def lost(self):
        """The edges (first, second) that the classic executor loses: ROCm/rocm-systems#11499.

        It waits for a parent on another queue if the child is one of its first four, or has a second parent. Child i of a
        node on queue q is on queue q + i.
        """
        children = {node: [] for node in range(len(self.names))}
        for node, before in enumerate(self.before):
            for each in before:
                children[each].append(node)
        return {
            (parent, child)
            for parent, each in children.items()
            for place, child in enumerate(each)
            if place >= QUEUES and place % QUEUES and len(self.before[child]) == 1
        }

    def unordered(self):
        """The pairs of names that stand in no order any more where those edges are lost."""
        lost = self.lost()
        kept = [[each for each in before if (each, node) not in lost] for node, before in enumerate(self.before)]
        whole, rest = (ancestors(before) for before in (self.before, kept))
        pairs = {(first, node) for node in range(len(whole)) for first in whole[node] - rest[node]}
        return {(self.names[first], self.names[second]) for first, second in pairs}


def ancestors(before):
    found = []
    for each in before:
        found.append(set(each).union(*(found[parent] for parent in each)))
    return found


class Chunks:
    """What stands for the flags of chunks: their kernels are operations."""

    space = staticmethod(lambda *arguments: {})

    def __init__(self, graph):
        self.begin, self.wait, self.tell = (graph.does(name) for name in ("begin", "wait", "flag"))

    def resized(self, count):
        return self


def made(kind, graph, n_pes, monkeypatch):
    """A schedule as its own constructor makes it, but that what allocates or compiles is replaced by operations of the graph."""
    meta = {"device": "meta", "dtype": torch.bfloat16}
    whole = torch.empty(ROWS, COLUMNS, **meta)
    space = dict.fromkeys(("words", "flags", "result 0", "gathered"), whole) | {
        "slots": whole.expand(n_pes - 1, -1, -1)
    }
    stand_ins = {
        "put": graph.does("put"),
        "multiply": lambda *arguments, **options: graph.does("multiply"),
        "multiply_each": lambda *arguments, **options: itertools.repeat(graph.does("multiply")),
        "beginner": lambda *arguments: graph.does("beginner"),
        **{
            name: lambda *arguments, name=name, **options: SimpleNamespace(of=lambda *arguments: graph.kernel(name))
            for name in ("sender", "Sum")
        },
        "Chunks": type("", (Chunks,), {"__init__": lambda self, *arguments: Chunks.__init__(self, graph)}),
        "workspace_of": lambda problem, given, **room: space,
        "order_copies": graph.does("order") if graph.vendor == "hip" else lambda: None,
    }
    for name, value in stand_ins.items():
        monkeypatch.setattr(copy_engine, name, value)
    team = SimpleNamespace(size=n_pes, me=0)
    problem = SimpleNamespace(
        team=team, n_pes=n_pes, me=0, M=ROWS, N=COLUMNS, K=INNER, k=INNER, dtype=torch.bfloat16, scaling=copy_engine.NONE,
        corner=(0, 0), options=SimpleNamespace(epilogue=None),
    )  # fmt: skip
    a = torch.empty(ROWS if kind is ReduceScatter else ROWS // n_pes, INNER, **meta)
    return kind(problem, a, torch.empty(INNER, COLUMNS, **meta), None), (a, a, whole)


SCHEDULES = (GatherRows, MultiplyGathered, ReduceScatter)
# what loses its order at 8 PEs: in a graph of the plan alone, and in one that begins with a kernel of the program, which makes a
PRODUCTS = {("multiply", "multiply")}  # those of two chunks, which share the library's workspace
BROKEN = {GatherRows: (PRODUCTS, PRODUCTS | {("program", "multiply")})}


@pytest.mark.parametrize("vendor", ["cuda", "hip"])  # a stream for each side; all sides on four streams
@pytest.mark.parametrize("kind", SCHEDULES, ids=lambda kind: kind.__name__)
def test_one_schedule_would_lose_its_order_in_graphs_that_lose_edges_and_up_to_five_pes_none(kind, vendor, monkeypatch):
    for n_pes in (2, 5, 8):
        for behind in (False, True):
            graph = Graph(monkeypatch, vendor)
            step, arrays = made(kind, graph, n_pes, monkeypatch)
            if behind:
                graph.add("program")
            step(*arrays)
            assert "multiply" in graph.names
            assert graph.unordered() == (BROKEN.get(kind, (set(), set()))[behind] if n_pes == 8 else set())


@pytest.mark.parametrize("n_pes", [2, 5])  # several chunks, and one
def test_a_sum_waits_for_its_parts_and_no_product_for_those_of_its_own_chunk(n_pes, monkeypatch):
    graph = Graph(monkeypatch, "cuda")
    step, arrays = made(ReduceScatter, graph, n_pes, monkeypatch)
    step(*arrays)
    before = [[graph.names[each] for each in found] for found in ancestors(graph.before)]
    sums, products = (
        [found for each, found in zip(graph.names, before, strict=True) if each == name] for name in ("Sum", "multiply")
    )
    peers, count = n_pes - 1, len(sums)
    assert (count > 1) == (n_pes == 2) and len(products) == (peers + 1) * count
    assert [found.count("wait") for found in sums] == [peers * (chunk + 1) for chunk in range(count)]
    assert not any(found.count("wait") for found in products), (
        "the products of each stream go on without parts of peers"
    )
    assert not any("put" in found for found in sums), "a sum waits for the copies of this PE's own parts"
    graph.add("next")
    assert len(ancestors(graph.before)[-1]) == len(graph.names) - 1, "the next call would not wait for all of this one"


@pytest.mark.parametrize("n_pes", [2, 4])
@pytest.mark.parametrize("vendor", ["cuda", "hip"])
def test_products_take_turns_on_two_streams(vendor, n_pes, monkeypatch):
    """Rows of two waves, so that those of each PE are two chunks."""
    monkeypatch.setattr(copy_engine, "TILES", 8 * COLUMNS // copy_engine.WIDE)
    graph = Graph(monkeypatch, vendor)
    step, arrays = made(ReduceScatter, graph, n_pes, monkeypatch)
    graph.add("program")
    step(*arrays)
    graph.add("next")
    found = ancestors(graph.before)
    products = [node for node, name in enumerate(graph.names) if name == "multiply"]
    puts = [node for node, name in enumerate(graph.names) if name == "put"]
    assert len(products) == n_pes * 2 and len(puts) == (n_pes - 1) * 2
    for i, product in enumerate(products):
        assert [each in found[product] for each in products[:i]] == [(i - k) % 2 == 0 for k in range(i)]
    assert all(0 in found[product] for product in products), "operands are of the program"
    assert all(product in found[put] for product, put in zip(products, puts, strict=False)), (
        "a put waits for its product"
    )
    assert len(found[-1]) == len(graph.names) - 1, "the next call would not wait for all of this one"
    begun = graph.names.index("begin")
    assert [begun in found[product] for product in products[:2]] == [False, True], (
        "the current stream's tiles come first"
    )


def test_the_rule_loses_the_sixth_to_eighth_child_with_one_parent(monkeypatch):
    graph = Graph(monkeypatch, "cuda")
    graph.add("parent")
    ready = graph.stream.record_event()
    for place in range(10):
        side = Stream(graph)
        side.wait_event(ready)
        with graph.on(side):
            graph.add(f"child {place}")
    assert graph.lost() == {(0, 1 + place) for place in (5, 6, 7, 9)}


@pytest.mark.parametrize("kind", SCHEDULES, ids=lambda kind: kind.__name__)
def test_on_hip_a_plan_enqueues_its_operations_at_each_call(kind, monkeypatch):
    graph = Graph(monkeypatch, "hip")
    step, arrays = made(kind, graph, 8, monkeypatch)
    replayed = streams.Replayed(step)
    for call in range(1, streams.ENQUEUED + 2):
        replayed(*arrays)
        assert graph.names == graph.names[: len(graph.names) // call] * call != []
    assert not replayed.handles()
