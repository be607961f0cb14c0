"""Writes what the C library has of every name of the table: shmem.h, and entries.h with the functions. Also shmemx_names.h,
pyshmem.pc and openshmem.pc.

setup.py calls it before it compiles the library, where there is no torch. Run: python pyshmem/capi/generate.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
if "pyshmem" not in sys.modules:  # the package without its __init__, from which the table can be imported
    sys.modules["pyshmem"] = ModuleType("pyshmem")
    sys.modules["pyshmem"].__path__ = [str(HERE.parent)]

from pyshmem.c_names.constants import CONSTANTS, Api  # noqa: E402
from pyshmem.c_names.rows import Routine, Row, generics, names  # noqa: E402
from pyshmem.c_names.spellings import SPELLINGS  # noqa: E402
from pyshmem.c_names.table import ROWS  # noqa: E402
from pyshmem.version import OPENSHMEM, __version__  # noqa: E402

_HEAD = """/* Written by pyshmem/capi/generate.py from pyshmem/c_names/table.py. */
"""
_TYPES = """
#include <stddef.h>
#include <stdint.h>

#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc99-extensions" /* _Complex in C++ */
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pyshmem_team *shmem_team_t;
typedef struct pyshmem_ctx *shmem_ctx_t;
typedef struct {
    int num_contexts;
} shmem_team_config_t;
typedef struct {
    size_t total_ops;
} shmem_ctx_session_config_t;

