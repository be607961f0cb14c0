"""Timelines: when a GPU multiplied, sent and waited in one call of an operator, by each schedule.

Run: python -m benchmarks.timeline FILE.json PICTURE.png draws what benchmarks.ops --timeline FILE.json has written, perhaps
on a machine without matplotlib. A band for each stream; colours tell what a kernel or a copy is for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

Span = tuple[str, int, float, float]  # name, stream, start, end in microseconds
# kind: colour, and parts of the names of its kernels and copies. The library's products have names of their own: the rest.
KINDS = {
    "product that sends": ("tab:purple", ("multiply_and", "multiply_or", "and_multiply")),
    "copy engine": ("tab:orange", ("memcpy",)),
    "kernel that sends or adds": (
        "tab:green",
        ("send_and_meet", "scatter_and_meet", "add_parts", "reduce", "copy_kernel"),
    ),
    "wait for other PEs": ("tab:red", ("begin_call", "await_flag", "barrier")),
    "product": ("tab:blue", ()),
}


def kind_of(name: str) -> str:
    """Return the kind of a kernel or a copy."""
    return next((kind for kind, (_, parts) in KINDS.items() if any(part in name.lower() for part in parts)), "product")


def write(title: str, spans: Mapping[str, Sequence[Span]], path: Path) -> Path:
    """Write the spans by schedule: JSON if that is the file's ending, or a picture with a band for each stream."""
    if path.suffix == ".json":
        path.write_text(json.dumps({"title": title, "spans": spans}))
        return path
    from matplotlib.patches import Patch

    from benchmarks.plots import pyplot, save

    lines = [(name, stream) for name, each in spans.items() for stream in sorted({span[1] for span in each})]
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.4 * len(lines)), layout="constrained")
    for height, (name, stream) in enumerate(reversed(lines)):
        here = [span for span in spans[name] if span[1] == stream]
        colours = [KINDS[kind_of(what)][0] for what, *_ in here]
        axes.broken_barh([(start, end - start) for _, _, start, end in here], (height - 0.4, 0.8), facecolors=colours)
    axes.set_yticks(range(len(lines)), [f"{name}, stream {stream}" for name, stream in reversed(lines)])
    axes.set_xlabel("µs")
    axes.set_title(title)
    patches = [Patch(color=colour, label=kind) for kind, (colour, _) in KINDS.items()]
    figure.legend(handles=patches, fontsize="small", ncols=len(patches), loc="outside lower center")
    return save(figure, path)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print("benchmarks: wants python -m benchmarks.timeline FILE.json PICTURE.png", file=sys.stderr)
        return 1
    found = json.loads(Path(arguments[0]).read_text())
    print("drawn:", write(found["title"], found["spans"], Path(arguments[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
