"""The device functions in Gluon's kernels, which need a GPU: a layout for each tile, and partitions of warps."""

import importlib

import pyshmem as shmem
import pytest
import torch
from pyshmem.base import interpreter
from pyshmem.device.arch.targets import TARGETS
from support import assert_same, guarded, neighbours, payload, untouched
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

pytestmark = pytest.mark.usefixtures("beside_the_heap")

if not interpreter.active():
    import pyshmem.device.gluon as dev

on_a_gpu = pytest.mark.skipif(interpreter.active(), reason="Gluon has no interpreter")
N, TURNS = 3000, 4  # elements: several blocks of the wide copy and a tail


@pytest.mark.skipif(not interpreter.active(), reason="kernels are compiled here")
def test_gluon_is_refused_where_kernels_are_interpreted():
    with pytest.raises(ImportError, match="Gluon has no interpreter: it needs a GPU"):
        importlib.import_module("pyshmem.device.gluon")


@gluon.jit
def by_put_signal(ctx, data, source, n, arrived, turn, pe, ROWS: gl.constexpr):
    dev.put_signal(ctx, data, source, n, arrived, turn, dev.SIGNAL_SET, pe)


@gluon.jit
def by_tiles(ctx, data, source, n, arrived, turn, pe, ROWS: gl.constexpr):
    for first in range(0, n, 1024):
        lane = first + gl.arange(0, 1024, ROWS)
        dev.store(ctx, data + lane, gl.load(source + lane, mask=lane < n), pe, mask=lane < n)
    dev.signal_add(ctx, arrived, 1, pe)


@gluon.jit
def take(ctx, data, out, n, arrived, turn, ROWS: gl.constexpr):
    dev.signal_wait_until(ctx, arrived, dev.CMP_GE, turn)
    for first in range(0, n, 1024):
        lane = first + gl.arange(0, 1024, ROWS)
        gl.store(out + lane, gl.load(data + lane, mask=lane < n), mask=lane < n)


@gluon.jit
def one_after_the_other(
    ctx, SEND: gl.constexpr, data, source, out, n, arrived, taken, turn, right, left, ROWS: gl.constexpr
):
    """Send to the right, copy to out what comes from the left, and stay until the right has done so."""
    SEND(ctx, data, source, n, arrived, turn, right, ROWS)
    take(ctx, data, out, n, arrived, turn, ROWS)
    dev.signal_set(ctx, taken, turn, left)
    dev.signal_wait_until(ctx, taken, dev.CMP_GE, turn)


@gluon.jit
def send_by(ctx, SEND: gl.constexpr, data, source, n, arrived, turn, pe, ROWS: gl.constexpr):
    """A partition of warps has a function of its own: Triton 3.6 takes none that is a parameter."""
    SEND(ctx, data, source, n, arrived, turn, pe, ROWS)


@gluon.jit
def beside_each_other(
    ctx, SEND: gl.constexpr, data, source, out, n, arrived, taken, turn, right, left, ROWS: gl.constexpr
):
    """The same, sent by four more warps while the others take."""
    gl.warp_specialize(
        [
            (take, (ctx, data, out, n, arrived, turn, ROWS)),
            (send_by, (ctx, SEND, data, source, n, arrived, turn, right, ROWS)),
        ],
        [4],
        [40],
    )
    dev.signal_set(ctx, taken, turn, left)
    dev.signal_wait_until(ctx, taken, dev.CMP_GE, turn)


def go_round(kernel, send):
    """TURNS times round the ring: every payload names its sender and its turn."""
    left, me, right = neighbours()
    ctx = shmem.device_context()
    nvidia = TARGETS[ctx.where.value] == "nvidia"
    if kernel is beside_each_other and not nvidia:
        pytest.skip("Triton specialises warps on NVIDIA's GPUs, and on AMD's after gfx950")
    rows = gl.BlockedLayout([4], [32 if nvidia else 64], [4], [0])
    (data, whole), (arrived, taken) = guarded(N, torch.float32), shmem.zeros(2, dtype=torch.uint64)
    for turn in range(1, TURNS + 1):
        out, source = torch.empty(N), payload(me, turn, N, torch.float32)
        kernel[(1,)](ctx, send, data, source, out, N, arrived, taken, turn, right, left, rows)
        assert_same(out, payload(left, turn, N, torch.float32))
    shmem.barrier_all()
    assert untouched(whole[N:])


@on_a_gpu
@pytest.mark.parametrize("send", [by_put_signal, by_tiles], ids=lambda send: send.fn.__name__)
@pytest.mark.parametrize("kernel", [one_after_the_other, beside_each_other], ids=lambda kernel: kernel.fn.__name__)
def test_a_ring_of_gluon_kernels_shows_each_signal_after_its_payload(kernel, send):
    go_round(kernel, send)


