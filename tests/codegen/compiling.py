"""Compiles a kernel for a GPU as a launch on it would, and gives its instructions."""

import functools
import re

import pyshmem.device as dev  # noqa: F401  before triton
import pytest
import torch
import triton.language as tl
from pyshmem.device.arch.fields import encoded, encoded_distance
from pyshmem.device.arch.targets import DIRECT
from pyshmem.device.arch.targets import TARGETS as NAMES
from pyshmem.device.context import DeviceContext
from pyshmem.device.collectives.scratch import divide
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.compiler import compile as compile_with_triton
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.jit import JITFunction, create_function_from_signature

TARGETS = {
    "nvidia": GPUTarget("cuda", 90, 32),
    "gfx90a": GPUTarget("hip", "gfx90a", 64),
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx950": GPUTarget("hip", "gfx950", 64),
}
HEAP = 1 << 30


def context(target, me=0, n_pes=4, by_table=False, start=0, step=1, scratch=1 << 26):
    """The device context of PE ``me`` as init would make it: heaps at one stride, or found by a table.

    start, step: the world PE of the team's first member, and from one to the next.  scratch: the bytes that its team has.
    """
    base = 0x7F00_0000_0000 + (me * 0x40_0000_0000 if by_table else me * HEAP)
    return DeviceContext(
        me=encoded(me),
        n_pes=encoded(n_pes),
        stride=encoded_distance(0 if by_table else step * HEAP),
        sync_area=base + HEAP - (1 << 16),
        generation=encoded(1),
        base=base,
        table=base + (1 << 34) if by_table else 0,
        start=encoded(start),
        step=encoded(step),
        record=0x7E00_0000_0000 + me * 4096,
        limit=300 * 10**9,
        **divide(base + HEAP - (1 << 28), scratch, n_pes),
        where=tl.constexpr(NAMES.index(target)),
        by_table=tl.constexpr(by_table),
        ring=tl.constexpr(0),
        trace=tl.constexpr(0),
        events=tl.constexpr(0),
        reach=tl.constexpr(DIRECT),
        members=tl.constexpr(1 << (n_pes - 1).bit_length()),
    )


def array(dtype, aligned=True):
    """What stands for a tensor on a GPU: its dtype, and whether its address is a multiple of 16."""
    return torch.empty(32, dtype=dtype)[0 if aligned else 1 :]


def operand(each):
    if type(each) is tuple:  # not one with names, such as a partition
        return tuple(map(operand, each))
    return array(each) if isinstance(each, torch.dtype) else each


def specialise(kernel, target, args, **options):
    """(ASTSource, options) of a launch with these arguments, by Triton's own reading of them."""
    backend = make_backend(TARGETS[target])
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, rest = binder(*args, **options)
    launch, signature, constexprs, attrs = kernel._pack_args(backend, options, bound, specialization, rest)
    kind = GluonASTSource if kernel.is_gluon() else ASTSource
    return kind(kernel, signature, constexprs, attrs), launch


spared = False  # whether a test shall end where it compiles a kernel that another one has compiled
_known = set()


def compile(source, target, options=None):
    """Triton's. A test that is spared is skipped, unless it is the first to compile its kernel with these functions in it."""
    kernel = source.fn, *(each for each in source.constants.values() if isinstance(each, JITFunction))
    if spared and kernel in _known:
        pytest.skip("other cases compile this kernel")
    _known.add(kernel)
    return compile_with_triton(source, target=target, options=options)


def cache_key(kernel, target, args, **options):
    """What Triton looks a compiled kernel up by."""
    source, options = specialise(kernel, target, args, **options)
    return source.hash(), str(options)


@functools.cache
def assembly(kernel, target, *operands, by_table=False, n_pes=4, num_warps=4, record=True, events=0):
    """The PTX or the AMD instructions of ``kernel(ctx, *operands)``; a dtype stands for an aligned array of it, in tuples too.

    record: whether waits that give up leave one; without it, only what a wait does that ends well is compiled.
    events: how many the ring of a timeline holds, 0 without one.
    """
    ctx, args = context(target, 0, n_pes, by_table), map(operand, operands)
    if not record:
        ctx = ctx._replace(record=tl.constexpr(0))
    if events:
        ctx = ctx._replace(trace=0x7C00_0000_0000, events=tl.constexpr(events))
    source, options = specialise(kernel, target, [ctx, *args], num_warps=num_warps)
    compiled = compile(source, target=TARGETS[target], options=options.__dict__)
    return compiled.asm["ptx" if target == "nvidia" else "amdgcn"]


def instructions(text):
    """The instructions and labels, one a line, without comments and what is for debuggers; those of a spin too."""
    text = re.sub(r"^.*\bAGAIN:.*$", _spelled, text, flags=re.MULTILINE)
    comment = ";" if "s_endpgm" in text else "//"
    lines = (line.split(comment)[0].strip() for line in text.split(".section")[0].splitlines())
    return [line for line in lines if line and not re.match(r"\.(?!LBB)|\$L__(tmp|func)|\.?L(tmp|func)", line)]


def _spelled(statement):
    """The lines of one that is a loop (pyshmem.device.arch.gpu.spinning), with labels as the compiler's own."""
    text = re.sub(
        r"\b(AGAIN|CLOCK|LOOK|LEAVE|DONE)\b", rf"$L__BB_spin{statement.start()}_\1", statement[0].strip(" \t{}")
    )
    return re.sub(r"([;:]) +", r"\1\n", text)


def places(lines, pattern):
    """Where the pattern matches, as indices of lines."""
    return [place for place, line in enumerate(lines) if re.search(pattern, line)]


def in_order(lines, *patterns):
    """The first place of each pattern after the one before it. Fails naming the pattern that is not there."""
    found, start = [], 0
    for pattern in patterns:
        place = next((i for i in range(start, len(lines)) if re.search(pattern, lines[i])), None)
        assert place is not None, f"no {pattern} after line {start} of:\n" + "\n".join(lines)
        found.append(place)
        start = place + 1
    return found


def spans(lines):
    """(first, last) of the lines that a branch jumps back over."""
    labels = {line.rstrip(":"): place for place, line in enumerate(lines) if line.endswith(":")}
    jumps = [(re.search(r"bra\S* .*?(\$L__BB\w+|\.LBB\w+);?$", line), place) for place, line in enumerate(lines)]
    return [(labels[jump[1]], place) for jump, place in jumps if jump and labels[jump[1]] < place]


def loops(lines):
    """The stretches that a branch jumps back over."""
    return [lines[first : last + 1] for first, last in spans(lines)]


def polling(lines, poll):
    """The loops with a poll, without those that hold another."""
    found = [loop for loop in loops(lines) if places(loop, poll)]
    return [loop for loop in found if not any(len(each) < len(loop) and set(each) <= set(loop) for each in found)]
