"""GradientReducer: averages as DistributedDataParallel makes them, whatever parameters a model has and backward reaches."""

import contextlib
import copy
import io

import pyshmem as shmem
import pytest
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from operands import close_to, equal_on_all_pes, random
from pyshmem import ops
from pyshmem.ops.training import schedules as gradient_schedules
from pyshmem.ops.training.buckets import cut
from pyshmem.ops.training.schedules import SCHEDULES
from support import here, refuses, torch_store, work

BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
GPU = torch.cuda.is_available()
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def network(dtype=torch.float32, seed=None):
    """Three layers, with other weights on each PE unless there is a seed."""
    torch.manual_seed(shmem.my_pe() if seed is None else seed)
    layers = torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 5)
    return torch.nn.Sequential(*layers).to(here(), dtype)


def data(pe, turn=0, dtype=torch.float32):
    return random(1000 * turn + pe, 7, 6, dtype=dtype)


def loss_of(model, x):
    return model(x).square().sum()


def averages(model, turns=(0,), team=shmem.TEAM_WORLD, average=True):
    """What gradients should be, in float64: of the data of all PEs, added over turns, by a copy of the model."""
    alone = copy.deepcopy(model).double()
    alone.zero_grad()
    dtype = next(model.parameters()).dtype
    for pe in range(team.n_pes()):
        for turn in turns:
            loss_of(alone, data(team.translate_pe(pe), turn, dtype).double()).backward()
    return [each.grad / (team.n_pes() if average else 1) for each in alone.parameters()]


def check(model, wanted, note=""):
    for (name, each), right in zip(model.named_parameters(), wanted, strict=True):
        close_to(each.grad, right, BOUNDS[each.dtype], f"{name} {note}")


@contextlib.contextmanager
def reducing(model, **options):
    reducer = ops.GradientReducer(model, **options)
    yield reducer
    reducer.close()


@pytest.fixture(scope="module")
def group():
    """torch's process group of all PEs, for DistributedDataParallel."""
    me, n = shmem.my_pe(), shmem.n_pes()
    dist.init_process_group("gloo", store=torch_store(), rank=me, world_size=n)
    yield
    shmem.barrier_all()
    dist.destroy_process_group()
    shmem.barrier_all()


@every_schedule
@pytest.mark.parametrize("dtype", BOUNDS)
def test_gradients_are_the_average_with_the_same_bits_on_all_pes(schedule, dtype):
    for bucket_bytes in (1, 1200, 1 << 20):
        model = network(dtype)
        with reducing(model, bucket_bytes=bucket_bytes, schedule=schedule):
            loss_of(model, data(shmem.my_pe(), dtype=dtype)).backward()
            check(model, averages(model), bucket_bytes)
            for each in model.parameters():
                equal_on_all_pes(shmem.array(each.grad))


@every_schedule
def test_gradients_are_the_sum_where_no_average_is_wanted(schedule):
    model = network()
    with reducing(model, average=False, schedule=schedule):
        loss_of(model, data(shmem.my_pe())).backward()
        check(model, averages(model, average=False))


@every_schedule
def test_not_a_number_in_one_element_of_one_pe_is_in_that_element_on_all(schedule):
    model = torch.nn.Linear(6, 5).to(here())
    with reducing(model, bucket_bytes=1, schedule=schedule):
        loss = model(data(shmem.my_pe())).sum()
        if shmem.my_pe() == shmem.n_pes() - 1:
            loss = loss + model.weight[2, 3] * float("nan")
        loss.backward()
        assert model.weight.grad.isnan().nonzero().tolist() == [[2, 3]] and not model.bias.grad.isnan().any()


@every_schedule
def test_parameters_without_elements_are_left_out(schedule):
    """One of a dtype of its own would be a bucket without elements."""
    model = torch.nn.Linear(6, 5).to(here())
    model.none = torch.nn.Parameter(torch.empty(0, dtype=torch.float64, device=here()))
    with reducing(model, schedule=schedule) as reducer:
        (model(data(shmem.my_pe())).sum() + model.none.sum()).backward()
        assert reducer.buckets == (("bias", "weight"),)
        assert model.none.grad is None or model.none.grad.shape == (0,)
        equal_on_all_pes(shmem.array(model.weight.grad))