@gluon.jit
def places(rows: gl.constexpr, columns: gl.constexpr, BLOCK: gl.constexpr):
    row, column = gl.arange(0, rows, gl.SliceLayout(1, BLOCK)), gl.arange(0, columns, gl.SliceLayout(0, BLOCK))
    return row[:, None] * columns + column[None, :]


@gluon.jit
def tiles(ctx, x, y, right, left, R: gl.constexpr, C: gl.constexpr, BLOCK: gl.constexpr):
    """Each result goes to a place of y of its own, R * C elements on; the last two are those of all_gather and of a scalar."""
    at = places(R, C, BLOCK)
    tile = gl.load(x + at)
    gl.store(y + at, dev.all_reduce(ctx, tile, "sum"))
    gl.store(y + R * C + at, dev.scan(ctx, tile, "sum"))
    gl.store(y + 2 * R * C + at, dev.all_to_all(ctx, tile, axis=1))
    gl.store(y + 3 * R * C + at, dev.sendrecv(ctx, tile, right, left))
    gl.store(y + 4 * R * C + at, dev.broadcast(ctx, tile, 0))
    gl.store(y + 5 * R * C + places(R // ctx.members, C, BLOCK), dev.reduce_scatter(ctx, tile, "sum", axis=0))
    gl.store(y + 6 * R * C + places(R * ctx.members, C, BLOCK), dev.all_gather(ctx, tile, axis=0))
    gl.store(y + (6 + ctx.members) * R * C, dev.all_reduce(ctx, gl.load(x + 1), "max"))


@on_a_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(8, 16), (64, 128)])
def test_collectives_on_gluons_tiles_give_what_tritons_do(rows, columns, dtype):
    left, me, right = neighbours()
    n, ctx = shmem.n_pes(), shmem.device_context()
    most, size = 1 << (n - 1).bit_length(), rows * columns
    block = gl.BlockedLayout([1, 4], [8, (32 if TARGETS[ctx.where.value] == "nvidia" else 64) // 8], [4, 1], [1, 0])
    whole = [(torch.arange(size).reshape(rows, columns) * (pe + 1) % 7).to(dtype) for pe in range(n)]
    y = torch.zeros((6 + most) * size + 1, dtype=dtype)
    tiles[(1,)](ctx, whole[me], y, right, left, rows, columns, block)
    found, total = y[:-1].reshape(-1, rows, columns), sum(whole)
    assert torch.equal(found[0], total)
    assert torch.equal(found[1], sum(whole[: me + 1]))
    nobodys = [torch.zeros_like(whole[0])] * (most - n)
    pieces = [each.chunk(most, 1)[me] for each in [*whole, *nobodys]]
    assert torch.equal(found[2], torch.cat(pieces, 1))
    assert torch.equal(found[3], whole[left]) and torch.equal(found[4], whole[0])
    assert torch.equal(found[5].reshape(-1)[: size // most], total.chunk(most)[me].reshape(-1))
    assert torch.equal(found[6:].reshape(most, rows, columns), torch.stack([*whole, *nobodys]))
    assert y[-1] == max(each[0, 1] for each in whole)


@gluon.jit
def words(ctx, word, out, pe, left, LANES: gl.constexpr):
    lane = gl.arange(0, 64, LANES)
    me, n_pes = dev.my_pe(ctx), dev.n_pes(ctx)
    dev.atomic_add(ctx, word + lane, 1 + me, 0)
    dev.barrier_all(ctx)
    gl.store(out + lane, dev.atomic_fetch(ctx, word + lane, 0))
    dev.barrier_all(ctx)
    dev.p(ctx, word, 100 + me, pe)
    dev.barrier_all(ctx)
    gl.store(out + 64, dev.g(ctx, word, (me + 1) % n_pes))
    dev.barrier_all(ctx)
    gl.store(out + 65, dev.atomic_compare_swap(ctx, word, 100 + left, 7, me))
    dev.iput(ctx, word + 1, out, 2, 1, 20, pe)
    dev.barrier_all(ctx)


@on_a_gpu
def test_atomics_p_g_strided_puts_and_barriers_of_a_gluon_kernel():
    left, me, right = neighbours()
    n_pes, ctx = shmem.n_pes(), shmem.device_context()
    lanes = gl.BlockedLayout([1], [32 if TARGETS[ctx.where.value] == "nvidia" else 64], [4], [0])
    word, out = shmem.zeros(64, dtype=torch.int64), torch.zeros(66, dtype=torch.int64)
    words[(1,)](ctx, word, out, right, left, lanes)
    total = sum(range(1, n_pes + 1))
    assert out.tolist() == [total] * 64 + [100 + me, 100 + left]
    assert word[:41:2].tolist() == [7] + [0 if me else total] * 20
    assert word[1:41:2].tolist() == [total] * 20
