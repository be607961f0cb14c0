"""Where Triton keeps compiled kernels: on the node's own disk, if PYSHMEM_LOCAL_CACHE names a folder there."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from pyshmem.runtime import environment
from pyshmem.runtime.errors import ArgumentError, refuse

VARIABLE, TRITONS = "PYSHMEM_LOCAL_CACHE", "TRITON_CACHE_DIR"


def settle() -> None:
    """Have Triton keep its kernels in the user's own folder below PYSHMEM_LOCAL_CACHE. TRITON_CACHE_DIR wins over it.

    Triton executes what it finds there, and others may write beside it: the folder must be this user's alone.
    Errors: ArgumentError.
    """
    parent = environment.read(VARIABLE)
    if not parent or os.environ.get(TRITONS):
        return
    own = os.path.join(parent, f"pyshmem-{os.getuid()}")
    try:
        with suppress(FileExistsError):
            os.mkdir(own, 0o700)
        state = os.lstat(own)
    except OSError as error:
        wants = f"a folder of {os.uname().nodename} in which this user may create one; {error.strerror}"
        refuse(ArgumentError, "init", VARIABLE, repr(parent), wants)
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o022:
        wants = f"{own} on {os.uname().nodename} to be a folder of this user, in which nobody else may write"
        refuse(ArgumentError, "init", VARIABLE, repr(parent), wants)
    os.environ[TRITONS] = own