"""
_TAIL = """
#ifdef __cplusplus
}
#endif
"""
# The bodies of C's functions, by the row's body or by the Python API's name. T is C's type, K its element type, S the bytes
# of an element, N the routine's name, and R the arguments that most functions have first: this name and the context.
_BODIES = {
    "one_sided.copy": "{host}(R, dest, source, BYTES, pe);",
    "one_sided.copy_signal": "{host}(R, dest, source, BYTES, sig_addr, signal, sig_op, pe);",
    "one_sided.strided": "{host}(R, dest, source, (strides_t){{dst, sst, S, nelems, S}}, pe);",
    "one_sided.blocked": "{unblocked}(R, dest, source, (strides_t){{dst, sst, ITEM, nblocks, S}}, pe);",
    "one_sided.signal_fetch": "return signal_fetch(N, sig_addr);",
    "p": 'put(R, aligned(N, "dest", dest, sizeof value), &value, sizeof value, pe);',
    "g": 'T value; get(R, &value, aligned(N, "source", source, sizeof value), sizeof value, pe); return value;',
    "signal_set": 'amo_set_uint64(R, "sig_addr", sig_addr, signal, 0, pe, 0);',
    "signal_add": 'amo_add_uint64(R, "sig_addr", sig_addr, signal, 0, pe, 0);',
    "wait_until": 'wait_K(N, "ivar", ivar, cmp, cmp_value);',
    "waits.wait_change": 'wait_K(N, "ivar", ivar, NE, cmp_value);',
    "signal_wait_until": 'return wait_uint64(N, "sig_addr", sig_addr, cmp, cmp_value);',
    "test": "return test_K(N, ivar, cmp, cmp_value);",
    "collectives.broadcast": "return broadcast(N, team, dest, source, nelems, KIND_K, PE_root, 0);",
    "collectives.collect": "return collect(N, team, dest, source, nelems, KIND_K);",
    "collectives.fcollect": "return fcollect(N, team, dest, source, nelems, KIND_K);",
    "collectives.alltoall": "return alltoalls(N, team, dest, source, 1, 1, nelems, KIND_K);",
    "collectives.alltoalls": "return alltoalls(N, team, dest, source, dst, sst, nelems, KIND_K);",
    "collectives.reduce": "return fold(N, team, {how}, REDUCE_{operator}, KIND_K, dest, source, {last});",
    "active_sets.broadcast": "set_broadcast(SET, dest, source, BYTES, PE_root);",
    "active_sets.collect": "set_collect(SET, dest, source, BYTES);",
    "active_sets.alltoall": "set_alltoalls(SET, dest, source, 1, 1, nelems, S);",
    "active_sets.alltoalls": "set_alltoalls(SET, dest, source, dst, sst, nelems, S);",
    "active_sets.to_all": "(void)pWrk; set_reduce(SET, REDUCE_{operator}, KIND_K, dest, source, nreduce);",
}
_PKGCONFIG = """prefix=${{pcfiledir}}/..
Name: {name}
Description: OpenSHMEM for C programs, on the job of pyshmem
Version: {version}
Cflags: -I${{prefix}}/include
Libs: -L${{prefix}} -Wl,-rpath,${{prefix}} -lpyshmem
"""
_SAME = {  # types that are one in C
    "int8_t": "signed char",
    "int16_t": "short",
    "int32_t": "int",
    "int64_t": "long",
    "ptrdiff_t": "long",
    "uint8_t": "unsigned char",
    "uint16_t": "unsigned short",
    "uint32_t": "unsigned int",
    "uint64_t": "unsigned long",
    "size_t": "unsigned long",
}
_BYTES, _ITEM = 'bytes_of(N, "nelems", nelems, S)', 'bytes_of(N, "bsize", bsize, S)'
_SET = "active_set(N, PE_start, logPE_stride, PE_size, pSync)"
_TAKEN_OVER = r"_ib(put|get)\d*$|_sum_(in|ex)scan$|^shmem_signal_(add|set)$"
_MANY = {"all": "every", "any": "first", "some": "some"}


def write(folder: Path) -> None:
    """Write the files into ``folder``, that of this module; those that are right already stay untouched."""
    texts = {"include/shmem.h": header(), "include/shmemx_names.h": extensions(), "include/entries.h": entries()}
    versions = {"pyshmem": __version__, "openshmem": ".".join(map(str, OPENSHMEM))}
    for name, version in versions.items():
        texts[f"pkgconfig/{name}.pc"] = _PKGCONFIG.format(name=name, version=version)
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def header() -> str:
    routines = names(ROWS).values()
    lines = [_HEAD, "#ifndef PYSHMEM_SHMEM_H\n#define PYSHMEM_SHMEM_H", _TYPES, *constants(), "\n"]
    lines += [f"{prototype(each)};\n" for each in routines]
    lines += ["\n/* for tools */\n", *(f"{prototype(each, 'p')};\n" for each in routines), _TAIL]
    lines += [
        "\n#if __STDC_VERSION__ >= 201112L && !defined(PYSHMEM_NO_GENERICS)\n",
        *selections(),
        "#endif\n\n#if defined(__cplusplus) && !defined(PYSHMEM_NO_GENERICS)\n",
        *overloads(),
        "#endif\n\n#ifdef __clang__\n#pragma clang diagnostic pop\n#endif\n\n#endif\n",
    ]
    return "".join(lines)


def constants() -> Iterator[str]:
    for name, value in CONSTANTS.items():
        text = value.c if isinstance(value, Api) else f'"{value}"' if isinstance(value, str) else str(value)
        yield f"#define {name} {text}\n"


def prototype(routine: Routine, prefix: str = "") -> str:
    return routine.prototype.replace(routine.name + "(", prefix + routine.name + "(", 1)


def extensions() -> str:
    """The names that Sandia OpenSHMEM had before OpenSHMEM had them."""
    taken = [name for name in (*names(ROWS), *generics(ROWS)) if re.search(_TAKEN_OVER, name)]
    return "".join([_HEAD, *(f"#define {name.replace('shmem_', 'shmemx_', 1)} {name}\n" for name in taken)])


def entries() -> str:
    return "".join([_HEAD, *(f"{_entry(each)}\n" for each in names(ROWS).values())])


def _entry(routine: Routine) -> str:
    start, parameters = routine.prototype.rstrip(")").split("(", 1)
    returns = start.removesuffix(routine.name).strip()
    return f"ENTRY({returns}, {routine.name}, ({parameters})) {{ {_statement(routine)} }}"


def _statement(routine: Routine) -> str:
    """The body of the function of a name."""
    row = routine.row
    text = (
        _template(row).replace("SET", _SET).replace("BYTES", _BYTES).replace("ITEM", _ITEM)
        if row.host
        else _lone(routine)
    )
    alone = ("long", "int64") if row.host == "wait_until" else ("uint64_t", "uint64")  # the others are of signals
    c, kind = SPELLINGS.get(routine.typename, alone)
    bits = {"mem": 8}.get(routine.typename) or (int(routine.typename) if routine.typename.isdigit() else 0)
    size = str(bits // 8) if bits else "sizeof(T)"
    quoted, ctx = f'"{routine.name}"', "ctx" if routine.ctx else "SHMEM_CTX_DEFAULT"
    for letter, meaning in (("S", size), ("R", f"{quoted}, {ctx}"), ("N", quoted), ("T", c), ("K", kind)):
        text = _put_in(text, letter, meaning)
    return text


def _put_in(text: str, letter: str, meaning: str) -> str:
    """Replace the letter where it stands alone, or ends a name after an underscore, as in wait_K."""
    return re.sub(rf"(?<![A-Za-z0-9\"]){letter}(?![A-Za-z0-9_\"])", meaning, text)


def _template(row: Row) -> str:
    host = row.host
    if host.startswith("atomic_"):
        return _atomic(row)
    if host.startswith(("wait_until_", "test_")):
        verb, _, which = host.removeprefix("wait_until_").removeprefix("test_").partition("_")
        return _several(row, verb, which == "vector")
    found = _BODIES.get(row.body) or _BODIES[host]
    operator, _, how = host.partition("_")
    last, unblocked = row.parameters[-1], host.replace("b", "")
    return found.format(host=host, operator=operator, how=how.upper(), last=last, unblocked=unblocked)


def _atomic(row: Row) -> str:
    """atomic_fetch_add and its like."""
    names_, later = row.parameters, row.host.endswith("_nbi")
    operator = row.host.removeprefix("atomic_").removesuffix("_nbi")
    operator = operator.removeprefix("fetch_") or operator
    target = "source" if "source" in names_ else "dest"
    value = "value" if "value" in names_ else "1" if operator == "inc" else "0"
    cond = "cond" if "cond" in names_ else "0"
    operator = operator.replace("inc", "add")
    if later:
        return f'amo_nbi_{operator}_K(R, "{target}", fetch, {target}, {value}, {cond}, pe);'
    fetches = not row.prototype.startswith("void")
    call = f'amo_{operator}_K(R, "{target}", {target}, {value}, {cond}, pe, {int(fetches)});'
    return "return " + call if fetches else call


def _several(row: Row, which: str, vector: bool) -> str:
    """wait_until_any, test_some_vector and their like."""
    value, waits = "cmp_values" if vector else "&cmp_value", int(row.host.startswith("wait"))
    indices = "indices, " if which == "some" else ""
    call = f"{_MANY[which]}_K(N, ivars, nelems, {indices}status, cmp, (const void *){value}, {int(vector)}, {waits});"
    return call if row.prototype.startswith("void") else "return " + call


def _lone(routine: Routine) -> str:
    given = "".join(f", {each}" for each in routine.row.parameters if each != "...")
    call = f"{routine.row.body.replace('management.', 'manage_')}(N{given});"
    return (
        call
        if routine.prototype.startswith("void ") and not routine.prototype.startswith("void *")
        else f"return {call}"
    )


def selections() -> Iterator[str]:
    """C11's names without a type: macros that select by the type of the first pointer, behind a context if there is one."""
    yield "#define PYSHMEM_FIRST(FIRST, ...) FIRST\n"
    yield "#define PYSHMEM_SECOND(FIRST, SECOND, ...) SECOND\n"
    yield "void pyshmem_no_such_type(void);\n"
    for name, row in generics(ROWS).items():
        yield f"#define {name}(...) {_selection(name, row)}(__VA_ARGS__)\n"


