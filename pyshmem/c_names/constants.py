"""C's constants and predefined handles: the values, and the names that the Python API has for what it defines."""

from __future__ import annotations

from typing import NamedTuple

from pyshmem.version import OPENSHMEM, __version__

SYNC_VALUE, SYNC_SIZE = 0, 3
NUM_CONTEXTS, TOTAL_OPS = 1, 1  # bits of the two config masks
_MAJOR, _MINOR = OPENSHMEM


class Api(NamedTuple):
    """A value of the Python API: its name in pyshmem, its value in C, and its type."""

    path: str
    c: str
    kind: str = "int"


def _numbered(c: str, path: str, names: tuple[str, ...], value: str = "{}", kind: str = "int") -> dict[str, Api]:
    """Names that are numbered in C from 0 on."""
    return {c + each: Api(path.format(each), value.format(code), kind) for code, each in enumerate(names)}


_BOTH: dict[str, int | str | Api] = {  # these also have a form with an underscore, from OpenSHMEM 1.0
    "SYNC_VALUE": SYNC_VALUE,
    **{f"{each}_SYNC_SIZE": SYNC_SIZE for each in ("BCAST", "REDUCE", "BARRIER", "COLLECT")},
    "REDUCE_MIN_WRKDATA_SIZE": 1,
    "MAJOR_VERSION": _MAJOR,
    "MINOR_VERSION": _MINOR,
    "MAX_NAME_LEN": 256,
    "VENDOR_STRING": f"pyshmem {__version__}",
    **{f"CMP_{each}": Api(f"CMP.{each}", str(code)) for code, each in enumerate(("EQ", "NE", "GT", "GE", "LT", "LE"))},
}
CONSTANTS: dict[str, int | str | Api] = {
    **_numbered("SHMEM_TEAM_", "TEAM_{}", ("INVALID", "WORLD", "SHARED"), "((shmem_team_t){})", "Team"),
    **_numbered("SHMEM_CTX_", "CTX_{}", ("INVALID", "DEFAULT"), "((shmem_ctx_t){})", "Ctx"),
    **_numbered("SHMEM_THREAD_", "THREAD.{}", ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")),
    **_numbered("SHMEM_SIGNAL_", "SIGNAL.{}", ("SET", "ADD")),
    "SHMEM_CTX_SERIALIZED": Api("CTX.SERIALIZED", "1"),
    "SHMEM_CTX_PRIVATE": Api("CTX.PRIVATE", "2"),
    "SHMEM_CTX_NOSTORE": Api("CTX.NOSTORE", "4"),
    "SHMEM_TEAM_NUM_CONTEXTS": NUM_CONTEXTS,
    "SHMEM_CTX_SESSION_TOTAL_OPS": TOTAL_OPS,
    "SHMEM_CTX_SESSION_BATCH": Api("SESSION.BATCH", "1"),
    "SHMEM_MALLOC_ATOMICS_REMOTE": 1,
    "SHMEM_MALLOC_SIGNAL_REMOTE": 2,
    **{f"SHMEM_{each}": SYNC_SIZE for each in ("SYNC_SIZE", "ALLTOALL_SYNC_SIZE", "ALLTOALLS_SYNC_SIZE")},
    **{prefix + name: value for name, value in _BOTH.items() for prefix in ("SHMEM_", "_SHMEM_")},
}
