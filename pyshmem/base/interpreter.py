"""Chooses whether kernels are compiled for a GPU or run in Triton's interpreter, on the CPU heap.

The choice must be made before triton is imported, because triton then defines its own functions for one or the other.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "TRITON_INTERPRET"
# of each priority, for the streams of HIP, which share them in order; 4 by default, of which the null stream holds one
HARDWARE_QUEUES = "8"
chosen_here = False  # whether this import switched the interpreter on
too_late = False  # whether triton was imported before, with compiled functions


def choose() -> None:
    """Switch the interpreter on if there is no GPU and the user has not set the variable."""
    global chosen_here, too_late
    import torch

    if torch.version.hip:  # the runtime reads it at its first call
        os.environ.setdefault("GPU_MAX_HW_QUEUES", HARDWARE_QUEUES)
    if VARIABLE in os.environ:
        return
    if torch.cuda.is_available():
        return
    if "triton" in sys.modules:
        too_late = True
        return
    os.environ[VARIABLE] = "1"
    chosen_here = True


def active() -> bool:
    """Return whether kernels that are defined from now on are interpreted. The variable is read as Triton reads it."""
    return os.environ.get(VARIABLE, "0").lower() in ("1", "on", "true", "y", "yes")


def require() -> None:
    """Errors: ImportError if kernels cannot run. Called when pyshmem.device is imported, not at the first kernel."""
    if too_late:
        raise ImportError(
            "triton was imported before pyshmem, so its functions are compiled for a GPU, and there is no GPU: "
            f"import pyshmem before triton, or set {VARIABLE}=1"
        )
    if not active():
        return
    from triton.language import sum as own_function
    from triton.runtime.jit import JITFunction

    if isinstance(own_function, JITFunction):
        raise ImportError(
            f"{VARIABLE} was set after triton was imported, so triton's functions are compiled for a GPU: "
            "set it before that, or import pyshmem before triton"
        )