@every_schedule
def test_sums_of_several_backwards_count_each_gradient_once(schedule):
    """Also of a parameter that a later backward does not use, after no_sync, and of the parts that checkpoints run."""
    n = shmem.n_pes()
    model = torch.nn.ModuleList([torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)]).to(here())
    x = torch.ones(1, 1, device=here())
    with reducing(model, average=False, schedule=schedule, bucket_bytes=4) as reducer:
        for each in model:
            each.weight.data.fill_(1)
        model[1](model[0](x)).backward()
        model[0](x).backward()
        assert [each.weight.grad.item() for each in model] == [2 * n, n]
        with reducer.no_sync():
            model[0](x).backward()
        model[0](x).backward()
        assert [each.weight.grad.item() for each in model] == [4 * n, n]
        torch.autograd.grad(model[0](x), model[0].weight)  # adds to no .grad
        assert [each.weight.grad.item() for each in model] == [4 * n, n]
        model.zero_grad()
        inner = torch.utils.checkpoint.checkpoint(model[1], x.clone().requires_grad_(), use_reentrant=True)
        model[0](inner).backward()
        assert [each.weight.grad.item() for each in model] == [n, n]


@every_schedule
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_gives_what_distributed_data_parallel_gives(schedule, dtype, group):
    """Bit for bit on two PEs, where there is only one order of sums."""
    ours, theirs = network(dtype, seed=3), network(dtype, seed=3)
    ddp = torch.nn.parallel.DistributedDataParallel(theirs)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01, momentum=0.9) for each in (ours, theirs)]
    with reducing(ours, bucket_bytes=1200, schedule=schedule):
        for turn in range(4):
            for model, optimizer in zip((ours, ddp), optimizers, strict=True):
                optimizer.zero_grad()
                loss_of(model, data(shmem.my_pe(), turn, dtype)).backward()
                optimizer.step()
        for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            if shmem.n_pes() <= 2:
                assert torch.equal(mine, other) and torch.equal(mine.grad, other.grad), name
            else:
                close_to(mine.detach(), other.detach().double(), BOUNDS[dtype], name)


def test_a_model_whose_parameters_are_no_longer_those_of_the_reducer_is_refused():
    """Their gradients would stay on this PE. Copies and files have no reducer."""
    model, x = network(), data(shmem.my_pe())
    with reducing(model):
        other, saved = copy.deepcopy(model), io.BytesIO()
        torch.save(model, saved)
        saved.seek(0)
        assert torch.load(saved, weights_only=False)(x).requires_grad
        loss_of(other.half().float(), x).backward()
        kept = [each.dtype for each in model.parameters()]
        with refuses("GradientReducer", r"model, 0.weight: got torch.float16, changed from torch.float32"):
            model.half()(x.half())
        model.float()
        assert [each.dtype for each in model.parameters()] == kept
        loss_of(model, x).backward()
        model.load_state_dict(model.state_dict(), assign=True)
        with refuses("GradientReducer", "model, 0.weight: got another parameter"):
            model(x)


def test_parameters_and_buffers_become_those_of_pe_0():
    model = torch.nn.Sequential(network(), torch.nn.BatchNorm1d(5).to(here()))
    model[1].running_mean.fill_(shmem.my_pe() + 1)
    model[1].num_batches_tracked.fill_(shmem.my_pe() + 7)
    model[0][2].weight.data = model[0][2].weight.data.t()  # not contiguous
    wanted = network(seed=0)
    with reducing(model):
        assert torch.equal(model[0][0].weight, wanted[0].weight)
        assert torch.equal(model[0][2].weight, wanted[2].weight.t())
        assert model[1].running_mean.eq(1).all() and model[1].num_batches_tracked == 7


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


