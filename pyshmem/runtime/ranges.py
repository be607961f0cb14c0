"""Ranges for profilers: with PYSHMEM_NVTX=1 each call of the host API is a range of NVTX, or of ROCTx under ROCm."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any

import torch.cuda.nvtx

from pyshmem.runtime.environment import read
from pyshmem.runtime.errors import ArgumentError, refuse

nvtx: Any = torch.cuda.nvtx  # its functions have no types


def _problem() -> str:
    """Return why there are no ranges; "" if there are."""
    if not read("PYSHMEM_NVTX"):
        return "unset"
    try:
        nvtx.range_push("pyshmem")
        nvtx.range_pop()
    except RuntimeError as error:  # of a torch for CPUs
        return str(error)
    return ""


_reason = _problem()
active = not _reason


def check() -> None:
    """Errors: ArgumentError if PYSHMEM_NVTX is set and torch has no ranges."""
    if read("PYSHMEM_NVTX") and not active:
        refuse(ArgumentError, "init", "PYSHMEM_NVTX", f"1 with a torch without ranges: {_reason}", "a torch for GPUs")


def ranged(label: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``call`` in a range of this label; without PYSHMEM_NVTX ``call`` itself, which costs nothing."""
    if not active:
        return call

    @wraps(call)
    def within(*arguments: Any, **options: Any) -> Any:
        nvtx.range_push(label)
        try:
            return call(*arguments, **options)
        finally:
            nvtx.range_pop()

    return within


def put_into(namespace: Any, prefix: str = "") -> None:
    """Replace the public functions of a module or class by calls in ranges, also those of with. Does nothing if unset."""
    for name, call in list(vars(namespace).items()) if active else ():
        if isfunction(call) and (not name.startswith("_") or name in ("__enter__", "__exit__")):
            setattr(namespace, name, ranged(prefix + name, call))
