"""The GPU of this PE: its architecture, how many programs run at once, and the 8-bit floats that it multiplies."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from pyshmem.base import interpreter
from pyshmem.memory.gpu.heap import gpu
from pyshmem.memory.heap import default

_OCP = (torch.float8_e4m3fn, torch.float8_e5m2)
_FNUZ = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
_EIGHT_BITS = {"interpreter": _OCP, "gfx942": _FNUZ, "gfx950": _OCP}
OLDEST_WITH_EIGHT_BITS = (8, 9)  # of NVIDIA's
COPIES_BY_ENGINE = 71400000  # the version of HIP
INTERPRETED_PROGRAMS = 1  # they run one after the other, so none may wait for a later one


class Machine(NamedTuple):
    """programs: as many as run at once.  chiplets: parts with an L2 of their own.  described: whether the GPU has TMA.

    copies: whether copy engines copy to peers. ROCm before 7.14 may use kernels for that (rocm-systems#4784).
    """

    arch: str
    programs: int
    chiplets: int
    described: bool
    copies: bool = True


def device() -> torch.device:
    """Return the device that has the heap."""
    heap = default()
    return torch.device(heap.device, heap.index)


def machine() -> Machine:
    """Return the numbers of this PE's machine."""
    if interpreter.active():
        return Machine("interpreter", INTERPRETED_PROGRAMS, 1, False)
    heap = default()
    return _of_gpu(heap.arch, heap.index)


@cache
def _of_gpu(arch: str, index: int) -> Machine:
    properties = torch.cuda.get_device_properties(index)
    described = arch == "nvidia" and properties.major >= 9
    copies = arch == "nvidia" or gpu.driver.version >= COPIES_BY_ENGINE
    return Machine(arch, properties.multi_processor_count, gpu.chiplets, described, copies)


def warps_of(threads: int) -> int:
    """Return the warps of a program of about ``threads``."""
    width = 64 if machine().arch.startswith("gfx") else 32
    return min(max(threads // width, 1), 1024 // width)


def eight_bits() -> tuple[str, tuple[torch.dtype, ...]]:
    """Return this PE's processor and the floats of 8 bits that its matrix units multiply."""
    arch = machine().arch
    if arch == "nvidia":
        capability = torch.cuda.get_device_capability()
        types = _OCP if capability >= OLDEST_WITH_EIGHT_BITS else ()
        return "sm_{}{}".format(*capability), types
    return arch, _EIGHT_BITS.get(arch, ())
