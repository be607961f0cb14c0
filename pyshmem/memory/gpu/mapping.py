"""Maps the GPU memory of each PE into the address spaces of the other PEs, by virtual memory or by IPC handles.

Both mappings have ``base``, the address of this PE's memory, ``alignment``, a power of two that divides it on every PE,
and ``starts``, the addresses of all PEs' memory by node rank.
A step that fails on one PE fails on all PEs, and the mapping is unchanged.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple

from pyshmem.base.agreement import together
from pyshmem.base.encoding import passed
from pyshmem.memory.descriptors import Exchange, close_all, raise_limit
from pyshmem.memory.gpu.driver import COARSE, EXTENDED, FINE, PINNED, UNCACHED, Driver, DriverError

if TYPE_CHECKING:
    from pyshmem.base.bootstrap import Comm

# the first versions in which processes can share virtual memory; in which UNCACHED works
_FIRST_HIP, FIRST_UNCACHED_HIP = 70000000, 71400000
EVEN_HIP, _PIECE = 71400000, 64 << 20  # before, access requires that all pieces of a range have one size
# ROCm holds a file descriptor for each piece of each PE: no heap has more pieces, and each growth adds a quarter or more
MOST_PIECES, _LEAST_GROWTH = 256, 4
COHERENT_WHEN_CACHED = ("gfx942", "gfx950")  # a peer's write invalidates the owner's cache line there
_IPC_KINDS = {"coarse": COARSE, "fine": FINE, "uncached": EXTENDED}


@passed
class Choice(NamedTuple):
    """The method of mapping, "vmm" or "ipc", the driver's kind of memory, and the reason, for SHMEM_INFO."""

    way: str
    kind: int
    why: str


def choose(driver: Driver, arch: str, asked_way: str, asked_kind: str) -> Choice:
    """Choose by PYSHMEM_PEER_MAP (auto, vmm, ipc, none) and PYSHMEM_HIP_MEMORY (auto, coarse, fine, uncached).

    Errors: ValueError if the driver does not support them.
    """
    able = driver.has_virtual_memory()
    if driver.vendor == "cuda":
        if asked_way == "vmm" and not able:
            raise ValueError("the driver has no virtual memory that other processes can map")
        if asked_way == "ipc" or not able:
            return Choice("ipc", COARSE, "requested" if asked_way == "ipc" else "no shareable virtual memory")
        return Choice("vmm", PINNED, "requested" if asked_way == "vmm" else "the driver supports it")
    shared, uncached = (able and driver.version >= least for least in (_FIRST_HIP, FIRST_UNCACHED_HIP))
    cached_is_right = arch.split(":")[0] in COHERENT_WHEN_CACHED
    kind = asked_kind if asked_kind != "auto" else "coarse" if cached_is_right and shared else "uncached"
    fits_vmm = shared and (kind == "coarse" or (kind == "uncached" and uncached))
    if asked_way == "vmm" and not fits_vmm:
        raise ValueError(
            f"{kind} virtual memory: from ROCm 7.0 coarse, from 7.14 uncached; this is HIP {driver.version}"
        )

    if fits_vmm and asked_way != "ipc":
        return Choice("vmm", UNCACHED if kind == "uncached" else PINNED, f"{arch}: {kind}, HIP {driver.version}")
    return Choice("ipc", _IPC_KINDS[kind], f"{arch}: {kind}, HIP {driver.version}")


