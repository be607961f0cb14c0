"""Device grids: the programs of all PEs as one grid, of which each PE runs those whose tiles it owns."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.partitioned import PartitionedTensor
from pyshmem.host.partitioned.layout import Cut
from pyshmem.host.teams import Team


class Grid(NamedTuple):
    """What shmem.grid returns.

    programs: an int or up to three, or a function of the kernel's arguments by name that returns them.
    partition: the tensor whose tiles the programs make, or None: then every PE runs all programs.
    known: this PE's programs of those that were asked for.
    """

    programs: Any
    partition: PartitionedTensor | None
    known: dict[tuple[int, ...], tuple[int, ...]]

    @property
    def team(self) -> Team | None:
        """The team of the partition."""
        return None if self.partition is None else self.partition.team

    def own(self, programs: tuple[int, ...]) -> tuple[int, ...]:
        """Return this PE's programs along each axis. Errors: ArgumentError."""
        if self.partition is None:
            return programs
        found = self.known.get(programs)
        if found is None:
            found = self.known[programs] = own_programs(self.partition, programs)
        return found


def grid(programs: Any, partition: PartitionedTensor | None) -> Grid:
    """See shmem.grid."""
    if not isinstance(partition, PartitionedTensor | None):
        refuse(ArgumentError, "grid", "partition", type(partition).__name__, "a PartitionedTensor, or None")
    return Grid(programs, partition, {})


def own_programs(partition: PartitionedTensor, programs: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many programs of a grid this PE runs along each axis: those of the tiles that it owns.

    Errors: ArgumentError if the grid is not one of tiles that each lie in one block.
    """
    layout = partition.layout
    for dim, cut in enumerate(layout.cuts):
        if dim >= len(programs) and cut.n_pes > 1:
            wants = f"a count for dimension {dim} too, which is distributed"
            refuse(ArgumentError, "grid", "programs", repr(programs), wants)
    places = (*layout.owners(partition.team.me), 0, 0)
    cuts = (*layout.cuts, None, None)
    return tuple(_own(cuts[axis], places[axis], count, axis) for axis, count in enumerate(programs))


def _own(cut: Cut | None, place: int, programs: int, axis: int) -> int:
    """The programs of ``place`` along one axis; ``cut`` is None for an axis beyond the tensor's dimensions."""
    if cut is None or cut.n_pes == 1:
        return programs
    tile = next((each for each in range(1, cut.block + 1) if _fits(cut, each, programs)), None)
    if tile is None:
        got = f"{programs} programs along axis {axis}"
        wants = f"{cut.extent} indices, divided by the extent of a tile that divides blocks of {cut.block}"
        refuse(ArgumentError, "grid", "programs", got, wants)
    blocks, rest = divmod(cut.n_local(place), cut.block)
    return blocks * (cut.block // tile) + -(-rest // tile)


def _fits(cut: Cut, tile: int, programs: int) -> bool:
    """Whether tiles of this extent divide the blocks and are as many. If several do, all tiles are of one block."""
    return cut.block % tile == 0 and -(-cut.extent // tile) == programs
