"""Events of a timeline for words that are their own flags: a store of them, and a wait until all of a range have come."""

from __future__ import annotations

import triton.language as tl

import pyshmem.device as dev
from pyshmem.device import arch
from pyshmem.device.arch import jit


@jit
def begin_store(ctx, address, epoch, pe, words, count):
    """Begin the event of storing ``count`` blocks like ``words``, from ``address`` on, on ``pe``; below 0: on none."""
    return arch.begin_write(ctx, "store", "set", address.to(tl.pointer_type(tl.int64)), epoch, pe, words, count)


@jit
def begin_wait(ctx, address, nbytes, epoch):
    """Begin the event of waiting until all words of ``nbytes`` from ``address`` on have this epoch."""
    words = address.to(tl.pointer_type(tl.int64))
    return arch.begin_waits(ctx, "wait_until_all", words, nbytes // 8, dev.CMP_GE, epoch)
