"""Finds in AMD instructions what the GPUs execute wrongly, though a compiler has emitted it.

conftest.py looks at every kernel that tests/codegen compiles, with whatever Triton is installed.

- A VALU instruction overwrites data of a wide store before the store has read it: LLVM #202333, a missing s_nop.
- gfx950 executes v_pk_fma_f32 with op_sel:[0,1,0] wrongly now and then: ROCM-29896, rocMLIR PR 2459.
"""

import re

WIDE = re.compile(
    r"(global|flat|scratch)_store_dwordx[34] \S+, (\S+?),|buffer_store_dwordx[34] (\S+?), (\S+), \S+, (\S+)"
)
STATES = {"gfx90a": 1}  # wait states between the store and the write of its data; 2 on the others
READS = ("v_cmp", "v_readfirst", "v_readlane", "v_nop")  # VALU instructions that write no vector register
BROADCAST = re.compile(r"v_pk_fma_f32\b.*\bop_sel:\[0,1,0\]")


def faults(text, arch):
    """What is wrong, as lines: of the assembly of one kernel."""
    lines, labels = _code(text)
    found = [line for line in lines if arch == "gfx950" and BROADCAST.match(line)]
    for place, line in enumerate(lines):
        data = _stored(line)
        if data:
            found += [f"{line}; {other}" for other in _overwrites(lines, labels, place, data, STATES.get(arch, 2))]
    return found


def scanned(compile):
    """``compile`` that fails where a GPU would execute wrongly what it gives."""

    def scan(source, target=None, options=None):
        compiled = compile(source, target=target, options=options)
        if target is not None and target.backend == "hip":
            found = faults(compiled.asm["amdgcn"], target.arch)
            assert not found, f"{source.fn.__name__} on {target.arch}: {found[:3]}"
        return compiled

    return scan


def _code(text):
    """The instructions, and which of them each label stands before."""
    lines, labels = [], {}
    for line in text.split(".section")[0].splitlines():
        line = line.split(";")[0].strip()
        if label := re.match(r"(\.LBB\w+):", line):
            labels[label[1]] = len(lines)
        elif re.match(r"[a-z]+_", line):
            lines.append(line)
    return lines, labels


def _registers(text):
    """The numbers of vector registers that an operand names."""
    if found := re.match(r"v\[(\d+):(\d+)\]", text):
        return set(range(int(found[1]), int(found[2]) + 1))
    found = re.match(r"v(\d+)$", text)
    return {int(found[1])} if found else set()


def _stored(line):
    """The registers of a wide store's data. With a scalar offset a buffer's store takes another cycle, and has no hazard."""
    found = WIDE.match(line)
    if not found or (found[5] or "").startswith("s"):
        return set()
    return _registers(found[2] or found[3])


def _overwrites(lines, labels, store, data, states):
    """VALU instructions that write one of the registers in fewer wait states after the store, on any path."""
    todo, seen = [(store + 1, 0)], set()
    while todo:
        place, waited = todo.pop()
        if place >= len(lines) or waited >= states or (place, waited) in seen or lines[place].startswith("s_endpgm"):
            continue
        seen.add((place, waited))
        operation, _, operands = lines[place].partition(" ")
        if operation.startswith("v_") and not operation.startswith(READS) and _registers(operands.split(",")[0]) & data:
            yield lines[place]
        waited += int(operands) + 1 if operation == "s_nop" else 1
        if operation.startswith(("s_branch", "s_cbranch")) and operands in labels:
            todo.append((labels[operands], waited))
        if operation != "s_branch":
            todo.append((place + 1, waited))
