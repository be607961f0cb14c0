"""Draws where the time of each PE went, and how long the program would take without each part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

from pyshmem.timelines.taxes import PARTS, Taxes

matplotlib.use("Agg")
from matplotlib import pyplot

# what waits is red, as in the picture of a timeline
_COLOURS = dict(
    zip(PARTS, ("lightgreen", "tab:grey", "gold", "tab:red", "tab:orange", "tab:blue", "lightgrey"), strict=True)
)


def draw(taxes: Taxes, saved: dict[str, float], shown: Sequence[str], into: Path) -> None:
    """Draw into a PNG, SVG or PDF: a bar for each PE with its parts, and one for the program without each part.

    saved: microseconds by part. shown: the parts that take time.
    """
    whole = max(taxes.whole.values())
    pes = [f"PE {pe}" for pe in taxes.whole]
    figure, axes = pyplot.subplots(figsize=(10, 1.0 + 0.35 * (len(pes) + len(shown))), layout="constrained")
    for part in shown:
        left = [sum(parts[each] for each in PARTS[: PARTS.index(part)]) / 1e3 for parts in taxes.parts.values()]
        width = [parts[part] / 1e3 for parts in taxes.parts.values()]
        axes.barh(pes, width, left=left, color=_COLOURS[part], label=part)
        if part not in saved:
            continue
        remains = (whole - saved[part]) / 1e3
        (bar,) = axes.barh(f"without {part}", remains, color="white", edgecolor=_COLOURS[part], linewidth=2)
        text = f"  {remains:.4g} ms, {100 * saved[part] / whole:.0f}% saved"
        axes.text(0, bar.get_y() + bar.get_height() / 2, text, verticalalignment="center")
    axes.axvline(whole / 1e3, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(shown), frameon=False)
    figure.savefig(into, dpi=110)
    pyplot.close(figure)
