"""Says where a PE is: in which call, at which line of the program, and what it waits for. For time-outs and hangs.

A thread answers, which a signal wakes: the main thread may be inside of a wait, or of C code that does not return. In debug
mode a PE that times out asks the others, by ASK; each answers in its note, beside its heap. PYSHMEM_DUMP names a signal that
makes a PE print its stacks. The message of a kernel's wait is in kernel_timeouts.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from pyshmem.base import activity, environment
from pyshmem.base.comparisons import SIGNS
from pyshmem.base.errors import WaitTimeoutError, grouped, listed, refuse
from pyshmem.base.job import job
from pyshmem.diagnosis import ranges, tracebacks
from pyshmem.memory.cpu_heap import cpu
from pyshmem.memory.heap import AREAS_BYTES, NOTE_BYTES, heaps
from pyshmem.native import _native

ASK = signal.SIGRTMIN + 5
PATIENCE = 2.0  # seconds until a PE that does not answer is given up
_LIBRARIES = ("<frozen", *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")))
_WORD = 8
_HEAD = 2 * _WORD  # of a note: the process id, and the number of answers; the answer follows
_listening = 0  # the signal for which this process prints its stacks; -1: none, and it answers
_ENDED = "has come to the end of its program"
_PLURALS = {"is": "are", "has": "have", "does": "do"}
_dumps = ""  # the file that tells pyshmemrun the signal


def listen(dump: signal.Signals | None, mpi_rank: int) -> None:
    """Answer other PEs in debug mode, and print the stacks on signal ``dump``. Starts the thread in the first call.

    mpi_rank: in MPI's world, by which pyshmemrun knows this process.
    Only the main thread can: in another one nothing happens.
    """
    global _listening, _dumps
    _native.tell_of_waits(notice_seconds(), _tell_of_this_wait)
    if not (job.debug or dump) or threading.current_thread() is not threading.main_thread():
        return
    for number in (ASK, dump) if dump else (ASK,):
        signal.signal(number, _ignore)  # its delivery writes its number into the pipe, whatever the main thread does
    if not _listening:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=_answer, args=(reading,), name="pyshmem's listener", daemon=True).start()
    _listening = dump or -1
    _write(cpu.system, os.getpid(), 0, b"")
    folder = os.environ.get("PYSHMEM_JOB_DIR", "")
    if dump and os.path.isdir(folder):
        _dumps = os.path.join(folder, f"dumps-{mpi_rank}")
        _tell(str(int(dump)))  # pyshmemrun sends it to PEs that will not die from it


def notice_seconds() -> float:
    """Return after how many seconds this PE tells of a wait; 0 for never."""
    return float(environment.read("PYSHMEM_WAIT_NOTICE")) if job.my_pe == 0 and job.n_pes > 1 else 0.0


def _tell_of_this_wait() -> None:
    """Called once in each long wait, by the thread that waits."""
    frame = sys._getframe(1)
    tell_of_wait(_place(frame), _waits_for(frame))


def tell_of_wait(place: str, waits_for: str = "") -> None:
    """Print where this PE waits, and for what. place: such as "is in barrier_all at heat.py:12"."""
    place = place.replace("is in", f"has waited {notice_seconds():g} s in", 1)
    others = "; ".join(_explained(list(range(1, job.n_pes)), "the other PEs"))
    limit = "PYSHMEM_WAIT_NOTICE sets the seconds, 0 for never"
    sys.stderr.write(f"pyshmem: PE 0 {place}{waits_for}; {others}; {limit}\n")


def leave() -> None:
    """Answer for the last time: the program ends without finalize, and the process may still wait for others in MPI."""
    if _listening:  # Python resets its handlers, and the process would die from the signal
        for number in (ASK, _listening) if _listening > 0 else (ASK,):
            signal.signal(number, signal.SIG_IGN)
    if _dumps:
        _tell("ended")
    _, count, _ = _read(cpu.system)
    _write(cpu.system, 0, count + 1, _ENDED.encode())


def refuse_timeout(routine: str, argument: str, got: str, wants: str, pes: list[int] | None = None) -> NoReturn:
    """Report that a wait timed out, and what is known of where the PEs are that may be the reason.

    pes: world PEs, by default all others.  Errors: WaitTimeoutError.
    """
    they = "they" if pes is not None else "the other PEs"
    pes = [pe for pe in range(job.n_pes) if pe != job.my_pe] if pes is None else pes
    limit = "PYSHMEM_WAIT_TIMEOUT sets the seconds, 0 for no limit"
    where = "".join(f"; {each}" for each in _explained(pes, they))
    refuse(WaitTimeoutError, routine, argument, f"{got} in {job.timeout:g} s", f"{wants}; {limit}{where}")


def _explained(pes: list[int], they: str) -> list[str]:
    """Return where the world PEs are, such as "PEs 1 and 2 are in barrier_all at heat.py:12"; debug mode asks them."""
    known = _ask(pes) if job.debug else dict.fromkeys(_ended(pes), _ENDED)
    if pes and not known:
        return [f"SHMEM_DEBUG=1 says where {they} are"]
    return [f"{listed(group)} {_plural(said) if len(group) > 1 else said}" for said, group in grouped(known).items()]


def _plural(said: str) -> str:
    verb, _, rest = said.partition(" ")
    return f"{_PLURALS[verb]} {rest.replace('its program', 'their programs')}"


def _ended(pes: list[int]) -> list[int]:
    """Return the PEs whose program has ended without finalize."""
    return [pe for pe in pes if pe in cpu.deltas and _read(cpu.system + cpu.deltas[pe])[2] == _ENDED]


def _ask(pes: list[int]) -> dict[int, str]:
    """Return where each PE is, such as "is in wait_until at heat.py:12"."""
    before = {pe: _read(cpu.system + cpu.deltas[pe]) for pe in pes if pe in cpu.deltas}
    for pid, _, _ in before.values():
        with suppress(ProcessLookupError, PermissionError):  # it has ended: it does not answer
            if pid:  # a PE that init has called in another thread does not listen
                os.kill(pid, ASK)
    said = dict.fromkeys(_ended(pes), _ENDED)
    limit = time.monotonic() + PATIENCE
    while len(said) < len(before) and time.monotonic() < limit:
        for pe in before.keys() - said.keys():
            _, count, text = _read(cpu.system + cpu.deltas[pe])
            if count != before[pe][1]:
                said[pe] = text
        time.sleep(0.01)
    return {pe: said.get(pe, "does not answer, in C code or ended") for pe in pes}


def _tell(text: str) -> None:
    with suppress(OSError):  # the disk is full: pyshmemrun does not ask
        with open(_dumps + ".new", "w") as note:
            note.write(text)
        os.rename(_dumps + ".new", _dumps)


def site() -> str:
    """Return the line of the program that called pyshmem, as "heat.py:12"; "" in a program in C."""
    return _line(_program(sys._getframe()))


def _ignore(number: int, frame: FrameType | None) -> None:
    """The signal has done what it is for when Python calls its handler."""


def _answer(reading: int) -> None:
    while numbers := os.read(reading, 64):
        for number in set(numbers):
            if number == ASK and job.inits:
                _, count, _ = _read(cpu.system)
                _write(cpu.system, os.getpid(), count + 1, _place(_main_frame()).encode())
            elif number == _listening:
                sys.stderr.write(dump())


def dump() -> str:
    """Return where this PE is, what it waits for, and the stacks of all threads, the main one first."""
    main = _main_frame()
    lines = [f"PE {job.my_pe} {_place(main)}{_waits_for(main)}\n", *tracebacks.fold(traceback.extract_stack(main))]
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident not in (threading.main_thread().ident, threading.get_ident()):
            lines += [f"  thread {names.get(ident, ident)}:\n", *tracebacks.fold(traceback.extract_stack(frame))]
    return "".join(lines)


def _main_frame() -> FrameType | None:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frame.f_back if frame is not None and frame.f_code is _ignore.__code__ else frame


def _ours(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of pyshmem below the program's, the innermost first."""
    while frame is not None and tracebacks.is_ours(frame.f_code.co_filename):
        if frame.f_globals is not vars(ranges):
            yield frame
        frame = frame.f_back


