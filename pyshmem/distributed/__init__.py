"""A backend of torch.distributed: import this, then ``dist.init_process_group("cpu:pyshmem,cuda:pyshmem")``.

Programs on torch.distributed run unchanged, started by torchrun, or by pyshmemrun or mpiexec, where RANK and its like need
not be set. A process group is a team of its own; its processes are PEs, and may use all of pyshmem beside it.

members: the team of a group.  rendezvous: how the processes find each other.  group: the ProcessGroup, a method for each
call of torch.  dispatch: calls that torch's dispatcher sees.  collectives: what they do.  messages: send and recv, and
blocks of uneven sizes.  works: calls under way.  symm_mem: torch's symmetric memory, in a symmetric heap.
"""

import torch.distributed as dist

from pyshmem.distributed.group import Group
from pyshmem.distributed.rendezvous import register

__all__ = ["Group"]

dist.Backend.register_backend("pyshmem", Group.create, extended_api=True, devices=["cpu", "cuda"])
register()