def _round_up(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


class VmmMapping:
    """An address range for the node, with ``stride`` bytes for each PE. ``grow`` fills each part from its beginning."""

    def __init__(self, driver: Driver, world: Comm, node: Comm, cap: int, kind: int) -> None:
        """Reserve the range. Collective over ``world``. Errors: DriverError or OSError, on all PEs.

        cap: the most bytes of a PE.
        """
        self._driver, self._world, self._node, self._kind = driver, world, node, kind
        raise_limit()
        self._chunks: list[tuple[int, int, int]] = []  # address, bytes, handle
        self.size = self._range = 0
        self._exchange = Exchange(node)
        granularity = 0
        try:
            with together(world):
                granularity = driver.granularity(kind)
            granularity, cap = (max(world.allgather(number)) for number in (granularity, cap))
            self._even = driver.vendor == "hip" and driver.version < EVEN_HIP
            piece = min(max(_PIECE, cap // MOST_PIECES), cap)
            self.unit = _round_up(piece, granularity) if self._even else granularity
            self.stride = _round_up(cap, self.unit)
            self.alignment = 1 << (self.stride - 1).bit_length()
            self._bytes = self.stride * node.size + self.alignment
            with together(world):
                self._range = driver.reserve(self._bytes, granularity)
        except (DriverError, OSError):
            self.close()
            raise
        self.base = _round_up(self._range + node.rank * self.stride, self.alignment)
        self.starts = [self.base + (rank - node.rank) * self.stride for rank in range(node.size)]

    @property
    def most(self) -> int:
        """The number of bytes that can still be added."""
        return int(self.stride - self.size)

    def grow(self, nbytes: int, stream: int) -> int:
        """Add at least ``nbytes`` of zeroed memory on every PE, and return the bytes added. Collective over ``world``.

        Errors: DriverError or OSError, on all PEs; the mapping is unchanged.
        """
        more = self.size // _LEAST_GROWTH if self._driver.vendor == "hip" else 0
        if more > nbytes:
            with suppress(DriverError, OSError):  # on all PEs; there may be enough memory for what was asked for
                return self._grow(more, stream)
        return self._grow(nbytes, stream)

    def _grow(self, nbytes: int, stream: int) -> int:
        nbytes = min(_round_up(nbytes, self.unit), self.most)
        piece = self.unit if self._even else nbytes
        added: list[tuple[int, int, int]] = []
        with ExitStack() as undo:
            for offset in range(self.size, self.size + nbytes, piece):
                added += self._add(offset, piece, stream, undo)
            undo.pop_all()
        self._chunks += added
        self.size += nbytes
        return nbytes

    def _add(self, offset: int, nbytes: int, stream: int, undo: ExitStack) -> list[tuple[int, int, int]]:
        """Add a piece of memory on every PE, and map it at ``offset`` of the PE's part."""
        own, fd, theirs = 0, -1, [-1]
        with ExitStack() as fds:
            with together(self._world):
                own = self._driver.create(nbytes, self._kind)
                undo.callback(self._driver.release, own)
                fd = self._driver.export(own)
                fds.callback(close_all, [fd])
            with together(self._world):
                theirs = self._exchange.swap(fd)
                fds.callback(close_all, theirs)
            added, mine = [], self._node.rank
            others = [rank for rank in range(self._node.size) if rank != mine]
            # The owner comes last: ROCm makes its access stale when a peer imports the memory later (rocm-systems#9908).
            for ranks in (others, [mine]):
                with together(self._world):
                    for rank in ranks:
                        added.append(self._place(self.starts[rank] + offset, nbytes, own, theirs[rank], undo))
                    if mine in ranks:
                        self._driver.clear(self.base + offset, nbytes, stream)  # HIP does not clear memory
                        self._driver.synchronize(stream)
        return added

    def _place(self, address: int, nbytes: int, own: int, fd: int, undo: ExitStack) -> tuple[int, int, int]:
        """Map the chunk of one PE: this PE's own if there is no descriptor."""
        handle = own
        if fd >= 0:
            handle = self._driver.import_(fd)
            undo.callback(self._driver.release, handle)
        self._driver.map(address, nbytes, handle)
        undo.callback(self._driver.unmap, address, nbytes)
        self._driver.allow(address, nbytes)
        return address, nbytes, handle

    def close(self) -> None:
        """Unmap and release all memory. A barrier before the call ensures that no PE accesses it any more."""
        with ExitStack() as every:  # if a call fails, the others are still made
            if self._range:
                every.callback(self._driver.unreserve, self._range, self._bytes)
            for address, nbytes, handle in self._chunks:
                every.callback(self._driver.release, handle)
                every.callback(self._driver.unmap, address, nbytes)
            self._chunks.clear()
            self._range = self.size = 0


class IpcMapping:
    """One allocation for each PE, which cannot grow."""

    def __init__(self, driver: Driver, world: Comm, node: Comm, nbytes: int, kind: int, stream: int) -> None:
        """Allocate and map. Collective over ``world``. Errors: DriverError or OSError, on all PEs."""
        self._driver, self._node = driver, node
        self.stride, self.size, self.most = 0, nbytes, 0
        self.base = 0
        self.starts: list[int] = []
        self._opened: list[int] = []
        try:
            with together(world):
                self.base = driver.allocate(nbytes, kind)
                driver.clear(self.base, nbytes, stream)
                driver.synchronize(stream)
                mine = driver.bus_id(), driver.ipc_get(self.base)
            every = node.allgather(mine)
            with together(world):
                for rank, (bus_id, handle) in enumerate(every):
                    self.starts.append(self.base if rank == node.rank else self._open(bus_id, handle))
            self.alignment = min(base & -base for base in world.allgather(self.base))
        except (DriverError, OSError):
            self.close()
            raise

    def _open(self, bus_id: str, handle: bytes) -> int:
        self._driver.enable_access(bus_id)
        address = self._driver.ipc_open(handle)
        self._opened.append(address)
        return address

    def close(self) -> None:
        """Close the handles of the other PEs, then free this PE's memory.

        A barrier stands between: on ROCm, exported memory leaks if it is freed while another process has it open.
        """
        with ExitStack() as every:  # if a call fails, the others are still made
            if self.base:
                every.callback(self._driver.free, self.base)
            every.callback(self._node.Barrier)
            for address in self._opened:
                every.callback(self._driver.ipc_close, address)
            self._opened.clear()
            self.base = 0
