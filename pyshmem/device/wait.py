"""wait_until and test in kernels. Spec: OpenSHMEM 1.6, 9.10. All are acquires."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit
from pyshmem.device.context import DeviceContext

CMP_EQ = tl.constexpr(0)
CMP_NE = tl.constexpr(1)
CMP_GT = tl.constexpr(2)
CMP_GE = tl.constexpr(3)
CMP_LT = tl.constexpr(4)
CMP_LE = tl.constexpr(5)


@jit
def wait_until(ctx: DeviceContext, ivar: tl.tensor, cmp: tl.tensor, value: tl.tensor) -> None:
    """Wait until the word at ``ivar`` here compares so with ``value``. The whole program waits.

    ivar: one symmetric pointer to int32, int64, uint32 or uint64, compared with its signedness.  cmp: CMP_EQ ... CMP_LE.
    Order: an acquire: what its writer ordered before the word is readable after.
    Errors: address, pointee, a wait over PYSHMEM_WAIT_TIMEOUT.  Spec: 9.10 SHMEM_WAIT_UNTIL.
    """
    arch.check_one(ctx, "wait_until", "ivar", ivar, None)
    arch.wait(ctx, "wait_until", "ivar", ivar, cmp, value)


@jit
def test(ctx: DeviceContext, ivar: tl.tensor, cmp: tl.tensor, value: tl.tensor) -> tl.tensor:
    """Whether the word at ``ivar`` here compares so with ``value`` now. All else: wait_until. Spec: 9.10 SHMEM_TEST."""
    arch.check_one(ctx, "test", "ivar", ivar, None)
    return arch.test(ctx, "test", "ivar", ivar, cmp, value)