def _program(frame: FrameType | None) -> FrameType | None:
    while frame is not None and tracebacks.is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _outside_libraries(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is not of Python's or an installed library, if there is one."""
    own = frame
    while own is not None and own.f_code.co_filename.startswith(_LIBRARIES):
        own = own.f_back
    return own or frame


def _line(frame: FrameType | None) -> str:
    return f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""


def called() -> str:
    """Return the program's call that this thread is in, such as "atomic_fetch_add"; "" if it is known by another name."""
    name = _routine(list(_ours(sys._getframe(2))))  # without the caller, which has another name for it
    return "" if name.startswith("_") else name


def where() -> str:
    """Return the call of this thread and the program's line, such as "wait_until at heat.py:12"."""
    return _place(sys._getframe()).removeprefix("is in ")


def _place(frame: FrameType | None) -> str:
    """Such as "is in wait_until at heat.py:12"; without the line in a program in C."""
    line, ours = _line(_program(frame)), list(_ours(frame))
    if not ours and (call := activity.own.where()):
        return f"is in {call}"  # of a program in C
    if not ours:
        outside = _line(_outside_libraries(frame))
        return "is in no call of pyshmem" + (f", at {outside}" if outside else "")
    errors = [each.f_locals["error"] for each in ours if isinstance(each.f_locals.get("error"), BaseException)]
    if errors and not line:
        return f"has failed: {tracebacks.origin(errors[-1])}"  # in the hook for exceptions
    return f"is in {_routine(ours)}" + (f" at {line}" if line else "")


def _routine(ours: list[FrameType]) -> str:
    """Return the name of the call of the outermost frames of pyshmem."""
    routines = [each.f_locals["routine"] for each in ours if isinstance(each.f_locals.get("routine"), str)]
    return routines[-1] if routines else ours[-1].f_code.co_name if ours else ""


def _waits_for(frame: FrameType | None) -> str:
    """The arguments of the call, and the members that have not come, such as ": ivar = int64 at heap offset 64, now 0"."""
    ours = list(_ours(frame))
    if not ours:
        return ""
    call = ours[-1]
    known = call.f_code.co_argcount if _program(frame) else 0  # those of a program in C are not
    names = [name for name in call.f_code.co_varnames[:known] if name not in ("self", "ctx")]
    told = [f"{name} = {_value(name, call.f_locals[name])}" for name in names if call.f_locals.get(name) is not None]
    for each in ours:
        meeting = each.f_locals.get("self")
        missing = each.f_locals.get("missing", getattr(meeting, "missing", None))
        if callable(missing):
            told.append(f"no call yet from {listed(missing())} of {getattr(meeting, 'name', 'its team')}")
            break
    return ": " + ", ".join(told) if told else ""


def _value(name: str, value: Any) -> str:
    """An argument in a few words. Memory of a GPU is not read: a kernel that hangs might keep it."""
    data = getattr(getattr(value, "handle", None), "data", None)
    if isinstance(data, np.ndarray) and data.size:
        return _operand(value.dtype, [int(each) for each in data.flat]) if data.dtype.kind in "iu" else str(data)[:60]
    if name == "cmp" and type(value).__name__ == "constexpr":
        return repr(SIGNS[value.value])
    address, heap = getattr(value, "data_ptr", None), heaps.get(str(getattr(value, "device", "cpu")).partition(":")[0])
    if address is None or heap is None:
        return (getattr(value, "name", None) or repr(value))[:60]
    kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    offset = address() - heap.base
    where = f"{kind} at {heap.place(offset)}" if 0 <= offset < heap.size else f"private {kind}"
    return f"{where}, now {value.flatten().tolist()}" if heap is cpu and value.numel() <= 4 else where


def _operand(dtype: Any, numbers: list[int]) -> str:
    """An operand of an interpreted kernel. dtype: Triton's."""
    shown = numbers[0] if len(numbers) == 1 else numbers[:4]
    if not dtype.is_ptr():
        return str(shown)
    element, offset = dtype.element_ty, numbers[0] - cpu.base
    if not 0 <= offset < cpu.size:
        return f"private {element}"
    where = f"{element} at {cpu.place(offset)}"
    if not element.is_int():
        return where
    word = ctypes.string_at(numbers[0], element.primitive_bitwidth // 8)
    return f"{where}, now {int.from_bytes(word, sys.byteorder, signed=str(element).startswith('int'))}"


def _read(system: int) -> tuple[int, int, str]:
    """Return (process id, number of answers, the last answer) of the PE whose areas begin at ``system``."""
    note = ctypes.string_at(system + AREAS_BYTES - NOTE_BYTES, NOTE_BYTES)
    pid, count = (int.from_bytes(note[at : at + _WORD], "little") for at in (0, _WORD))
    return pid, count, note[_HEAD:].rstrip(b"\0").decode(errors="replace")


def _write(system: int, pid: int, count: int, text: bytes) -> None:
    """Write the note of this PE, its count last."""
    start = system + AREAS_BYTES - NOTE_BYTES
    ctypes.memmove(start + _HEAD, text[: NOTE_BYTES - _HEAD].ljust(NOTE_BYTES - _HEAD, b"\0"), NOTE_BYTES - _HEAD)
    ctypes.memmove(start, pid.to_bytes(_WORD, "little"), _WORD)
    ctypes.memmove(start + _WORD, count.to_bytes(_WORD, "little"), _WORD)
