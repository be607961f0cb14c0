"""Counts lines: a module that grows past its limit is doing two jobs. Run by `make check`."""

import ast
import pathlib
import sys

MODULE, COLUMNS = 500, 120  # of C too; ruff holds Python's columns
FUNCTION, ARGUMENTS, KERNEL_ARGUMENTS = 40, 9, 12  # put_signal with ctx has 8


def oversized(path: pathlib.Path) -> list[str]:
    lines = path.read_text().count("\n")
    found = [f"{path}: {lines} lines, at most {MODULE}"] if lines > MODULE else []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            kernel = any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)  # pointers and strides
            body = (node.end_lineno or 0) - (_first_line(node) if kernel else node.lineno) + 1
            taken = [*node.args.posonlyargs, *node.args.args]  # calls name the others
            arguments = sum(each.arg != "self" for each in taken)
            if body > FUNCTION:
                found.append(f"{path}:{node.lineno}: {node.name} has {body} lines, at most {FUNCTION}")
            most = KERNEL_ARGUMENTS if kernel else ARGUMENTS
            if arguments > most:
                found.append(f"{path}:{node.lineno}: {node.name} has {arguments} arguments, at most {most}")
    return found


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Of the statements: a kernel's parameters, with its constants, take many lines."""
    documented = ast.get_docstring(node) is not None
    return node.body[1 if documented and len(node.body) > 1 else 0].lineno


root = pathlib.Path(__file__).resolve().parent.parent
sources = [
    path for folder in ("pyshmem", "launch", "examples", "benchmarks") for path in sorted((root / folder).rglob("*.py"))
]
faults = [fault for path in sources for fault in oversized(path.relative_to(root))]
for native in sorted((root / "pyshmem" / "native").rglob("*.[ch]")):
    lines = native.read_text().splitlines()
    if len(lines) > MODULE:
        faults.append(f"{native.relative_to(root)}: {len(lines)} lines, at most {MODULE}")
    faults += [
        f"{native.relative_to(root)}:{i}: over {COLUMNS} columns"
        for i, each in enumerate(lines, 1)
        if len(each) > COLUMNS
    ]
print("\n".join(faults) or f"{len(sources)} modules within their sizes")
sys.exit(bool(faults))
