"""What pyshmem declares of libfabric's binary interface is what libfabric's headers declare."""

import pathlib
import re
import shutil
import subprocess

import pytest

OURS = pathlib.Path(__file__).parents[2] / "pyshmem" / "native" / "far" / "libfabric.h"
HEADERS = ("fabric", "fi_cm", "fi_domain", "fi_endpoint", "fi_eq", "fi_errno", "fi_rma")
# functions by their place among those of an object
FUNCTIONS = {
    "fid": ("fi_ops", ["close", "bind", "control"]),
    "fid_cq": ("fi_ops_cq", ["read", "readerr"]),
    "fid_av": ("fi_ops_av", ["insert"]),
    "fid_domain": ("fi_ops_domain", ["av_open", "cq_open", "endpoint"]),
    "fid_fabric": ("fi_ops_fabric", ["domain", "trywait"]),
}
BY_NAME = {("fid_ep", "msg"): ("fi_ops_msg", ["recv", "sendmsg", "inject"])}
BY_NAME |= {("fid_ep", "cm"): ("fi_ops_cm", ["getname"]), ("fid_ep", "rma"): ("fi_ops_rma", ["read", "write"])}
BY_NAME[("fid_domain", "mr")] = ("fi_ops_mr", ["reg", "regattr"])


def expressions():
    """(an expression of our names, the same of libfabric's) for every constant, field and function that is used."""
    text = re.sub(r"/\*.*?\*/", "", OURS.read_text(), flags=re.DOTALL)
    for name in re.findall(r"\bFI_[A-Z0-9_]+(?= =|,| \(UINT64)", text):
        yield name, name
    for struct, body in re.findall(r"^struct (fi_\w+) \{\n(.*?)^\};", text, re.DOTALL | re.MULTILINE):
        fields = re.findall(r"\*?(\w+)(?:\[\d+\])?(?=[,;])", body)
        for field in fields:
            yield (f"offsetof(struct {struct}, {field})",) * 2
        for size in {"fi_cq_attr", "fi_av_attr", "fi_cq_err_entry", "fi_context2"} & {struct}:
            yield (f"sizeof(struct {size})",) * 2
    tables = {**{(owner, "ops"): row for owner, row in FUNCTIONS.items()}, **BY_NAME}
    for (owner, table), (theirs, functions) in tables.items():
        yield (f"offsetof(struct {owner}, {table})",) * 2
        for function in functions:
            yield (
                f"offsetof(__typeof__(*((struct {owner} *)0)->{table}), {function})",
                f"offsetof(struct {theirs}, {function})",
            )
    for field in ("mem_desc", "key"):
        yield (f"offsetof(struct fid_mr, {field})",) * 2


def values(include, texts, folder):
    program = f"#include <stdio.h>\n#include <stddef.h>\n{include}\nint main(void) {{\n"
    program += "".join(f'    printf("%llu\\n", (unsigned long long)({text}));\n' for text in texts) + "}\n"
    (folder / "program.c").write_text(program)
    compiler = shutil.which("cc") or "gcc"
    built = subprocess.run(
        [compiler, "-D_GNU_SOURCE", "-w", "program.c", "-o", "program", "-ldl"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return subprocess.run([folder / "program"], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(not pathlib.Path("/usr/include/rdma/fi_rma.h").exists(), reason="libfabric's headers are not here")
def test_layouts_and_numbers_are_those_of_the_headers(tmp_path):
    ours, theirs = zip(*dict.fromkeys(expressions()), strict=True)
    assert len(ours) > 90
    mine = values(f'#include "{OURS}"', ours, tmp_path)
    standard = values("".join(f"#include <rdma/{name}.h>\n" for name in HEADERS), theirs, tmp_path)
    assert dict(zip(ours, mine, strict=True)) == dict(zip(ours, standard, strict=True))
