"""Draws a timeline: a lane for each PE, another one for its kernels, and arrows to the waits that they end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

from pyshmem.timelines.taxes import Arrow, Call
from pyshmem.timelines.tracks import side

matplotlib.use("Agg")
from matplotlib import pyplot

_COLOURS = {"wait": "tab:red", "meet": "tab:orange", "put": "tab:blue", "get": "tab:cyan", "atomic": "tab:purple",
            "order": "tab:olive", "kernel": "tab:green", "program": "lightgreen", "operator": "lightgrey", "call": "grey",
            "test": "pink", "request": "tab:brown", "copy": "tab:brown"}  # fmt: skip
_MOST_ARROWS = 300  # more make no picture
_HEIGHT = 0.8


def draw(calls: Sequence[Call], arrows: Sequence[Arrow], into: Path, window: tuple[float, float] | None) -> None:
    """Draw into a PNG, SVG or PDF. window: from when to when, in ms; None is all of it."""
    start, end = window or (0.0, max((each.end for each in calls), default=0.0) / 1e3)
    shown = [each for each in calls if each.end / 1e3 >= start and each.begin / 1e3 <= end]
    lanes = sorted({(each.pe, each.track % 4, each.track) for each in shown})
    places = {(pe, track): len(lanes) - number for number, (pe, _, track) in enumerate(lanes)}
    figure, axes = pyplot.subplots(figsize=(10, 0.8 + 0.5 * len(lanes)), layout="constrained")
    for kind, colour in _COLOURS.items():
        of_kind = [each for each in shown if each.kind == kind]
        for (pe, track), place in places.items():
            bars = [(each.begin / 1e3, (each.end - each.begin) / 1e3)
                    for each in of_kind if (each.pe, each.track) == (pe, track)]  # fmt: skip
            axes.broken_barh(bars, (place - _HEIGHT / 2, _HEIGHT), facecolors=colour, label="")
        if of_kind:
            axes.bar(0, 0, color=colour, label=kind)
    drawn = [each for each in arrows if start * 1e3 <= each.begun and each.ended <= end * 1e3 and not each.sends]
    for each in drawn[:_MOST_ARROWS]:
        tip = each.ended / 1e3, places[each.pe, each.track]
        tail = each.begun / 1e3, places[each.source, each.source_track]
        axes.annotate("", tip, tail, arrowprops={"arrowstyle": "->", "linewidth": 0.8})
    names = [f"PE {pe} {side(track)}" for pe, _, track in lanes]
    axes.set_yticks([places[pe, track] for pe, _, track in lanes], names)
    axes.set(xlim=(start, end), ylim=(0.4, len(lanes) + 0.6), xlabel="ms")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=8, frameon=False)
    figure.savefig(into, dpi=110)
    pyplot.close(figure)
