"""Where Triton keeps compiled kernels: on the node's own disk, if PYSHMEM_LOCAL_CACHE names a folder there."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from pyshmem.base import environment
from pyshmem.base.errors import ArgumentError, refuse

VARIABLE, TRITONS = "PYSHMEM_LOCAL_CACHE", "TRITON_CACHE_DIR"
_NOBODY = 65534  # as the kernel names users that a namespace does not have


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
    if open_to := _replaceable(parent):
        wants = f"a folder that no other user of {os.uname().nodename} may replace, as {open_to} can be"
        refuse(ArgumentError, "init", VARIABLE, repr(parent), wants)
    os.environ[TRITONS] = own


def _replaceable(folder: str) -> str:
    """Return the first of a folder and those above in which another user may put something in place of what is there.

    In a sticky folder, as /tmp, each user moves only what is theirs. Root's are seen as of nobody in some containers.
    """
    trusted = {0, os.getuid(), _NOBODY}
    folder = os.path.realpath(folder)
    while True:
        state = os.stat(folder)
        if state.st_uid not in trusted or (state.st_mode & 0o022 and not state.st_mode & stat.S_ISVTX):
            return folder
        if folder == os.path.dirname(folder):
            return ""
        folder = os.path.dirname(folder)
