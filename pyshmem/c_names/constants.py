"""C's constants and predefined handles: the values, and the names that the Python API has for what it defines."""

from __future__ import annotations

from typing import NamedTuple

from pyshmem.version import OPENSHMEM, __version__

SYNC_VALUE, SYNC_SIZE = 0, 3
NUM_CONTEXTS, TOTAL_OPS = 1, 1  # bits of the two config masks
_MAJOR, _MINOR = OPENSHMEM


class Api(NamedTuple):
    """A value of the Python API: its name in pyshmem, and its type."""

    path: str
    kind: str = "int"


_BOTH: dict[str, int | str | Api] = {  # these also have a form with an underscore, from OpenSHMEM 1.0
    "SYNC_VALUE": SYNC_VALUE,
    **{f"{each}_SYNC_SIZE": SYNC_SIZE for each in ("BCAST", "REDUCE", "BARRIER", "COLLECT")},
    "REDUCE_MIN_WRKDATA_SIZE": 1,
    "MAJOR_VERSION": _MAJOR,
    "MINOR_VERSION": _MINOR,
    "MAX_NAME_LEN": 256,
    "VENDOR_STRING": f"pyshmem {__version__}",
    **{f"CMP_{each}": Api(f"CMP.{each}") for each in ("EQ", "NE", "GT", "GE", "LT", "LE")},
}
CONSTANTS: dict[str, int | str | Api] = {
    **{f"SHMEM_{each}": Api(each, "Team") for each in ("TEAM_WORLD", "TEAM_SHARED", "TEAM_INVALID")},
    **{f"SHMEM_{each}": Api(each, "Ctx") for each in ("CTX_DEFAULT", "CTX_INVALID")},
    **{f"SHMEM_THREAD_{each}": Api(f"THREAD.{each}") for each in ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")},
    **{f"SHMEM_SIGNAL_{each}": Api(f"SIGNAL.{each}") for each in ("SET", "ADD")},
    **{f"SHMEM_CTX_{each}": Api(f"CTX.{each}") for each in ("SERIALIZED", "PRIVATE", "NOSTORE")},
    "SHMEM_TEAM_NUM_CONTEXTS": NUM_CONTEXTS,
    "SHMEM_CTX_SESSION_TOTAL_OPS": TOTAL_OPS,
    "SHMEM_CTX_SESSION_BATCH": Api("SESSION.BATCH"),
    "SHMEM_MALLOC_ATOMICS_REMOTE": 1,
    "SHMEM_MALLOC_SIGNAL_REMOTE": 2,
    **{f"SHMEM_{each}": SYNC_SIZE for each in ("SYNC_SIZE", "ALLTOALL_SYNC_SIZE", "ALLTOALLS_SYNC_SIZE")},
    **{prefix + name: value for name, value in _BOTH.items() for prefix in ("SHMEM_", "_SHMEM_")},
}
