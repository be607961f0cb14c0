"""C's structs, constants and predefined handles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyshmem
from pyshmem.c_names.active_sets import SYNC_SIZE, SYNC_VALUE
from pyshmem.c_names.waits import SIZE_MAX
from pyshmem.host.contexts import SESSION, Ctx
from pyshmem.host.teams import Team
from pyshmem.version import OPENSHMEM

NUM_CONTEXTS, TOTAL_OPS = 1, 1  # bits of the two config masks


@dataclass
class shmem_team_config_t:
    """The configuration of a team; shmem_team_get_config returns one."""

    num_contexts: int = 0


@dataclass
class shmem_ctx_session_config_t:
    """The configuration of a session on a context."""

    total_ops: int = SIZE_MAX


def values() -> dict[str, Any]:
    """All names of the header that are not routines."""
    major, minor = OPENSHMEM
    both = {  # these also have a form with an underscore, from OpenSHMEM 1.0
        "SYNC_VALUE": SYNC_VALUE,
        **{f"{each}_SYNC_SIZE": SYNC_SIZE for each in ("BCAST", "REDUCE", "BARRIER", "COLLECT")},
        "REDUCE_MIN_WRKDATA_SIZE": 1,
        "MAJOR_VERSION": major,
        "MINOR_VERSION": minor,
        "MAX_NAME_LEN": 256,
        "VENDOR_STRING": pyshmem.info_get_name(),
        **{f"CMP_{each.name}": each for each in pyshmem.CMP},
    }
    return {
        "SHMEM_TEAM_WORLD": pyshmem.TEAM_WORLD,
        "SHMEM_TEAM_SHARED": pyshmem.TEAM_SHARED,
        "SHMEM_TEAM_INVALID": pyshmem.TEAM_INVALID,
        "SHMEM_CTX_DEFAULT": pyshmem.CTX_DEFAULT,
        "SHMEM_CTX_INVALID": pyshmem.CTX_INVALID,
        **{f"SHMEM_THREAD_{each.name}": each for each in pyshmem.THREAD},
        **{f"SHMEM_SIGNAL_{each.name}": each for each in pyshmem.SIGNAL},
        **{f"SHMEM_CTX_{each}": pyshmem.CTX[each] for each in ("SERIALIZED", "PRIVATE", "NOSTORE")},
        "SHMEM_TEAM_NUM_CONTEXTS": NUM_CONTEXTS,
        "SHMEM_CTX_SESSION_TOTAL_OPS": TOTAL_OPS,
        "SHMEM_CTX_SESSION_BATCH": SESSION.BATCH,
        "SHMEM_MALLOC_ATOMICS_REMOTE": 1,
        "SHMEM_MALLOC_SIGNAL_REMOTE": 2,
        **{f"SHMEM_{each}": SYNC_SIZE for each in ("SYNC_SIZE", "ALLTOALL_SYNC_SIZE", "ALLTOALLS_SYNC_SIZE")},
        **{prefix + name: value for name, value in both.items() for prefix in ("SHMEM_", "_SHMEM_")},
        "shmem_team_t": Team,
        "shmem_ctx_t": Ctx,
        "shmem_team_config_t": shmem_team_config_t,
        "shmem_ctx_session_config_t": shmem_ctx_session_config_t,
    }
