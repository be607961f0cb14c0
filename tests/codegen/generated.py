"""Saves the instructions of every kernel that tests/codegen compiles, and compares two such folders.

Run: PYSHMEM_SAVE_CODE=FOLDER make test-codegen, in the old checkout and in the new one, for all targets, then
     python tests/codegen/generated.py OLD NEW
Prints the kernels whose instructions differ, or that only one folder has; the exit status says whether there are any.
"""

import difflib
import hashlib
import pathlib
import re
import sys

# fields of the device context that are no part of a kernel's name: how they are encoded has changed
UNNAMED = ("reach", "n_pes", "step", "stride", "programs", "slots", "least")


def recording(compile, folder):
    """``compile`` that also writes what it gives to a file of ``folder``, named by kernel, operands and target."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def record(source, target=None, options=None):
        from compiling import instructions

        compiled = compile(source, target=target, options=options)
        text = compiled.asm.get("ptx") or compiled.asm["amdgcn"]
        _write(folder, name_of(source, target, options), "\n".join(instructions(text)) + "\n")
        return compiled

    return record


def name_of(source, target, options):
    """The kernel's name, its target, and a number made of everything that it is specialised for."""
    fields = [(field(source, path), repr(value)) for path, value in [*source.constants.items(), *source.attrs.items()]]
    kinds = [f"{name}:{kind}" for name, kind in source.signature.items() if not isinstance(kind, tuple)]
    known = [pair for pair in fields if pair[0].rsplit(".", 1)[-1] not in UNNAMED]
    text = repr((kinds, sorted(known), options.get("num_warps")))
    return f"{source.fn.__name__}-{target.arch}-{hashlib.sha1(text.encode()).hexdigest()[:12]}"


def field(source, path):
    """The name of a parameter, or of a field of one that is a device context or a partition."""
    from pyshmem.device.context import DeviceContext
    from pyshmem.device.partitioned import Partition

    path = (path,) if isinstance(path, int) else tuple(path)
    name = list(source.signature)[path[0]]
    kind = list(source.signature.values())[path[0]]
    for place in path[1:]:
        fields = Partition._fields if len(kind) == len(Partition._fields) else DeviceContext._fields
        name, kind = f"{name}.{fields[place]}", kind[place]
    return name


def _write(folder, name, text):
    """Two kernels of one name and with other instructions are two files."""
    for number in range(1, 100):
        path = folder / f"{name}.{number}"
        if not path.exists() or path.read_text() == text:
            path.write_text(text)
            return


def differences(old, new):
    """(name, unified diff) of every kernel that is not the same in both folders. Labels are numbered as they come.

    Two kernels of one name are two files of one folder; which of them is which depends on what was compiled first.
    """
    folders = [_texts(folder) for folder in (old, new)]
    for name in sorted({*folders[0], *folders[1]}):
        before, after = (folder.get(name, set()) for folder in folders)
        if before != after:
            gone, come = ("".join(sorted(each)).splitlines() for each in (before - after, after - before))
            yield name, list(difflib.unified_diff(gone, come, "old", "new", lineterm="", n=2))


def _texts(folder):
    texts = {}
    for path in folder.iterdir():
        texts.setdefault(path.stem, set()).add(_relabelled(path.read_text()))
    return texts


def _relabelled(text):
    """Without the numbers of a spin's labels, which are its place in the text."""
    known = {}
    return re.sub(r"_spin(\d+)_", lambda found: f"_spin{known.setdefault(found[1], len(known))}_", text)


if __name__ == "__main__":
    old, new = (pathlib.Path(each) for each in sys.argv[1:3])
    found = list(differences(old, new))
    for name, lines in found:
        print(f"{name}: {len(lines)} lines of difference", *lines[:30], sep="\n")
    print(f"{len(found)} of {len(_texts(old))} kernels differ")
    sys.exit(bool(found))