@every_schedule
def test_gradients_of_several_backwards_add_up_before_they_are_reduced(schedule):
    model = network()
    with reducing(model, bucket_bytes=1200, schedule=schedule) as reducer:
        for first in (0, 3):
            model.zero_grad()
            with reducer.no_sync():
                for turn in (first, first + 1):
                    loss_of(model, data(shmem.my_pe(), turn)).backward()
            loss_of(model, data(shmem.my_pe(), first + 2)).backward()
            check(model, averages(model, range(first, first + 3)), first)


def test_no_sync_lets_a_pe_run_backward_by_itself():
    model = network()
    with reducing(model) as reducer:
        if shmem.my_pe() == 0:
            with reducer.no_sync():
                loss_of(model, data(0)).backward()
            check(model, [each.grad.double() for each in copied(model, data(0))])


def copied(model, x):
    alone = copy.deepcopy(model)
    alone.zero_grad()
    loss_of(alone, x).backward()
    return alone.parameters()


def test_a_backward_onto_reduced_gradients_adds_its_average():
    model = network()
    with reducing(model):
        for turn in range(2):
            loss_of(model, data(shmem.my_pe(), turn)).backward()
        check(model, averages(model, [0, 1]))


class Branches(torch.nn.Module):
    """Of ``branches`` a call uses one; ``shared`` is registered twice, ``frozen`` has no gradient."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Linear(6, 6)
        self.branches = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(3))
        self.shared = torch.nn.Linear(6, 6, bias=False)
        self.again = torch.nn.Linear(6, 6, bias=False)
        self.again.weight = self.shared.weight
        self.frozen = torch.nn.Parameter(torch.ones(6), requires_grad=False)
        self.wide = torch.nn.Parameter(torch.ones(6, dtype=torch.float64))
        self.to(here())

    def forward(self, x, branch):
        x = self.shared(self.branches[branch](self.first(x)) * self.frozen)
        return self.again(x) * self.wide


@every_schedule
def test_unused_shared_and_frozen_parameters_and_several_dtypes_are_reduced_as_they_should(schedule):
    """A branch that only some PEs use counts zeros for the others; one that no PE uses has zeros on all."""
    me, n = shmem.my_pe(), shmem.n_pes()
    model = Branches()
    alone = copy.deepcopy(model)
    for pe in range(n):
        alone(data(pe), pe % 2).square().sum().backward()
    with reducing(model, bucket_bytes=300, schedule=schedule) as reducer:
        assert not any("frozen" in name or "again" in name for names in reducer.buckets for name in names)
        for _ in range(2):
            model.zero_grad()
            model(data(me), me % 2).square().sum().backward()
            for (name, each), other in zip(model.named_parameters(), alone.parameters(), strict=True):
                if other.grad is None:
                    assert each.grad is None if name == "frozen" else not each.grad.any()
                else:
                    close_to(each.grad, other.grad.double() / n, 1e-5, name)


def test_gradients_without_a_backward_through_them_keep_what_no_sync_has_added():
    me, n = shmem.my_pe(), shmem.n_pes()
    model = Branches()
    alone = copy.deepcopy(model)
    for pe in range(n):
        alone(data(pe), 2).square().sum().backward()
    wanted = alone.branches[2].weight.grad / n
    with reducing(model, bucket_bytes=300) as reducer:
        with reducer.no_sync():
            model(data(me), 2).square().sum().backward()
        model(data(me), 0).square().sum().backward()
        close_to(model.branches[2].weight.grad, wanted.double(), 1e-5)


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
        reducer._steps = [noted(step, order, i) for i, step in enumerate(reducer._steps)]
        model[0].weight.register_hook(lambda _: order.append("first layer"))
        loss_of(model, data(shmem.my_pe())).backward()
    assert order[:2] == [0, 1] and order.index("first layer") > order.index(3)


def noted(step, order, name):
    def wrapped(source):
        order.append(name)
        step(source)

    return wrapped


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


@every_schedule
def test_teams_of_some_pes_reduce_among_themselves(schedule, smaller_teams):
    for team in smaller_teams:
        if team:
            model = network()
            with reducing(model, team=team, schedule=schedule):
                loss_of(model, data(shmem.my_pe())).backward()
                check(model, averages(model, team=team))


def test_a_backward_that_fails_on_all_pes_leaves_no_trace():
    model, failing = network(), [True]

    def fail(grad):
        if failing[0]:
            raise ValueError("once")

    with reducing(model, bucket_bytes=1):
        x = data(shmem.my_pe())
        hidden = model[:3](x)
        hidden.register_hook(fail)
        with pytest.raises(ValueError, match="once"):
            model[3:](hidden).square().sum().backward()
        failing[0] = False
        model.zero_grad()
        loss_of(model, x).backward()
        check(model, averages(model))


def test_close_takes_the_views_away_and_ends_the_reductions():
    model = network()
    reducer = ops.GradientReducer(model)
    loss_of(model, data(shmem.my_pe())).backward()
    reducer.close()
    assert all(each.grad is None for each in model.parameters())
    if shmem.my_pe() == 0:  # no other PE takes part
        loss_of(model, data(0)).backward()
        check(model, [each.grad.double() for each in model.parameters()])


REFUSED = [
    ("model: got list; wants a torch.nn.Module", lambda: ([1], {})),
    ("model: got no parameter that requires a gradient", lambda: (torch.nn.Tanh(), {})),
    ("model, 0: got torch.complex64", lambda: (torch.nn.ParameterList([torch.zeros(3, dtype=torch.complex64)]), {})),
    ("model, 0.weight: got a parameter on meta", lambda: (network().to("meta"), {})),
    ("bucket_bytes: got 0; wants a number of bytes", lambda: (network(), {"bucket_bytes": 0})),
    ("bucket_bytes: got True; wants a number of bytes", lambda: (network(), {"bucket_bytes": True})),
    ("average: got 'sum'; wants True or False", lambda: (network(), {"average": "sum"})),
    ("schedule: got 'ring'; wants auto or copy_engine", lambda: (network(), {"schedule": "ring"})),
    ("team: got", lambda: (network(), {"team": shmem.TEAM_INVALID})),
]


@pytest.mark.parametrize("message, make", REFUSED, ids=[each[0][:20] for each in REFUSED])
def test_wrong_arguments_are_refused_with_their_name(message, make):
    model, options = make()
    with refuses("GradientReducer", message, shmem.ShmemError):
        ops.GradientReducer(model, **options)


def test_sparse_gradients_are_refused_with_their_name():
    model = torch.nn.Embedding(10, 4, sparse=True).to(here())
    with reducing(model), pytest.raises(shmem.ArgumentError, match="a gradient of weight in torch.sparse_coo"):
        model(torch.tensor([1, 2], device=here())).sum().backward()
    shmem.barrier_all()


def longer():
    return torch.nn.Sequential(*network(), torch.nn.Linear(5, 5).to(here()))


def wider():
    model = network()
    model[4] = torch.nn.Linear(16, 9).to(here())
    return model


def frozen():
    model = network()
    model[2].bias.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    "make, line",
    [
        (longer, "5.weight: (5, 5) in"),
        (wider, "4.weight: (9, 16) in"),
        (frozen, "2.bias: (16,) in torch.float32, frozen"),
    ],
)
def test_models_that_differ_are_refused_on_all_pes_by_the_first_parameter_that_does(make, line):
    if shmem.n_pes() < 2:
        pytest.skip("there is no other PE")
    model = make() if shmem.my_pe() == 1 else network()
    with pytest.raises(shmem.ArgumentError) as caught:
        ops.GradientReducer(model)
    assert f"{line}" in str(caught.value) and "on PE 1; wants the same model on all PEs" in str(caught.value)


def test_a_refusal_of_one_pe_is_raised_on_all():
    if shmem.n_pes() < 2:
        pytest.skip("there is no other PE")
    model = torch.nn.Tanh() if shmem.my_pe() == 1 else network()
    with pytest.raises(shmem.ArgumentError, match="no parameter that requires a gradient"):
        ops.GradientReducer(model)


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
