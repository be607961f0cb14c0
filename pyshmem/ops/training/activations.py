"""Activations between the stages of a pipeline: payload and flag in one, without the host.

Bytes that cross: those of the tensors, once; the receiver copies them once more, out of its slot.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import pyshmem as shmem
import pyshmem.device as dev
from pyshmem.base.errors import ArgumentError, OutOfRangeError, refuse
from pyshmem.base.job import job
from pyshmem.device import arch
from pyshmem.host.teams import Team
from pyshmem.kernels.bound_kernels import Prepared
from pyshmem.memory.arguments import integer_of, is_int
from pyshmem.ops import plans
from pyshmem.ops.checks import require_array
from pyshmem.ops.descriptions import typed
from pyshmem.ops.machine import device
from pyshmem.ops.plans import Call, Request, plan_for, team_of
from pyshmem.ops.workspace import Wanted, Workspace

BOTH = "send_activations, recv_activations"  # they share plans
PROGRAMS, WARPS, SHARE = 128, 8, 32 << 10  # at most; of a program; bytes for a program
CHUNK = 128 << 10  # bytes of a program behind which it sets its flag, so that they are taken while it sends more
LINE = 128  # bytes: where parts of programs begin
WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def send_activations(*tensors: torch.Tensor, pe: int, team: Team | None = None, slots: int = 2) -> None:
    """Send ``tensors`` to ``pe``, which receives them by recv_activations, in the order in which they are sent.

    tensors: contiguous, on the default heap's device, of any dtype. They may be changed when the stream has done the call.
    pe: counts in team.  team: None is TEAM_WORLD.
    slots: how many sends may be ahead of their receives; the next one waits for memory, on the GPU.
    Order: on torch's current stream, without the host. The first call for tensors of these shapes and dtypes to the PE at
        this distance is collective over team, together with recv_activations: each PE makes its first send or receive.
    Errors: ArgumentError, OutOfRangeError, HeapExhaustedError, UnreachableError, NotInitializedError; later a time-out.
    Spec: none.
    """
    _find("send_activations", tensors, pe, team, slots, 1).send(tensors)


def recv_activations(*tensors: torch.Tensor, pe: int, team: Team | None = None, slots: int = 2) -> Any:
    """Receive into ``tensors`` what ``pe`` sends by send_activations. Return them: a tuple, or the one tensor.

    tensors: contiguous, on the default heap's device, of the shapes and dtypes that are sent.
    pe: counts in team.  team: None is TEAM_WORLD.  slots: those of the sender.
    Order: on torch's current stream, without the host: later work on it finds the data. The first call for tensors of
        these shapes and dtypes from the PE at this distance is collective over team, as in send_activations.
    Errors: ArgumentError, OutOfRangeError, HeapExhaustedError, UnreachableError, NotInitializedError; later a time-out.
    Spec: none.
    """
    _find("recv_activations", tensors, pe, team, slots, -1).recv(tensors)
    return tensors[0] if len(tensors) == 1 else tensors


class Plan(plans.Plan):
    """A channel for each tensor, from every PE of the team to the one ``distance`` behind it."""

    def __init__(self, team: Team, distance: int, slots: int, samples: tuple[torch.Tensor, ...]) -> None:
        self.team, self.generation = team, job.generation
        wanted: Wanted = {}
        for i, each in enumerate(samples):
            kind, shares = words_of(each).dtype, Shares.of(each)
            wanted[f"slots {i}"] = (slots, lines(each.nbytes) // kind.itemsize), kind
            wanted[f"words {i}"] = (slots * shares.chunks + 1, shares.programs), torch.uint64
        self.space = Workspace(BOTH, team, wanted)
        peers = (team.me + distance) % team.size, (team.me - distance) % team.size
        self.channels = [
            Channel(team, peers, self.space[f"slots {i}"], self.space[f"words {i}"], each)
            for i, each in enumerate(samples)
        ]

    def send(self, tensors: tuple[torch.Tensor, ...]) -> None:
        for channel, each in zip(self.channels, tensors, strict=True):
            channel.send(words_of(each))

    def recv(self, tensors: tuple[torch.Tensor, ...]) -> None:
        for channel, each in zip(self.channels, tensors, strict=True):
            channel.recv(words_of(each))


class Shares(NamedTuple):
    """How programs share a tensor. each, chunk: the words of a program, and between two flags."""

    programs: int
    each: int
    chunk: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Shares:
        nbytes, width = tensor.nbytes, words_of(tensor).itemsize
        programs = max(min(-(-nbytes // SHARE), PROGRAMS), 1)
        each = lines(-(-nbytes // programs)) // width
        return cls(programs, each, max(min(each, CHUNK // width), 1))

    @property
    def chunks(self) -> int:
        return -(-self.each // self.chunk)


class Channel:
    """Slots in symmetric memory with words for each program: its chunk in a slot has come; its last data has been taken.

    Puts arrive in any order, those of earlier kernels too, so no two that may be under way have the same flag, and words of
    data that is taken count up.
    """

    def __init__(
        self, team: Team, peers: tuple[int, int], slots: torch.Tensor, words: torch.Tensor, like: torch.Tensor
    ) -> None:
        """peers: to whom this PE sends, and from whom it receives.  like: a tensor that it sends."""
        programs, each, chunk = Shares.of(like)
        sample = torch.empty(17, dtype=slots.dtype, device=device())[1:]  # kernels assume nothing about addresses
        sizes = slots.shape[1], words_of(like).numel(), each, chunk
        epochs = [torch.zeros(programs, dtype=torch.int64, device=device()) for _ in peers]
        self.send, self.recv = (
            Prepared(
                kernel, programs, (shmem.device_context(team), slots, words[:-1], words[-1], epoch, *sizes, peer), (sample,),
                {"SLOTS": slots.shape[0]}, num_warps=WARPS,
            )
            for kernel, epoch, peer in zip((send_parts, recv_parts), epochs, peers, strict=True)
        )  # fmt: skip


@triton.jit(do_not_specialize=["pe", "slots"])
def send_parts(ctx, slots, arrived, taken, epochs, pitch, count, each, chunk, pe, source, SLOTS: tl.constexpr):
    """Program p puts its part of ``source`` into the slot of this send on ``pe``, in chunks with a flag for program p there.

    slots: ``pitch`` words apart.  epochs: how often each program has sent.  taken: how often that of ``pe`` has received.
    count, each, chunk: the words of all, of a program, and between flags.  arrived: the last send of which a chunk has come,
    for each slot, chunk and program.
    """
    program = tl.cast(tl.program_id(0), tl.int64)
    epoch = tl.load(epochs + program)
    dev.signal_wait_until(ctx, taken + program, dev.CMP_GE, tl.maximum(epoch - (SLOTS - 1), 0))
    slot, chunks = slots + (epoch % SLOTS) * pitch, tl.cdiv(each, chunk)
    for i in range(chunks):
        first, number = part_of(program, i, count, each, chunk)
        flag = flag_of(arrived, program, epoch % SLOTS, chunks, i)
        dev.put_signal(ctx, slot + first, source + first, number, flag, epoch + 1, dev.SIGNAL_SET, pe)
    arch.join(ctx)  # all threads have loaded the epoch
    tl.store(epochs + program, epoch + 1)


@triton.jit(do_not_specialize=["pe", "slots"])
def recv_parts(ctx, slots, arrived, taken, epochs, pitch, count, each, chunk, pe, dest, SLOTS: tl.constexpr):
    """Program p waits for the chunks of its part, copies them to ``dest``, and says so to program p of ``pe``."""
    program = tl.cast(tl.program_id(0), tl.int64)
    epoch = tl.load(epochs + program)
    slot, chunks = slots + (epoch % SLOTS) * pitch, tl.cdiv(each, chunk)
    for i in range(chunks):
        first, number = part_of(program, i, count, each, chunk)
        dev.signal_wait_until(ctx, flag_of(arrived, program, epoch % SLOTS, chunks, i), dev.CMP_GE, epoch + 1)
        arch.copy(ctx, dest + first, slot + first, number)
    dev.signal_add(ctx, taken + program, 1, pe)  # those of several kernels come in any order
    arch.join(ctx)
    tl.store(epochs + program, epoch + 1)


@arch.jit
def flag_of(arrived, program, slot, chunks, i):
    """Return the flag of chunk ``i`` of a program in a slot."""
    return arrived + (slot * chunks + i) * tl.num_programs(0) + program


@arch.jit
def part_of(program, i, count, each, chunk):
    """Return (first, number) of the words in chunk ``i`` of a program."""
    first = program * each + i * chunk
    return first, tl.maximum(tl.minimum(tl.minimum(chunk, each - i * chunk), count - first), 0)


def words_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's memory as a row of integers as wide as its elements, at most 8 bytes."""
    return tensor.detach().view(-1).view(WORDS[min(tensor.itemsize, 8)])


