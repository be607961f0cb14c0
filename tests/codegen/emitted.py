"""The tables of docs/instructions.md, made from what the compiler emits for calls of pyshmem.device.

Run: `make memory-model` writes them into the page. test_emitted.py compares.
"""

import itertools
import pathlib
import re

import pyshmem.device as dev
import triton
import triton.language as tl
from compiling import assembly, instructions, places, spans
from kernels import F32, I32, I64, U64, of

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/instructions.md"
COLUMNS = {"nvidia": "NVIDIA sm_90", "gfx90a": "AMD gfx90a", "gfx942": "AMD gfx942, gfx950"}
TWIN = "gfx950"  # has gfx942's instructions: that is checked


@triton.jit
def tile(ctx, x, y, pe):
    lane = tl.arange(0, 1024)
    dev.store(ctx, y + lane, dev.load(ctx, x + lane, pe), pe)


SEVEN = tl.constexpr(7)
SEMS = [("relaxed", "sys"), ("acquire", "sys"), ("release", "sys"), ("acq_rel", "sys"), ("acq_rel", "gpu")]
OPERATORS = {"set": (7,), "add": (7,), "compare_swap": (7, 8), "and": (7,), "or": (7,), "xor": (7,)}


def atomic(op, dtype, sem, *scope):
    behind = (sem, *scope) if op == "compare_swap" else (None, sem, *scope)  # all others take a mask
    return of(getattr(dev, f"atomic_{op}"), dtype, *map(tl.constexpr, OPERATORS[op]), 3, *map(tl.constexpr, behind))


COMPARED = (tl.constexpr(dev.CMP_GE), tl.constexpr(12345))
ADDED = of(dev.put_signal, U64, U64, tl.constexpr(0), U64, tl.constexpr(1), tl.constexpr(dev.SIGNAL_ADD), 3)
# A number is known when it is compiled, but for the PE, which is 3, and a size.
# mark in the page: its rows (what, the cases that are emitted alike, whether only the loop of wide accesses is shown)
TABLES = {
    "order": [
        ("`wait_until`, int32", [of(dev.wait_until, I32, *COMPARED)], False),
        ("`test`, int32", [of(dev.test, I32, *COMPARED)], False),
        ("`signal_set`", [of(dev.signal_set, U64, SEVEN, 3)], False),
        ("`signal_add`; `put_signal` after its copy", [of(dev.signal_add, U64, SEVEN, 3), ADDED], False),
        ("`fence`", [of(dev.fence)], False),
        ("`quiet`", [of(dev.quiet)], False),
        ("`barrier_all`, `sync_all`", [of(dev.barrier_all), of(dev.sync_all)], False),
    ],
    "data": [
        (
            "`put`, `get`, `put_signal`: the inner loop",
            [of(each, F32, F32, 1000, 3) for each in (dev.put, dev.get)],
            True,
        ),
        ("`load` of a block, `store` of it", [(tile, F32, F32, 3)], False),
        ("`p`, 4 bytes", [of(dev.p, F32, SEVEN, 3)], False),
        ("`p`, 8 bytes", [of(dev.p, I64, SEVEN, 3)], False),
        ("`g`, 4 bytes", [of(dev.g, F32, 3)], False),
    ],
    "semantics": [(f'`sem="{sem}", scope="{scope}"`', [atomic("add", I32, sem, scope)], False) for sem, scope in SEMS],
    "operators": [
        (f"`{op}`, {str(dtype)[6:]}", [atomic(op, dtype, "relaxed")], False)
        for op in OPERATORS
        for dtype in ((I32, I64, F32) if op == "add" else (I32,))
    ],
}

PTX = r"\b((?:ld|st|red|atom)\.(?!param|shared)[\w.:]+|fence\.[\w.]+|bar\.[\w.]+)"
GCN = r"((?:global|buffer)_\w+|s_barrier|s_sleep|s_waitcnt)\b(.*)"


def cell(target, case, wide):
    """The instructions of a case, one a line."""
    lines = instructions(assembly(case[0], target, *case[1:], record=False))
    if wide:
        stretches = [lines[first : last + 1] for first, last in spans(lines)]
        lines = next(each for each in stretches if len(places(each, r"\bv4\b|\.v4\.|dwordx4")) == 8)
        return listed([(found, 0) for found in (word(target, line) for line in lines) if found and is_access(found)])
    found = [(word(target, line), loop) for line, loop in zip(lines, outermost(lines), strict=True)]
    return listed(without_repeats([each for each in found if each[0] and not (each[1] and is_barrier(each[0]))]))


def outermost(lines):
    """For each line the number of the loop that it is in, 0 for none; loops that share lines are one."""
    numbers, end = [0] * len(lines), -1
    for first, last in sorted(spans(lines)):
        number = numbers[first] if first <= end else first + 1
        numbers[first : last + 1] = [number] * (last + 1 - first)
        end = max(end, last)
    return numbers


def word(target, line):
    """An instruction that moves data or orders it, without its operands; None for the others."""
    if target == "nvidia":
        found = re.search(PTX, line)
        return found and found[1]
    found = re.match(GCN, line)
    if not found or (found[1] == "s_waitcnt" and "vmcnt(0)" not in found[2]):
        return None
    return " ".join([found[1], *re.findall(r"vmcnt\(0\)|\b(?:glc|sc0|sc1|nt)\b|(?<=^ )\d+$", found[2])])


def is_access(text):
    return not re.match(r"bar|fence|s_|buffer_(wb|inv)", text)


def is_barrier(text):
    return re.match(r"s_barrier|bar\.", text)


def without_repeats(found):
    """One of several stretches that follow each other: the turns of a poll that the compiler unrolled, two barriers."""
    for size in (3, 2, 1):
        place = 0
        while place + 2 * size <= len(found):
            stretch = found[place : place + size]
            again = stretch == found[place + size : place + 2 * size]
            if again and (stretch[0][1] or not all(is_access(each[0]) for each in stretch)):
                del found[place : place + size]
            else:
                place += 1
    return found


def listed(found):
    """As the text of a cell: each in a loop has a mark, equal ones in a row are counted."""
    lines = []
    for (text, loop), same in itertools.groupby(found):
        count = len(list(same))
        lines.append(("↻ " if loop else "") + (f"{count} x " if count > 1 else "") + f"`{text}`")
    return "<br>".join(lines)


def table(name):
    """One of them, as Markdown."""
    text = (
        f"| Triton {triton.__version__} | "
        + " | ".join(COLUMNS.values())
        + " |\n"
        + "| --- " * (1 + len(COLUMNS))
        + "|\n"
    )
    for what, cases, wide in TABLES[name]:
        text += f"| {what} | " + " | ".join(alike(target, cases, wide) for target in COLUMNS) + " |\n"
    return text


def alike(target, cases, wide):
    """The one text of all cases. Errors: AssertionError where they differ, as gfx950 from gfx942."""
    targets = (target, TWIN) if target == "gfx942" else (target,)
    texts = {cell(each, case, wide) for each in targets for case in cases}
    assert len(texts) == 1, (target, cases, texts)
    return texts.pop()


def page():
    """The page, with its tables as they are now."""
    text = PAGE.read_text()
    for name in TABLES:
        begin, end = f"<!-- {name}: generated by make memory-model -->\n", "<!-- end -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{table(name)}\n{end}{rest.split(end, 1)[1]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
