"""send and recv between PEs, of tensors of any size in private memory, and exchanges of blocks of uneven sizes.

Each PE has a mailbox in its heap, with a few slots for each sender. A sender puts a message into them slot by slot, and the
receiver says how many it has emptied. A message finds its recv by group, sender and tag; one that comes before its recv is
kept in private memory. Whoever waits moves all messages of this PE, and a thread does while nobody waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

import pyshmem as shmem
from pyshmem.base.errors import DtypeError, OutOfRangeError, ShmemError, refuse
from pyshmem.base.job import job
from pyshmem.diagnosis.host_timeouts import refuse_timeout
from pyshmem.distributed.works import Work
from pyshmem.host.init import listeners
from pyshmem.memory.arguments import KINDS, name_of

_DEPTH = 4  # slots for each sender
_MOST = 64 << 10  # bytes of a slot, if the mailbox stays below _ROOM
_ROOM = 32 << 20
SEND, RECV, _EARLY = "send", "recv", "early"
ANY = -1  # as the PE of a recv: any of the group
_IDLE = 1e-3  # seconds between two looks of the thread while nothing moves
_KINDS = {dtype: kind for kind, dtype in KINDS.items()}


class Line(NamedTuple):
    """Where messages belong: only those of one line meet."""

    group: int
    tag: int


class Message(Work):
    """A message under way: ``data`` are its bytes in private memory, of which ``moved`` are sent or have come."""

    def __init__(self, routine: str, tensor: torch.Tensor, line: Line, pe: int, pes: Sequence[int] = ()) -> None:
        """pe: the other world PE, for a recv perhaps ANY.  pes: those of the group."""
        super().__init__(routine, [tensor])
        self.tensor, self.line, self.pe, self.pes = tensor, line, pe, pes
        usable = is_plain(tensor) and tensor.device.type == "cpu"
        if routine == SEND:
            self.data = octets(tensor if usable else plain(tensor).cpu())
        else:
            self.data = octets(tensor if usable else torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"))
            if tensor.is_cuda:  # whoever moves the message writes it, on any stream
                torch.cuda.current_stream().synchronize()
        self.moved = 0
        self.kind = _KINDS.get(tensor.dtype, 0)  # of its elements, or of those that come
        self.sent = 0  # bytes that came for a recv of another size

    def come(self, seconds: float | None) -> bool:
        return mailbox.drive(self, seconds)

    def _source_rank(self) -> int:
        return self.pes.index(self.pe)

    def takes(self, other: Message) -> bool:
        """Return whether this recv is that of ``other``, a message that comes."""
        return self.line == other.line and self.pe in (ANY, other.pe)

    def arrive(self) -> None:
        """All bytes of this recv are in ``data``: put them into the tensor."""
        if self.data.data_ptr() != self.tensor.data_ptr():
            self.tensor.copy_(self.data.view(self.tensor.dtype).view(self.tensor.shape))
            if self.tensor.is_cuda:
                torch.cuda.current_stream().synchronize()
        self.end()


class Mailbox:
    """The mailbox of this PE, and what it sends and receives. The lock is held by whoever moves messages."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._wanted = threading.Event()  # something is under way
        self._thread: threading.Thread | None = None
        self._drivers = 0
        self._generation = 0
        self._forget(True)
        listeners.append(self._forget)

    def open(self) -> None:
        """Allocate, once for each init. Collective over all PEs."""
        if self._generation == job.generation:
            return
        n, me = job.n_pes, job.my_pe
        self._slot = max(4096, min(_MOST, _ROOM // (n * _DEPTH)) // 64 * 64)
        self._slots = shmem.zeros(n, _DEPTH, self._slot, dtype=torch.uint8, device="cpu")
        # line, bytes and kind of elements of a message that begins
        self._heads = shmem.zeros(n, _DEPTH, 4, dtype=torch.int64, device="cpu")
        words = shmem.zeros(2, n, dtype=torch.uint64, device="cpu")
        self._filled, self._emptied = words  # slots that each PE has filled here, and slots of ours that it has emptied
        self._full, self._empty = words.numpy()
        self._came, self._went = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
        self._my = self._slots[me], self._heads[me], self._filled[me : me + 1], self._emptied[me : me + 1]
        self._generation = job.generation

    def _forget(self, begun: bool) -> None:
        """The job begins, or it ends and takes the heap with it."""
        with self._lock:
            self._sends: dict[int, deque[Message]] = {}
            self._recvs: list[Message] = []
            self._coming: dict[int, Message] = {}  # what is in the middle, by its sender
            self._early: list[Message] = []  # what has come before its recv

    def leave(self, *groups: int) -> None:
        """Forget what has come for these groups, which have ended, and what they still wait for."""
        with self._lock:
            self._recvs = [each for each in self._recvs if each.line.group not in groups]
            self._early = [each for each in self._early if each.line.group not in groups]

    @torch.inference_mode()  # which may write tensors that were made in it, and others
    def post(self, message: Message) -> Message:
        """Begin a send or a recv."""
        with self._lock:
            if message.routine == SEND:
                self._sends.setdefault(message.pe, deque()).append(message)
                self._progress()
            elif early := next(filter(message.takes, self._early), None):
                self._early.remove(early)
                _hand_over(early, message)
            else:
                self._recvs.append(message)
            if not message.is_completed():
                self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pyshmem.messages", daemon=True)
                self._thread.start()
        return message

    @torch.inference_mode()
    def drive(self, message: Message, seconds: float | None) -> bool:
        """Move messages until this one has ended; return whether it has, after ``seconds`` if these are given."""
        limit, idle, begun = seconds or job.timeout, 0, time.monotonic()
        self._drivers += 1
        try:
            while not message.is_completed():
                with self._lock:
                    idle = 0 if self._progress() else idle + 1
                if not idle:
                    begun = time.monotonic()
                    continue
                if limit and time.monotonic() - begun > limit:
                    if seconds:
                        return False
                    whom = [message.pe] if message.pe >= 0 else None
                    refuse_timeout(message.routine, "pe", "no such call there", "the other half on that PE", whom)
                os.sched_yield() if idle < 100 else time.sleep(_IDLE / 20)
        finally:
            self._drivers -= 1
        return True

    @torch.inference_mode()
    def _run(self) -> None:
        while True:
            self._wanted.wait()
            with self._lock:
                if not (self._recvs or self._coming or any(self._sends.values())):
                    self._wanted.clear()
                    continue
                moved = not self._drivers and self._progress()
            if not moved:
                time.sleep(_IDLE)

    def _progress(self) -> bool:
        """Move what can be moved, and return whether something has."""
        moved = False
        for queue in self._sends.values():
            while queue and self._put(queue[0]):
                moved = True
                if queue[0].is_completed():
                    queue.popleft()
        for pe in np.flatnonzero(self._full != self._came):
            self._take(int(pe))
            moved = True
        return moved

    def _put(self, message: Message) -> bool:
        """Fill a slot, unless all are full."""
        pe = message.pe
        filled = int(self._went[pe])
        if filled - int(self._empty[pe]) >= _DEPTH:
            return False
        slots, heads, signal, _ = self._my
        total, turn = message.data.numel(), filled % _DEPTH
        if not message.moved:
            shmem.put(heads[turn], np.array([*message.line, total, message.kind], np.int64), pe)
            shmem.fence()
        chunk = message.data[message.moved : message.moved + self._slot]
        shmem.put_signal(slots[turn], chunk, pe, signal, filled + 1, shmem.SIGNAL_SET)
        self._went[pe] = filled + 1
        message.moved += chunk.numel()
        if message.moved == total:
            message.end()
        return True

    def _take(self, pe: int) -> None:
        """Empty the slots that ``pe`` has filled."""
        filled = shmem.signal_fetch(self._filled[pe : pe + 1])
        for number in range(int(self._came[pe]), filled):
            turn = number % _DEPTH
            message = self._coming.get(pe) or self._begin(pe, *self._heads[pe, turn].tolist())
            nbytes = min(self._slot, message.data.numel() - message.moved)
            message.data[message.moved : message.moved + nbytes] = self._slots[pe, turn, :nbytes]
            message.moved += nbytes
            if message.moved == message.data.numel():
                del self._coming[pe]
                self._complete(message)
        self._came[pe] = filled
        shmem.signal_set(self._my[3], filled, pe)

    def _begin(self, pe: int, group: int, tag: int, nbytes: int, kind: int) -> Message:
        """Return the recv of a message that begins, or a message to keep it in."""
        kept = Message(_EARLY, torch.empty(nbytes, dtype=torch.uint8, device="cpu"), Line(group, tag), pe)
        kept.kind = kind
        recv = next((each for each in self._recvs if each.takes(kept)), None)
        if recv is not None and recv.data.numel() == nbytes and recv.kind == kind:
            self._recvs.remove(recv)
            recv.pe, kept = pe, recv
        self._coming[pe] = kept
        return kept

    def _complete(self, message: Message) -> None:
        if message.routine != _EARLY:
            message.arrive()
        elif recv := next((each for each in self._recvs if each.takes(message)), None):
            self._recvs.remove(recv)
            _hand_over(message, recv)
        else:
            self._early.append(message)


def _hand_over(early: Message, recv: Message) -> None:
    """Give a message that came before its recv to it. A wrong size or type is its waiter's error."""
    recv.pe, recv.sent = early.pe, early.data.numel()
    try:
        _require_alike(early, recv)
    except ShmemError as error:
        recv.end(error)
        return
    recv.data.copy_(early.data)
    recv.arrive()


def _require_alike(early: Message, recv: Message) -> None:
    if recv.kind != early.kind:
        got, sent = name_of(recv.tensor.dtype), name_of(KINDS[early.kind]) if early.kind in KINDS else "another type"
        refuse(DtypeError, recv.routine, "tensor", f"{got} elements", f"the {sent} that PE {early.pe} sends")
    got, sent = recv.data.numel(), early.data.numel()
    if got != sent:
        wants = f"the {sent} bytes that PE {early.pe} sends"
        refuse(OutOfRangeError, recv.routine, "tensor", f"{got} bytes", wants)


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the memory of the tensor holds its elements one after the other."""
    if tensor.layout is not torch.strided:
        return True  # which the call refuses
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy that is_plain."""
    return tensor if is_plain(tensor) else tensor.resolve_conj().resolve_neg().contiguous()


def octets(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a contiguous tensor. A single element may have any stride."""
    if not tensor.numel():
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


mailbox = Mailbox()