def _selection(name: str, row: Row) -> str:
    first, second = "PYSHMEM_FIRST(__VA_ARGS__)", "PYSHMEM_SECOND(__VA_ARGS__, 0, 0)"
    if name == "shmem_sync":
        return f"_Generic(({first}), shmem_team_t: shmem_team_sync, default: shmem_sync)"
    if not row.types:
        return f"_Generic(({first}), shmem_ctx_t: {name.replace('shmem_', 'shmem_ctx_', 1)}, default: {name})"
    parameters = row.prototype.split("(", 1)[1].split(", ")
    index = next(i for i, each in enumerate(parameters) if "TYPE *" in each)
    plain = ", ".join(_associations(row, ""))
    if not row.ctx:
        return f"_Generic(({second if index else first}), {plain})"
    by_ctx = ", ".join(_associations(row, "ctx_"))
    return f"_Generic(({first}), shmem_ctx_t: _Generic(({second}), {by_ctx}, default: pyshmem_no_such_type), {plain})"


def overloads() -> Iterator[str]:
    """The same names in C++: a function of each type, and one more with a context."""
    known = names(ROWS)
    for name, row in generics(ROWS).items():
        functions = _chosen(row, "").values() if row.types else ["shmem_team_sync" if name == "shmem_sync" else name]
        for function in functions:
            forms = (function, function.replace("shmem_", "shmem_ctx_", 1)) if row.ctx else (function,)
            found = (known[each] for each in forms)
            yield from (_overload(name, each) for each in found if _types(each) != _types(known.get(name)))


def _types(routine: Routine | None) -> str:
    return routine.prototype.split("(", 1)[1] if routine else ""


def _overload(name: str, routine: Routine) -> str:
    given = ", ".join((["ctx"] if routine.ctx else []) + list(routine.row.parameters))
    prototype = routine.prototype.replace(f"{routine.name}(", f"{name}(", 1)
    return f"static inline {prototype} {{ return {routine.name}({given}); }}\n"


def _associations(row: Row, ctx: str) -> Iterator[str]:
    """A pointer to each C type, plain, const and volatile, with its function."""
    for c, function in _chosen(row, ctx).items():
        for qualifier in ("", "const ", "volatile "):
            yield f"{qualifier}{c} *: {function}"


def _chosen(row: Row, ctx: str) -> dict[str, str]:
    """The function of each C type: each type once, whatever its names are."""
    chosen: dict[str, str] = {}
    for each, name in _functions(row):
        c = SPELLINGS[each][0]
        chosen.setdefault(_SAME.get(c, c), name.replace("shmem_", "shmem_" + ctx, 1))
    return chosen


def _functions(row: Row) -> Iterator[tuple[str, str]]:
    """The types of a generic name with their functions: of all rows of this name, then of the name that replaces it."""
    new = generics(ROWS).get(f"shmem_{row.host}", row)
    for each in (*(other for other in ROWS if other.name == row.name), new):
        yield from ((typename, each.name.replace("<TYPENAME>", typename)) for typename in each.types)


if __name__ == "__main__":
    write(HERE)
