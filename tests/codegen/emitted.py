"""The tables of docs/memory-model.md, made from what the compiler emits for calls of pyshmem.device.

Run: `make memory-model` writes them into the page. test_emitted.py compares.
"""

import itertools
import pathlib
import re

import pyshmem.device as dev
import torch
import triton
import triton.language as tl
from compiling import assembly, instructions, places, spans

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/memory-model.md"
COLUMNS = {"nvidia": "NVIDIA sm_90", "gfx90a": "AMD gfx90a", "gfx942": "AMD gfx942, gfx950"}
TWIN = "gfx950"  # has gfx942's instructions: that is checked


@triton.jit
def wait_until(ctx, word, pe):
    dev.wait_until(ctx, word, dev.CMP_GE, 12345)


@triton.jit
def test(ctx, word, pe):
    dev.test(ctx, word, dev.CMP_GE, 12345)


@triton.jit
def signal_set(ctx, signal, pe):
    dev.signal_set(ctx, signal, 7, pe)


@triton.jit
def signal_add(ctx, signal, pe):
    dev.signal_add(ctx, signal, 7, pe)


@triton.jit
def put_signal(ctx, signal, pe):
    dev.put_signal(ctx, signal, signal, 0, signal + 1, 1, dev.SIGNAL_ADD, pe)


@triton.jit
def fence(ctx, word, pe):
    dev.fence(ctx)


@triton.jit
def quiet(ctx, word, pe):
    dev.quiet(ctx)


@triton.jit
def barrier_all(ctx, word, pe):
    dev.barrier_all(ctx)


@triton.jit
def sync_all(ctx, word, pe):
    dev.sync_all(ctx)


@triton.jit
def put(ctx, dest, n, pe):
    dev.put(ctx, dest, dest, n, pe)


@triton.jit
def get(ctx, dest, n, pe):
    dev.get(ctx, dest, dest, n, pe)


@triton.jit
def p(ctx, word, pe):
    dev.p(ctx, word, 7, pe)


@triton.jit
def g(ctx, word, pe):
    dev.g(ctx, word, pe)


@triton.jit
def tile(ctx, x, y, pe):
    lane = tl.arange(0, 1024)
    dev.store(ctx, y + lane, dev.load(ctx, x + lane, pe), pe)


@triton.jit
def atomic_add(ctx, word, pe, SEM: tl.constexpr, SCOPE: tl.constexpr):
    dev.atomic_add(ctx, word, 7, pe, sem=SEM, scope=SCOPE)


@triton.jit
def operator(ctx, word, pe, OP: tl.constexpr):
    if OP == "set":
        dev.atomic_set(ctx, word, 7, pe, sem="relaxed")
    elif OP == "add":
        dev.atomic_add(ctx, word, 7, pe, sem="relaxed")
    elif OP == "compare_swap":
        dev.atomic_compare_swap(ctx, word, 7, 8, pe, sem="relaxed")
    elif OP == "and":
        dev.atomic_and(ctx, word, 7, pe, sem="relaxed")
    elif OP == "or":
        dev.atomic_or(ctx, word, 7, pe, sem="relaxed")
    elif OP == "xor":
        dev.atomic_xor(ctx, word, 7, pe, sem="relaxed")


F32, I32, I64, U64 = torch.float32, torch.int32, torch.int64, torch.uint64
SEMS = [("relaxed", "sys"), ("acquire", "sys"), ("release", "sys"), ("acq_rel", "sys"), ("acq_rel", "gpu")]
OPERATORS = ["set", "add", "compare_swap", "and", "or", "xor"]
# mark in the page: its rows (what, the cases that are emitted alike, whether only the loop of wide accesses is shown)
TABLES = {
    "order": [
        ("`wait_until`, int32", [(wait_until, I32, 3)], False),
        ("`test`, int32", [(test, I32, 3)], False),
        ("`signal_set`", [(signal_set, U64, 3)], False),
        ("`signal_add`; `put_signal` after its copy", [(signal_add, U64, 3), (put_signal, U64, 3)], False),
        ("`fence`", [(fence, I32, 3)], False),
        ("`quiet`", [(quiet, I32, 3)], False),
        ("`barrier_all`, `sync_all`", [(barrier_all, I32, 3), (sync_all, I32, 3)], False),
    ],
    "data": [
        ("`put`, `get`, `put_signal`: the inner loop", [(each, F32, 1000, 3) for each in (put, get)], True),
        ("`load` of a block, `store` of it", [(tile, F32, F32, 3)], False),
        ("`p`, 4 bytes", [(p, F32, 3)], False),
        ("`p`, 8 bytes", [(p, I64, 3)], False),
        ("`g`, 4 bytes", [(g, F32, 3)], False),
    ],
    "semantics": [
        (f'`sem="{sem}", scope="{scope}"`', [(atomic_add, I32, 3, sem, scope)], False) for sem, scope in SEMS
    ],
    "operators": [
        (f"`{op}`, {str(dtype)[6:]}", [(operator, dtype, 3, op)], False)
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
