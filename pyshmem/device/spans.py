"""Spans of a program's own in a timeline: what a kernel does between its device calls."""

from __future__ import annotations

import triton.language as tl

from pyshmem.device import arch
from pyshmem.device.arch import jit


@jit
def trace_begin(ctx, name: tl.constexpr):
    """Begin a span of the calling program in the timeline that is recorded, if any, and return it, for trace_end.

    ctx: a device context.  name: text of 1 to 24 bytes, a constant.
    Order: it orders no memory. Spans of a program lie within each other or one after the other.
    Errors: ArgumentError for what is no device context, and for another name where a timeline is recorded.
    Spec: none.
    """
    arch.check_context(ctx, "trace_begin")
    return arch.begin_span(ctx, name)


@jit
def trace_end(ctx, span):
    """End a span of the calling program now.

    ctx: the device context that it was begun with.  span: what trace_begin has returned.
    Order: it orders no memory.
    Errors: ArgumentError for what is no device context.
    Spec: none.
    """
    arch.check_context(ctx, "trace_end")
    arch.end_event(ctx, span)
