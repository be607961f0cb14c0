"""The kernels of Gluon: those of kernels.py, which have no tile, as they are, and those with tiles, which need a layout."""

import kernels
import pyshmem.device.gluon as dev
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@triton.constexpr_function
def rows(warp, num_warps, each=1):
    """A thread has ``each`` neighbours of a block; ``warp`` is how many threads a warp has."""
    return gl.BlockedLayout([each], [warp], [num_warps], [0])


@gluon.jit
def tiles(ctx, x, y, n, pe, BLOCK: gl.constexpr, WARP: gl.constexpr):
    lane = gl.program_id(0) * BLOCK + gl.arange(
        0, BLOCK, rows(WARP, gl.num_warps(), 128 // x.dtype.element_ty.primitive_bitwidth)
    )
    dev.store(ctx, y + lane, dev.load(ctx, x + lane, pe), pe)


@gluon.jit
def tile_of_pes(ctx, x, y, pes, n, WARP: gl.constexpr):
    lane = gl.arange(0, 256, rows(WARP, gl.num_warps()))
    gl.store(dev.ptr(ctx, y + lane, gl.load(pes + lane)), 3, mask=lane < n)


@gluon.jit
def tile_then_signal(ctx, x, signal, pe, WARP: gl.constexpr):
    dev.store(ctx, x + gl.arange(0, 1024, rows(WARP, gl.num_warps(), 4)), 1, pe)
    dev.signal_add(ctx, signal, 1, pe)


@gluon.jit
def wait_then_read(ctx, signal, data, out, CMP: gl.constexpr, WARP: gl.constexpr):
    dev.signal_wait_until(ctx, signal, CMP, 12345)
    lane = gl.arange(0, 128, rows(WARP, gl.num_warps()))
    gl.store(out + lane, gl.load(data + lane))


@gluon.jit
def fence(ctx, x, y, pe, WARP: gl.constexpr):
    lane = gl.arange(0, 1024, rows(WARP, gl.num_warps(), 4))
    dev.store(ctx, x + lane, 1, pe)
    dev.fence(ctx)
    dev.store(ctx, y + lane, 2, pe)


@gluon.jit
def barrier_all(ctx, x, pe, WARP: gl.constexpr):
    dev.store(ctx, x + gl.arange(0, 1024, rows(WARP, gl.num_warps(), 4)), 1, pe)
    dev.barrier_all(ctx)


@gluon.jit
def atomics(ctx, words, out, pe, WARP: gl.constexpr):
    lane = gl.arange(0, 64, rows(WARP, gl.num_warps()))
    dev.atomic_add(ctx, words + lane, 2, pe)
    dev.atomic_inc(ctx, words + lane, pe)
    dev.atomic_set(ctx, words + lane, 3, pe, mask=lane < 9)
    gl.store(out + lane, dev.atomic_fetch_add(ctx, words + lane, 2, pe))
    gl.store(out + lane, dev.atomic_fetch_inc(ctx, words + lane, pe))
    gl.store(out + lane, dev.atomic_swap(ctx, words + lane, 2, pe))
    gl.store(out + lane, dev.atomic_fetch(ctx, words + lane, pe))
    gl.store(out + lane, dev.atomic_compare_swap(ctx, words + lane, 2, 3, pe))


@gluon.jit
def least_and_greatest(ctx, words, out, pe, WARP: gl.constexpr):
    lane = gl.arange(0, 64, rows(WARP, gl.num_warps()))
    dev.atomic_min(ctx, words + lane, 2, pe)
    dev.atomic_max(ctx, words + lane, 3, pe, mask=lane < 9)
    gl.store(out, dev.atomic_fetch_min(ctx, words, 2, pe))
    gl.store(out, dev.atomic_fetch_max(ctx, words, 3, pe))


@gluon.jit
def fetches_nbi(ctx, words, out, pe, WARP: gl.constexpr):
    lane = gl.arange(0, 64, rows(WARP, gl.num_warps()))
    dev.atomic_fetch_add_nbi(ctx, out + lane, words + lane, 2, pe)
    dev.atomic_fetch_inc_nbi(ctx, out, words, pe)
    dev.atomic_swap_nbi(ctx, out + lane, words + lane, 2, pe, mask=lane < 9)
    dev.atomic_fetch_nbi(ctx, out, words, pe)
    dev.atomic_compare_swap_nbi(ctx, out, words, 2, 3, pe)


@gluon.jit
def wait_until_all(ctx, words, n, status, data, out, CMP: gl.constexpr, WARP: gl.constexpr):
    dev.wait_until_all(ctx, words, n, status, CMP, -1)
    lane = gl.arange(0, 128, rows(WARP, gl.num_warps()))
    gl.store(out + lane, gl.load(data + lane))


@gluon.jit
def wait_until_any(ctx, words, n, status, data, out, CMP: gl.constexpr, WARP: gl.constexpr):
    found = dev.wait_until_any(ctx, words, n, status, CMP, -1)
    lane = gl.arange(0, 128, rows(WARP, gl.num_warps()))
    gl.store(out + lane, gl.load(data + lane) + found)


@gluon.jit
def wait_until_some(ctx, words, n, indices, data, out, CMP: gl.constexpr, WARP: gl.constexpr):
    found = dev.wait_until_some(ctx, words, n, indices, None, CMP, -1)
    lane = gl.arange(0, 128, rows(WARP, gl.num_warps()))
    gl.store(out + lane, gl.load(data + lane) + found)


@gluon.jit
def gathers(ctx, dest, source, n):
    dev.collect(ctx, dest, source, n)


@gluon.jit
def reductions(ctx, dest, source, n):
    dev.sum_exscan_grid(ctx, dest, source, n)
    dev.barrier_all_grid(ctx)


@gluon.jit
def elements(ctx, part, n, WARP: gl.constexpr):
    span = dev.trace_begin(ctx, "elements")
    row = gl.arange(0, 256, rows(WARP, gl.num_warps()))
    dev.store_at(part, row, 0, dev.load_at(part, row, 1, row < n, 0.0), row < n)
    dev.atomic_add_at(part, row, 0, 1)
    pointers, pe = dev.locate(part, row)
    dev.store(ctx, pointers, 1, pe)
    pe = dev.owner(part, n)
    dev.store_at(
        part, dev.global_index(part, dev.local_index(part, n) + dev.n_local(part, pe), dev.my_place(part)), 0, 1
    )
    row, column = dev.my_tile(part, 8, 1)
    dev.store_at(part, row, column, 1)
    dev.trace_end(ctx, span)


@triton.constexpr_function
def block(warp, num_warps):
    """A thread has four neighbours in a row of a block of two dimensions."""
    return gl.BlockedLayout([1, 4], [warp // 8, 8], [num_warps, 1], [1, 0])


@gluon.jit
def at(shape: gl.constexpr, WARP: gl.constexpr):
    """The places of the elements of a block by rows."""
    layout: gl.constexpr = block(WARP, gl.num_warps())
    row, column = gl.arange(0, shape[0], gl.SliceLayout(1, layout)), gl.arange(0, shape[1], gl.SliceLayout(0, layout))
    return row[:, None] * shape[1] + column[None, :]


@gluon.jit
def tiles_combined(ctx, x, y, WARP: gl.constexpr):
    tile = gl.load(x + at((16, 32), WARP))
    gl.store(y + at((16, 32), WARP), dev.all_reduce(ctx, tile, "sum"))
    gl.store(y + at((16, 32), WARP), dev.scan(ctx, tile, "max", exclusive=True))
    gl.store(y + at((4, 32), WARP), dev.reduce_scatter(ctx, tile, "sum", axis=0))
    gl.store(y, dev.all_reduce(ctx, gl.load(x), "min"))


@gluon.jit
def tiles_moved(ctx, x, y, WARP: gl.constexpr):
    tile = gl.load(x + at((16, 32), WARP))
    gl.store(y + at((16, 128), WARP), dev.all_gather(ctx, tile, axis=1))
    gl.store(y + at((16, 32), WARP), dev.all_to_all(ctx, tile, axis=0))


@gluon.jit
def tiles_passed(ctx, x, y, to, of, WARP: gl.constexpr):
    tile = gl.load(x + at((16, 32), WARP))
    dev.send(ctx, dev.broadcast(ctx, tile, of), to)
    gl.store(y + at((16, 32), WARP), dev.sendrecv(ctx, dev.recv(ctx, tile, of), to, of))


@gluon.jit
def rows_without_axis(ctx, x, y, WARP: gl.constexpr):
    tile = gl.load(x + at((ctx.members, 128), WARP))
    column = gl.arange(0, 128, gl.SliceLayout(0, block(WARP, gl.num_warps())))
    gl.store(y + column, dev.reduce_scatter(ctx, tile, "sum"))


@gluon.jit
def gathered_without_axis(ctx, x, WARP: gl.constexpr):
    dev.all_gather(ctx, gl.load(x + at((16, 32), WARP)))


@gluon.jit
def send(ctx, x, y, signal, pe):
    dev.put_signal(ctx, x, y, 100000, signal, 1, dev.SIGNAL_SET, pe)


@gluon.jit
def receive(ctx, x, y, signal, pe):
    dev.signal_wait_until(ctx, signal, dev.CMP_GE, 1)


@gluon.jit
def send_in_partition(ctx, x, y, signal, pe, WARPS: gl.constexpr):
    gl.warp_specialize([(receive, (ctx, x, y, signal, pe)), (send, (ctx, x, y, signal, pe))], [WARPS], [24])


def gluon_form(kernel):
    """A kernel of kernels.py as Gluon's: of the same name here, or itself compiled for Gluon."""
    name = kernel.fn.__name__
    return globals()[name] if isinstance(globals().get(name), type(tiles)) else gluon.jit(kernel.fn)


FORMS = {kernel: gluon_form(kernel) for kernel in dict.fromkeys(case[0] for case in kernels.EVERY)}
