"""Where kernels run: compiled for a GPU, or by Triton's interpreter, process by process, on the CPU heap.

The choice must be made before triton is imported: its own functions become one kind or the other then.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "TRITON_INTERPRET"
chosen_here = False  # this import switched the interpreter on
too_late = False  # triton was there already, with compiled functions


def choose() -> None:
    """Switch the interpreter on where there is no GPU and the user has not decided."""
    global chosen_here, too_late
    if VARIABLE in os.environ:
        return
    import torch

    if torch.cuda.is_available():
        return
    if "triton" in sys.modules:
        too_late = True
        return
    os.environ[VARIABLE] = "1"
    chosen_here = True


def active() -> bool:
    """Whether kernels defined from now on are interpreted, by Triton's own reading of the variable."""
    return os.environ.get(VARIABLE, "0").lower() in ("1", "on", "true", "y", "yes")


def require() -> None:
    """Errors: ImportError where kernels could not run: said once, when pyshmem.device is imported, not at the first call."""
    if too_late:
        raise ImportError(
            "triton was imported before pyshmem, so its functions are made for a GPU, and there is none: "
            f"import pyshmem before triton, or set {VARIABLE}=1"
        )
    if not active():
        return
    from triton.language import sum as own_function
    from triton.runtime.jit import JITFunction

    if isinstance(own_function, JITFunction):
        raise ImportError(
            f"{VARIABLE} was set after triton was imported, whose functions are made for a GPU: "
            "set it before, or import pyshmem before triton"
        )
