"""What `pyshmem doctor` examines with the driver alone: every way in which processes can map each other's GPU memory.

A step that fails on one PE fails on all of them, so that the others can be examined.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyshmem.memory import descriptors
from pyshmem.memory.gpu.driver import COARSE, EXTENDED, FINE, PINNED, UNCACHED, Driver, DriverError
from pyshmem.memory.gpu.mapping import FIRST_UNCACHED_HIP, MOST_PIECES, IpcMapping, VmmMapping

from .findings import Finding, gathered

if TYPE_CHECKING:
    from pyshmem.base.bootstrap import Comm

BYTES = 2 << 20
_MAPPINGS: dict[str, tuple[str, int]] = {  # of each vendor: method and kind
    "cuda virtual memory": ("vmm", PINNED),
    "cuda IPC": ("ipc", COARSE),
    "hip virtual memory, coarse": ("vmm", PINNED),
    "hip virtual memory, uncached": ("vmm", UNCACHED),
    "hip IPC, coarse": ("ipc", COARSE),
    "hip IPC, fine": ("ipc", FINE),
    "hip IPC, uncached": ("ipc", EXTENDED),
}
_INSTEAD = {"vmm": "PYSHMEM_PEER_MAP=ipc", "ipc": "PYSHMEM_PEER_MAP=vmm"}


def examine(driver: Driver, world: Comm) -> Iterator[Finding]:
    """Yield what is found, the same on all PEs. Collective over ``world``, whose PEs are of one node."""
    yield _descriptors(driver, world)
    yield _errors(driver, world, "last error at the start")
    able = all(world.allgather(driver.has_virtual_memory()))
    for name, (way, kind) in _MAPPINGS.items():
        vendor, _, what = name.partition(" ")
        if vendor != driver.vendor:
            continue
        if way == "vmm" and not able:
            yield Finding(what, "", "", "a driver says that it has none: init takes IPC")
            continue
        if kind == UNCACHED and driver.version < FIRST_UNCACHED_HIP:
            yield Finding(what, "", "", f"not in HIP {driver.version}: from ROCm 7.14")
            continue
        map_memory: Callable[[], VmmMapping | IpcMapping] = partial(_ipc, driver, world, kind)
        if way == "vmm":
            map_memory = partial(_vmm, driver, world, kind)
        yield _gathered(world, what, _INSTEAD[way], partial(_exchange, driver, world, map_memory))
        yield _errors(driver, world, f"last error after {what}")


def _gathered(world: Comm, check: str, advice: str, examine_here: Callable[[], str]) -> Finding:
    """Examine on all PEs, and return what those with a fault say."""
    try:
        fault = examine_here()
    except (DriverError, OSError) as error:
        fault = str(error)
    return gathered(world, check, advice, fault)


def _vmm(driver: Driver, world: Comm, kind: int) -> VmmMapping:
    """A heap that has grown, as access to the new bytes was wrong in some versions of ROCm."""
    mapping = VmmMapping(driver, world, world, 2 * BYTES, kind)
    try:
        while mapping.most:
            mapping.grow(BYTES, 0)
    except (DriverError, OSError):
        mapping.close()
        raise
    return mapping


def _ipc(driver: Driver, world: Comm, kind: int) -> IpcMapping:
    return IpcMapping(driver, world, world, BYTES, kind, 0)


def _exchange(driver: Driver, world: Comm, map_memory: Callable[[], VmmMapping | IpcMapping]) -> str:
    """Copy a word to the end of each PE's memory and read it there, and read a word of each PE. Return what is wrong."""
    mapping = map_memory()
    try:
        last = mapping.size - 8 * world.size
        faults = [_put_all(driver, world, mapping, last)]
        world.Barrier()
        for pe in range(world.size):
            at = last + 8 * pe
            faults.append(_differs("there is", _word(driver, mapping.base + at), _value(pe, world.rank), pe))
            faults.append(_differs("here reads", _word(driver, mapping.starts[pe] + at), _value(pe, pe), pe))
        world.Barrier()
        return next(filter(None, faults), "")
    finally:
        mapping.close()


def _put_all(driver: Driver, world: Comm, mapping: VmmMapping | IpcMapping, last: int) -> str:
    fault = ""
    try:
        for pe, start in enumerate(mapping.starts):
            word = ctypes.c_uint64(_value(world.rank, pe))
            driver.copy(start + last + 8 * world.rank, ctypes.addressof(word), 8, 0)
            driver.synchronize(0)
    except DriverError as error:
        fault = f"a copy to PE {pe}: {error}"
    return fault


def _word(driver: Driver, address: int) -> int | str:
    word = ctypes.c_uint64()
    try:
        driver.copy(ctypes.addressof(word), address, 8, 0)
        driver.synchronize(0)
    except DriverError as error:
        return str(error)
    return word.value


def _value(source: int, target: int) -> int:
    return 1_000_000 + 1000 * source + target


def _differs(where: str, got: int | str, wanted: int, pe: int) -> str:
    return "" if got == wanted else f"a word of PE {pe} {where} {got}; expected {wanted}"


def _errors(driver: Driver, world: Comm, check: str) -> Finding:
    """Whether the driver keeps an error of an earlier call, which torch would report after its next launch."""
    code = driver.kept_error()
    advice = "report this; until then call torch.cuda.synchronize() after shmem.init()"
    return gathered(world, check, advice, f"error {code} is kept" if code else "")


def _descriptors(driver: Driver, world: Comm) -> Finding:
    """Whether a heap of the whole GPU may have a descriptor for each piece of each PE."""
    descriptors.raise_limit()
    limit, used = resource.getrlimit(resource.RLIMIT_NOFILE)[0], len(os.listdir("/proc/self/fd"))
    needed = max(world.allgather(used + (MOST_PIECES * world.size if driver.vendor == "hip" else 64)))
    text = "" if limit >= needed else f"{used} open files, limit {limit}; expected {needed}"
    advice = f"raise the hard limit of open files (ulimit -Hn {needed}, or nofile in limits.conf)"
    return gathered(world, "descriptors", advice, text, f"{used} open files, limit {limit}")
