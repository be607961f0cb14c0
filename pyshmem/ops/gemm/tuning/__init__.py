"""Which tile order a product takes: policies are measured for shapes, filters remember which of them suit which shape.

The policies are those of orders.streamed. The selection by Bloom filters follows Stream-K++ (arXiv 2408.11417).
"""

from __future__ import annotations

from pyshmem.ops.gemm.tuning.active import cached, candidates, forget, load, order_for, order_of, tune
from pyshmem.ops.gemm.tuning.record import Record