def lines(nbytes: int) -> int:
    """Return the bytes in whole lines."""
    return -(-nbytes // LINE) * LINE


def _find(routine: str, tensors: tuple[Any, ...], pe: Any, team: Team | None, slots: Any, step: int) -> Plan:
    """step: 1 if this PE sends to ``pe``, -1 if it receives from it."""
    group = team_of(routine, team)
    number = integer_of(pe)
    if not is_int(number) or not 0 <= number < group.size:
        refuse(OutOfRangeError, routine, "pe", repr(pe), f"a PE from 0 to {group.size - 1} of the team")
    distance = step * (number - group.me) % group.size
    shared = (*map(_described, tensors), distance, slots)
    check = partial(_checked, routine, tensors, distance, slots)
    call = BOTH, id(group), typed(shared), routine, None
    return plan_for(call, lambda: Request(Call(BOTH, id(group), shared), group, check))[0]  # type: ignore[no-any-return]


def _described(tensor: Any) -> Any:
    """What a plan depends on of a tensor: sender and receiver must find their plan by the same calls."""
    if not isinstance(tensor, torch.Tensor):
        return type(tensor)
    return tensor.shape, tensor.dtype, tensor.is_contiguous(), tensor.device.type


def _checked(routine: str, tensors: tuple[Any, ...], distance: int, slots: Any, team: Team) -> tuple[str, Any]:
    """Check the arguments, as Request.check does."""
    if not tensors:
        refuse(ArgumentError, routine, "tensors", "none", "one or more")
    for i, each in enumerate(tensors):
        name = f"tensor {i}"
        require_array(routine, name, each, tuple(each.shape) if isinstance(each, torch.Tensor) else ())
    if not is_int(slots) or slots < 1:
        refuse(ArgumentError, routine, "slots", repr(slots), "a number, 1 or more")
    shapes = ", ".join(f"{tuple(each.shape)} in {each.dtype}" for each in tensors)
    text = f"{shapes}, to the PE {distance} behind, {slots} slots"
    return text, partial(Plan, team, distance, slots, tensors)
