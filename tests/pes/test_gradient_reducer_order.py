"""GradientReducer: which gradients are reduced together, when, and on which stream."""

import contextlib
import copy

import pyshmem as shmem
import pytest
import torch
from operands import random
from pyshmem.ops.training import schedules as gradient_schedules
from pyshmem.ops.training.buckets import cut
from reduced_models import averages, check, data, every_schedule, loss_of, network, noted, reducing
from support import here, work

GPU = torch.cuda.is_available()


@every_schedule
@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad_keeps_the_buckets_and_steps_follow_each_other_without_a_barrier(schedule, to_none):
    model = network()
    with reducing(model, bucket_bytes=1200, schedule=schedule) as reducer:
        for turn in range(12):
            if shmem.my_pe() == turn // 2 % shmem.n_pes():
                work(20000)
            model.zero_grad(set_to_none=to_none)
            loss_of(model, data(shmem.my_pe(), turn)).backward()
            check(model, averages(model, [turn]), turn)
            views = [view for bucket in reducer._buckets for view in bucket.views]
            assert all(any(each.grad is view for view in views) for each in model.parameters())


def test_buckets_hold_one_dtype_in_the_reverse_of_the_order_and_end_in_theirs():
    model = torch.nn.ModuleList(torch.nn.Linear(8, 8, bias=False) for _ in range(5))
    model[0].half()
    model[3].half()
    names = [[name for name, _ in each] for each in cut(list(model.named_parameters()), 512)]
    assert names == [["4.weight", "2.weight"], ["1.weight"], ["3.weight", "0.weight"]]
    wide = torch.nn.ModuleList(torch.nn.Linear(8, size, bias=False) for size in (1, 8, 1, 8, 1))
    names = [[name for name, _ in each] for each in cut(list(wide.named_parameters()), 100)]
    assert names == [["3.weight"], ["1.weight"], ["4.weight", "2.weight", "0.weight"]], (
        "large ones do not part small ones"
    )


@every_schedule
def test_a_bucket_is_reduced_before_backward_comes_to_the_first_layer(schedule):
    model, order = network(), []
    with reducing(model, bucket_bytes=1, schedule=schedule) as reducer:
        loss_of(model, data(shmem.my_pe())).backward()  # the first one shows that it runs no other
        reducer._steps = [noted(step, order, i) for i, step in enumerate(reducer._steps)]
        model[0].weight.register_hook(lambda _: order.append("first layer"))
        loss_of(model, data(shmem.my_pe())).backward()
    assert order[:2] == [0, 1] and order.index("first layer") > order.index(3)


class SideStream:
    """In place of a side stream: notes what a reducer does with it."""

    def __init__(self, order):
        self.order, self.inside = order, False

    @contextlib.contextmanager
    def after(self, *streams):
        self.order.append("after")
        self.inside = True
        yield
        self.inside = False

    def keep(self, array):
        assert self.inside
        self.order.append("keep")

    def join(self):
        self.order.append("join")


@every_schedule
def test_reductions_follow_backward_on_a_side_stream_that_the_current_one_joins(schedule):
    """CPU memory has no streams, so this notes the calls that order them. A gradient that is not in its bucket is kept."""
    model, order = network(), []
    with reducing(model, bucket_bytes=1200, schedule=schedule) as reducer:
        side = reducer._side = SideStream(order)
        reducer._steps = [inside(step, order, side) for step in reducer._steps]
        for kept in (True, False):
            order.clear()
            model.zero_grad(set_to_none=kept)
            loss_of(model, data(shmem.my_pe())).backward()
            wanted = []
            for names in reducer.buckets:
                wanted += ["after", *["keep"] * (len(names) if kept else 0), "reduce"]
            assert order == [*wanted, "after", "join"]


def inside(step, order, side):
    def wrapped(source):
        assert side.inside
        order.append("reduce")
        step(source)

    return wrapped


@pytest.mark.parametrize("late", ["put", "add", "barrier_on_stream"])
def test_chunks_wait_for_what_a_late_pe_sends_and_reads(late, monkeypatch):
    """With chunks of 64 elements, two slots in turn; the last sums come after all else of the late PE."""
    monkeypatch.setattr(gradient_schedules, "CHUNK", 1024)
    model = network()
    with reducing(model, bucket_bytes=1 << 20, schedule="copy_engine") as reducer:
        if shmem.my_pe() == shmem.n_pes() - 1:
            delay(reducer, late, monkeypatch)
        for turn in range(3):
            model.zero_grad()
            loss_of(model, data(shmem.my_pe(), turn)).backward()
            check(model, averages(model, [turn]), turn)
        monkeypatch.undo()


def delay(reducer, late, monkeypatch):
    def lazy(function):
        def wrapped(*args, **more):
            work(60000)
            return function(*args, **more)

        return wrapped

    if late == "add":
        for step in reducer._steps:
            for chunk in step.chunks:
                chunk.add = lazy(chunk.add)
    else:
        monkeypatch.setattr(shmem, late, lazy(getattr(shmem, late)))


@pytest.mark.skipif(not GPU, reason="there is no GPU to capture graphs")
@every_schedule
def test_large_models_train_beside_other_collectives_and_in_graphs(schedule):
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(6))).to(here(), torch.bfloat16)
    x, other = random(shmem.my_pe(), 256, 2048, dtype=torch.bfloat16), shmem.ones(1 << 20)
    with reducing(model, schedule=schedule):
        alone = copy.deepcopy(model)
        for pe in range(shmem.n_pes()):
            loss_of(alone, random(pe, 256, 2048, dtype=torch.bfloat16)).backward()
        wanted = [each.grad.double() / shmem.n_pes() for each in alone.parameters()]

        def step():
            model.zero_grad()
            loss = loss_of(model, x)
            shmem.reduce_on_stream(other, other, "max")
            loss.backward()

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(5):
                step()
                check(model, wanted)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            step()
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        check(model, wanted)
