"""The ring in GPU memory into which compiled kernels write the events of a timeline: see pyshmem.device.arch.gpu.events.

pyshmem.timelines opens, reads and closes it. A device context that is made while the ring is open has its address. An object
that keeps device contexts for later launches is one of ``holders``: it replaces them when the ring opens and when it closes.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import torch

EVENT_BYTES = 64  # of event_t of trace/file.h; the word that counts the events has as many before them


class EventRing:
    """There is one per process, named ``ring``. Its memory stays: a kernel may still have the address of a closed one."""

    def __init__(self) -> None:
        self.memory: torch.Tensor | None = None
        self.is_open = False
        self.holders: WeakSet[Any] = WeakSet()  # their rebind() replaces the device contexts that they keep

    def open(self, room: int, device: str) -> None:
        """Record from now on, at most ``room`` events; as many as before if there has been a ring."""
        if self.memory is None:
            self.memory = torch.empty((room + 1, EVENT_BYTES), dtype=torch.uint8, device=device)
        self.memory.zero_()
        self._set(True)

    @property
    def address(self) -> int:
        return self.memory.data_ptr() if self.memory is not None and self.is_open else 0

    @property
    def room(self) -> int:
        return self.memory.shape[0] - 1 if self.memory is not None and self.is_open else 0

    def close(self) -> tuple[bytes, int]:
        """Record no more. Returns: the events, and how many were lost. The kernels have ended."""
        assert self.memory is not None
        taken, room = int(self.memory[0].view(torch.int64)[0]), self.room
        self._set(False)
        kept = min(taken, room)
        return self.memory[1 : kept + 1].cpu().numpy().tobytes(), taken - kept

    def _set(self, is_open: bool) -> None:
        self.is_open = is_open
        for each in list(self.holders):
            each.rebind()


ring = EventRing()
