"""Writes the .pyi files for editors and type checkers: setup.py into each build, `make check` into the checkout.

Of pyshmem.shmem, whose functions are made when they are used, by the table of prototypes; of pyshmem.device, whose functions
triton.jit leaves without types, by their source. Neither pyshmem nor torch is imported: where pip builds there is no torch.
Run: python packaging/stubs.py
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).resolve().parents[1] / "pyshmem"
if "pyshmem" not in sys.modules:  # the package without its __init__, from which the table can be imported
    sys.modules["pyshmem"] = ModuleType("pyshmem")
    sys.modules["pyshmem"].__path__ = [str(SOURCE)]

from pyshmem.c_names.constants import CONSTANTS, Api  # noqa: E402
from pyshmem.c_names.rows import Row, generics, names  # noqa: E402
from pyshmem.c_names.spellings import SPELLINGS  # noqa: E402
from pyshmem.c_names.table import ROWS  # noqa: E402

C_HEAD = '''"""Written by packaging/stubs.py from pyshmem/c_names/table.py."""

from typing import Any, overload

import torch

from pyshmem.c_names.handles import shmem_ctx_session_config_t as shmem_ctx_session_config_t
from pyshmem.c_names.handles import shmem_team_config_t as shmem_team_config_t
from pyshmem.host.contexts import Ctx
from pyshmem.host.teams import Team

Address = Any  # a tensor, an array, a ctypes object or pointer, or an int; None is NULL
shmem_ctx_t = Ctx
shmem_team_t = Team

'''
STRUCTS = ("shmem_ctx_session_config_t", "shmem_ctx_t", "shmem_team_config_t", "shmem_team_t")
DEVICE_HEAD = '''"""Written by packaging/stubs.py. In kernels every argument is a value of Triton."""

from typing import Any, Literal

from pyshmem.device.context import DeviceContext as DeviceContext

'''
# the parameters of kernels that take words, and the device context; Triton's values have no types
DEVICE_TYPES = {
    "ctx": "DeviceContext",
    "op": 'Literal["sum", "prod", "min", "max", "and", "or", "xor"]',
    "sem": 'Literal["relaxed", "acquire", "release", "acq_rel"]',
    "scope": 'Literal["cta", "gpu", "sys"]',
}


def write(package: Path) -> None:
    """Write the files into ``package``, the folder of pyshmem that is built."""
    for name, text in (("shmem.pyi", c_names()), ("device/__init__.pyi", device())):
        (package / name).write_text(text)


def c_names() -> str:
    """The stub of pyshmem.shmem."""
    routines, selected = names(ROWS), generics(ROWS)
    lines = [C_HEAD]
    for name, value in sorted(CONSTANTS.items()):
        lines.append(f"{name}: {value.kind if isinstance(value, Api) else type(value).__name__}\n")
    for name, routine in routines.items():
        if name not in selected:
            lines.append(f"def {name}{_signature(routine.row, routine.typename, routine.ctx)}: ...\n")
    for name, row in selected.items():
        forms = [_signature(row, "", ctx) for ctx in ((False, True) if row.ctx else (False,))]
        mark = "@overload\n" if len(forms) > 1 else ""
        lines += [f"{mark}def {name}{form}: ...\n" for form in forms]
    lines += [f"p{name} = {name}\n" for name in routines]
    every = {*routines, *(f"p{name}" for name in routines), *selected, *CONSTANTS, *STRUCTS}
    quoted = ", ".join(f'"{name}"' for name in sorted(every))
    lines.append("__all__ = [\n" + textwrap.indent(textwrap.fill(quoted, 116), "    ") + ",\n]\n")
    return "".join(lines)


def _signature(row: Row, typename: str, ctx: bool) -> str:
    """The parameters and what is returned, with Python's types."""
    if not row.host:
        return _of_body(row.body)
    before, inside = row.prototype[:-1].split("(")
    parts = ["ctx: shmem_ctx_t"] if ctx else []
    for each, name in zip(inside.split(", "), row.parameters, strict=True):
        kind = each.removeprefix("const ").split(" ")[0]
        parts.append(f"{name}: {_python(kind, '*' in each, typename)}")
    return f"({', '.join(parts)}, /) -> {_python(before.split(' ')[0], False, typename)}"


def _python(kind: str, pointer: bool, typename: str) -> str:
    if pointer:
        return "Address"
    return {"void": "None", "TYPE": _value(typename), "shmem_team_t": "shmem_team_t"}.get(kind, "int")


def _value(typename: str) -> str:
    """The Python type of a value of a C type."""
    if not typename:
        return "Any"
    return {"f": "float", "l": "float", "c": "complex"}.get(SPELLINGS[typename][1][0], "int")


def _of_body(body: str) -> str:
    """The signature of a routine with a body of its own, in one of the modules of c_names."""
    module, _, name = body.partition(".")
    function = _defined(SOURCE / f"c_names/{module}.py")[name]
    assert isinstance(function, ast.FunctionDef) and function.returns
    return f"({ast.unparse(function.args)}) -> {ast.unparse(function.returns)}"


def device() -> str:
    """The stub of pyshmem.device: what its __init__ imports of its modules."""
    found: dict[str, str] = {}
    for each in ast.parse((SOURCE / "device/__init__.py").read_text()).body:
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("pyshmem.device."):
            defined = _defined(SOURCE / f"{each.module[8:].replace('.', '/')}.py")
            found |= {
                name.name: _declared(name.name, defined[name.name])
                for name in each.names
                if name.name != "DeviceContext"
            }
    return DEVICE_HEAD + "\n".join(found[name] for name in sorted(found)) + "\n"


def _defined(file: Path) -> dict[str, ast.stmt]:
    """What a module defines at its top, by name."""
    return {name: each for each in ast.parse(file.read_text()).body for name in _names(each)}


def _names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        yield from (each.id for target in statement.targets for each in ast.walk(target) if isinstance(each, ast.Name))


def _declared(name: str, statement: ast.stmt) -> str:
    if not isinstance(statement, ast.FunctionDef):
        return f"{name}: Any"
    for each in ast.walk(statement.args):
        if isinstance(each, ast.arg):
            each.annotation = ast.Name(DEVICE_TYPES.get(each.arg, "Any"))
    gives = any(isinstance(each, ast.Return) and each.value for each in ast.walk(statement))
    statement.args.defaults = [ast.Constant(...) for _ in statement.args.defaults]
    return f"def {name}({ast.unparse(statement.args)}) -> {'Any' if gives else 'None'}: ..."


if __name__ == "__main__":
    write(SOURCE)
