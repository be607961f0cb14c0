"""triton.autotune for kernels that all PEs of a team launch together: they measure together, and take one choice.

A launch of such a kernel begins with an exchange of its key, so all members know whether all of them know the choice. What
the slowest PE takes decides. Spec: none.
"""

from __future__ import annotations

import hashlib
import statistics
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.cache import get_cache_manager
from triton.runtime.driver import driver
from triton.runtime.errors import OutOfResources, PTXASError

from pyshmem.base import interpreter
from pyshmem.base.errors import ArgumentError, refuse
from pyshmem.host.allocation import is_symmetric
from pyshmem.host.teams import Team
from pyshmem.memory.gpu.heap import gpu
from pyshmem.memory.heap import default
from pyshmem.transport.near_or_far import complete

Start = Callable[[], None]
Named = dict[str, Any]

_MOST = 256  # configurations: one byte each in an exchange
_FILE = "choice"
_SPENT, _LEAST, _ENOUGH = 40.0, 3, 20  # milliseconds for a configuration, and how often it runs at least and at most


def choice(tuner: Autotuner, named: Named, options: Named, group: Team, prepared: Callable[[Config], Start]) -> Config:
    """Return the configuration that all members of ``group`` take. The first one where kernels are interpreted.

    named: all arguments of the launch by name.  options: those given by name.  prepared: compiles a configuration, and
    returns what starts it.
    Errors: ArgumentError.
    """
    clash = options.keys() & tuner.configs[0].all_kwargs().keys()
    if clash:
        refuse(ArgumentError, "launch", "options", ", ".join(sorted(clash)), "none that triton.autotune gives")
    if len(tuner.configs) == 1:
        return tuner.configs[0]
    if len(tuner.configs) > _MOST:
        refuse(ArgumentError, "launch", "kernel", f"{len(tuner.configs)} configurations", f"at most {_MOST}")
    key = b"".join(group.meeting.share("launch", _digest(tuner, named)))
    number = group.choices.get(key)
    if number is None:
        number = group.choices[key] = _found(tuner, key, named, options, group, prepared)
    return tuner.configs[number]


def _digest(tuner: Autotuner, named: Named) -> bytes:
    """Return a digest of the values of the tuner's key and of the types of arrays, which are Triton's own key."""
    values = [named[name] for name in tuner.keys if name in named]
    dtypes = [str(each.dtype) for each in named.values() if isinstance(each, torch.Tensor)]
    return hashlib.sha256(repr((tuner.base_fn.__qualname__, values, dtypes)).encode()).digest()[:8]


def _found(
    tuner: Autotuner, key: bytes, named: Named, options: Named, group: Team, prepared: Callable[[Config], Start]
) -> int:
    """The number of the choice: the first member's file has it, or all members measure it."""
    tuner.nargs = {name: value for name, value in named.items() if name not in options}
    valid = tuner.prune_configs(options)
    notes = group.meeting.share("launch", bytes(each in valid for each in tuner.configs))
    allowed = [number for number, on_pes in enumerate(zip(*notes, strict=True)) if all(on_pes)]
    if not allowed:
        refuse(ArgumentError, "launch", "kernel", "no configuration that all PEs allow", "one that is not pruned")
    if interpreter.active():
        return allowed[0]
    file = get_cache_manager(_place(tuner, key, group.size))
    path = file.get_file(_FILE) if group.me == 0 else None
    known = int(Path(path).read_text()) if path else -1
    [first, *_] = group.meeting.share("launch", struct.pack("<q", known))
    [number] = struct.unpack("<q", first)
    if number in allowed:
        return int(number)
    number = _fastest(tuner, allowed, named, group, prepared)
    if group.me == 0:
        file.put(str(number), _FILE, binary=False)
    return number


def _place(tuner: Autotuner, key: bytes, n_pes: int) -> str:
    """The name of the folder in Triton's cache: by kernel, configurations, GPU, PEs and keys."""
    kernel = tuner.fn
    while not hasattr(kernel, "cache_key"):
        kernel = kernel.fn
    parts = [kernel.cache_key, *map(str, tuner.configs), default().arch, n_pes, gpu.shared, key.hex()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _fastest(
    tuner: Autotuner, allowed: list[int], named: Named, group: Team, prepared: Callable[[Config], Start]
) -> int:
    """Measure the configurations on all members. Signals get back their values before each run, and at the end."""
    signals = [each for each in named.values() if _is_signal(each)]
    before = [each.clone() for each in signals]

    def reset() -> None:
        for each, value in zip(signals, before, strict=True):
            each.copy_(value)

    times = {}
    for number in allowed:
        config = tuner.configs[number]
        given = {**named, **config.all_kwargs()}
        times[number] = _time(tuner, config, given, group, prepared, reset)
    reset()
    tuner.pre_hook({**named, **tuner.configs[0].all_kwargs()}, reset_only=True)
    _meet(group)
    return min(times, key=times.__getitem__)


def _time(
    tuner: Autotuner, config: Config, named: Named, group: Team, prepared: Callable[[Config], Start], reset: Start
) -> float:
    """The median of a configuration's times in milliseconds, on the slowest PE; infinite if one cannot compile it."""
    try:
        start = prepared(config)
    except (OutOfResources, PTXASError, CompileTimeAssertionFailure):
        start = None
    if not all(note[0] for note in group.meeting.share("launch", bytes([start is not None]))):
        return float("inf")
    assert start is not None

    def turn() -> float:
        reset()
        if config.pre_hook:
            config.pre_hook(named)
        tuner.pre_hook(named)
        time = _once(start, group)
        tuner.post_hook(named, exception=None)
        return time

    turn()
    turns = _LEAST + int(min(_SPENT / max(_slowest(turn(), group), 1e-3), _ENOUGH - _LEAST))
    return _slowest(statistics.median(turn() for _ in range(turns)), group)


def _once(start: Start, group: Team) -> float:
    """The milliseconds of one launch on this PE, with nothing in the GPU's cache."""
    driver.active.get_empty_cache_for_benchmark().zero_()
    _meet(group)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    start()
    end.record()
    end.synchronize()
    _meet(group)
    return float(begin.elapsed_time(end))


def _slowest(time: float, group: Team) -> float:
    """The largest of all members' times."""
    notes = group.meeting.share("launch", struct.pack("<d", time))
    return float(max(struct.unpack("<d", note)[0] for note in notes))


def _meet(group: Team) -> None:
    """Wait for the kernels of all members, and what they have stored."""
    complete()
    group.meeting.sync("launch")


def _is_signal(value: Any) -> bool:
    """Return whether an argument is an array of signals: symmetric, of uint64. Trials would leave their values in it."""
    return isinstance(value, torch.Tensor) and value.dtype == torch.uint64 and is_symmetric(value)
