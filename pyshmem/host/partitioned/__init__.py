"""Tensors distributed over the PEs of a team: their layouts, their parts, and what moves between parts."""

from pyshmem.host.partitioned.dtensors import from_dtensor as from_dtensor
from pyshmem.host.partitioned.layout import Layout as Layout
from pyshmem.host.partitioned.tensor import PartitionedTensor as PartitionedTensor
from pyshmem.host.partitioned.tensor import partitioned as partitioned

__all__ = ["PartitionedTensor", "from_dtensor", "partitioned"]
