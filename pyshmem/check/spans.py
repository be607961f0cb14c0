"""Bytes of one memory: a range, or equal ranges at equal distances, as rows and columns are."""

from __future__ import annotations

# (start, end), or (start, end, step, count): ``count`` ranges, each ``step`` behind the one before
Span = tuple[int, ...]


def parts(span: Span) -> list[tuple[int, int]]:
    """The ranges of a span; one if they overlap."""
    if len(span) == 2:
        return [(span[0], span[1])]
    start, end, step, count = span
    if abs(step) < end - start:
        return [bounds(span)]
    return [(start + i * step, end + i * step) for i in range(count)]


def bounds(span: Span) -> tuple[int, int]:
    """The first byte of a span and the one behind its last."""
    if len(span) == 2:
        return span[0], span[1]
    start, end, step, count = span
    return min(start, start + (count - 1) * step), max(end, end + (count - 1) * step)


def overlap(first: Span, second: Span) -> tuple[int, int] | None:
    """The first bytes of both, unless they are the same."""
    (start, end), (begin, stop) = bounds(first), bounds(second)
    if first == second or start >= stop or begin >= end:
        return None
    left, right = sorted(parts(first)), sorted(parts(second))
    while left and right:
        start, stop = max(left[-1][0], right[-1][0]), min(left[-1][1], right[-1][1])
        if start < stop:
            return start, stop
        (left if left[-1][0] > right[-1][0] else right).pop()
    return None
