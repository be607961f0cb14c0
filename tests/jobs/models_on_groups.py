"""Models on pyshmem's process groups: the same steps as on gloo's, in the same bits where all sums have two terms."""

import copy
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import pyshmem.distributed  # noqa: F401  adds the backend

warnings.simplefilter("ignore", FutureWarning)  # names that torch has renamed
dist.init_process_group("cpu:pyshmem,cuda:pyshmem")
me, n = dist.get_rank(), dist.get_world_size()
gloo = dist.new_group(backend="gloo")
torch.manual_seed(0)
MODEL = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def steps(wrap):
    """The parameters after two steps, each with gradients of two backward passes."""
    model = wrap(copy.deepcopy(MODEL))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(2):
        for part in range(2):
            numbers = torch.Generator().manual_seed(100 * me + 10 * step + part)
            model(torch.randn(4, 7, generator=numbers)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    whole = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in model.parameters()]
    return [each.detach() for each in whole]


def sharded(mesh):
    def wrap(model):
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
        return model

    return wrap


def require_same(got, wanted, what):
    for one, other in zip(got, wanted, strict=True):
        close = torch.equal(one, other) if n == 2 else torch.allclose(one, other, rtol=1e-6, atol=1e-7)
        assert close, f"PE {me}: {what}: {(one - other).abs().max()}"


def redistribute(mesh):
    whole = torch.arange(12.0 * n).view(2 * n, 6)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(rows.to_local(), whole[2 * me : 2 * me + 2])
    assert torch.equal(rows.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    columns = distribute_tensor(whole.t().contiguous(), mesh, [Shard(1)])
    product = columns @ rows  # partial sums
    assert product.placements == (Partial(),)
    for placement in (Replicate(), Shard(0)):
        assert torch.equal(product.redistribute(mesh, [placement]).full_tensor(), whole.t() @ whole)


def compiled():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def call(x):
        whole = functional.all_gather_tensor(x, 0, dist.group.WORLD)
        total = functional.all_reduce(whole, "sum", dist.group.WORLD)
        mine = functional.all_to_all_single(total, None, None, dist.group.WORLD)
        return functional.reduce_scatter_tensor(mine, "avg", 0, dist.group.WORLD) + 1

    got = call(torch.full((2,), float(me)))
    blocks = torch.arange(float(n)).repeat_interleave(2) * n  # the sum of all PEs' gathered ones
    mine = blocks.view(n, -1)[me].repeat(n)
    wanted = sum(blocks.view(n, -1)[pe].repeat(n) for pe in range(n)) / n
    assert mine.shape == wanted.shape and torch.equal(got, wanted[2 * me : 2 * me + 2] + 1), (got, wanted)


wanted = steps(lambda model: DistributedDataParallel(model, process_group=gloo))
require_same(steps(DistributedDataParallel), wanted, "DDP")
wanted = steps(sharded(DeviceMesh.from_group(gloo, "cpu")))
require_same(steps(sharded(init_device_mesh("cpu", (n,)))), wanted, "FSDP2")
if n > 2:
    require_same(steps(sharded(init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("dp", "tp")))), wanted, "HSDP")
redistribute(init_device_mesh("cpu", (n,)))
if n == 2:
    compiled()
print(f"{me}: {sum(each.numel() for each in wanted)} parameters", flush=True)
dist.destroy_process_group()
