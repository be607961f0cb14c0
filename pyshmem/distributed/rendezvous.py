"""How processes that MPI has started find each other for torch.distributed: by a store at PE 0.

init_method="pyshmem://" says so. "env://", torch's default, does the same where RANK is not set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.rendezvous import _rendezvous_handlers, register_rendezvous_handler

import pyshmem as shmem
from pyshmem.base.job import job
from pyshmem.transport.far.interfaces import offered

_by_variables = _rendezvous_handlers["env"]
Found = Iterator[tuple[Any, int, int]]


def register() -> None:
    register_rendezvous_handler("pyshmem", _by_job)
    _rendezvous_handlers["env"] = _by_environment


def _by_environment(url: str, timeout: timedelta = dist.default_pg_timeout, **options: Any) -> Found:
    given = "RANK" in os.environ or "rank=" in url
    return _by_variables(url, timeout=timeout, **options) if given else _by_job(url, timeout)


def _by_job(url: str, timeout: timedelta = dist.default_pg_timeout, **options: Any) -> Found:
    """Yield a store, the rank and the number of processes: rank i is PE i. Collective over all PEs; may call init."""
    if not shmem.query_initialized():
        shmem.init()
    assert job.comm is not None
    server, place = None, None
    if job.my_pe == 0:
        host = "127.0.0.1" if job.on_one_host else offered()[0].address
        server = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        place = host, server.port
    host, port = job.comm.bcast(place)
    store = server or dist.TCPStore(host, port, is_master=False, timeout=timeout)
    yield store, job.my_pe, job.n_pes
