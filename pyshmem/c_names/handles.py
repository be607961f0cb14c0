"""C's structs, and the values of its constants and predefined handles."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyshmem
from pyshmem.c_names.constants import CONSTANTS, Api
from pyshmem.c_names.waits import SIZE_MAX
from pyshmem.host.contexts import Ctx
from pyshmem.host.teams import Team


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
    return {
        **{
            name: attrgetter(value.path)(pyshmem) if isinstance(value, Api) else value
            for name, value in CONSTANTS.items()
        },
        "shmem_team_t": Team,
        "shmem_ctx_t": Ctx,
        "shmem_team_config_t": shmem_team_config_t,
        "shmem_ctx_session_config_t": shmem_ctx_session_config_t,
    }
