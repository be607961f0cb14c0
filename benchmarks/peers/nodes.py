"""pyshmem between two nodes: PE 0 acts on PE 1, which sleeps, computes or waits meanwhile."""

from __future__ import annotations

from benchmarks.peers.far_states import FarStates
from benchmarks.peers.pyshmem import Library as OneNode


class Library(FarStates, OneNode):
    def __init__(self) -> None:
        super().__init__()
        self.begin()
