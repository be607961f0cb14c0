"""What pyshmem.ops exports does not depend on what is imported first, and importing it registers no torch operators."""

import subprocess
import sys

EXPORTS = """
import pyshmem.ops.attention.decode
import pyshmem.ops.attention.prefill
from pyshmem import ops
from pyshmem.ops.attention.prefill import attention
assert ops.attention is attention
assert all(callable(getattr(ops, name)) for name in ops.__all__)
"""
TORCH = """
import sys
from pyshmem import ops
assert "pyshmem.ops.torch" not in sys.modules
from pyshmem.ops import torch as tp
import pyshmem.ops.torch.attention
import torch
assert all(callable(getattr(tp, name)) for name in tp.__all__)
assert all(hasattr(torch.ops.pyshmem, name) for name in tp.__all__ if name not in ("clear", "name_team"))
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_ops_attention_is_the_function_though_its_package_is_imported_first():
    run(EXPORTS)


def test_ops_does_not_import_its_torch_operators_and_they_are_functions():
    run(TORCH)
