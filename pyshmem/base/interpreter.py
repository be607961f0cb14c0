"""Chooses whether kernels are compiled for a GPU or run in Triton's interpreter, on the CPU heap.

Triton reads the choice when functions are decorated, its own when it is imported. If that was before, they are defined anew.
"""

from __future__ import annotations

import os
import sys
from typing import Any

VARIABLE = "TRITON_INTERPRET"
# of each priority, for the streams of HIP, which share them in order; 4 by default, of which the null stream holds one
HARDWARE_QUEUES = "8"
chosen_here = False  # whether this import switched the interpreter on


def choose() -> None:
    """Switch the interpreter on if there is no GPU and the user has not set the variable."""
    global chosen_here
    import torch

    if torch.version.hip:  # the runtime reads it at its first call
        os.environ.setdefault("GPU_MAX_HW_QUEUES", HARDWARE_QUEUES)
    if VARIABLE in os.environ:
        return
    if torch.cuda.is_available():
        return
    os.environ[VARIABLE] = "1"
    chosen_here = True
    if "triton" in sys.modules:
        _interpret_what_is_compiled()


def active() -> bool:
    """Return whether kernels that are defined from now on are interpreted. The variable is read as Triton reads it."""
    return os.environ.get(VARIABLE, "0").lower() in ("1", "on", "true", "y", "yes")


def prepare() -> None:
    """Let Triton's own functions be interpreted where kernels are. Called when pyshmem.device is imported."""
    if active():
        _interpret_what_is_compiled()


def _interpret_what_is_compiled() -> None:
    """Replace the compiled functions of all modules, Triton's own too, defined before the interpreter was chosen.

    Calls find functions by the names of their modules, and the methods of tl.tensor in its class. What closures, classes
    and decorators other than triton.jit hold stays compiled.
    """
    from triton import jit
    from triton.language import sum as own_function
    from triton.language import tensor
    from triton.runtime.jit import JITFunction

    if not isinstance(own_function, JITFunction):
        return
    interpreted: dict[int, Any] = {}
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name, value in list(names.items()):
            if type(value) is JITFunction:
                names[name] = interpreted.setdefault(id(value), jit(value.fn))
    for name, value in list(vars(tensor).items()):
        if type(value) is JITFunction:
            setattr(tensor, name, _method(interpreted.get(id(value)) or jit(value.fn)))


def _method(function: Any) -> Any:
    """Return the function as a method of its first argument."""
    return lambda *arguments, **named: function(*arguments, **named)
