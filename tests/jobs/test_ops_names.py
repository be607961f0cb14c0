"""What pyshmem.ops exports does not depend on what is imported first. It imports neither its torch operators nor a compiler."""

from jobs import python

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
assert not {"pyshmem.ops.torch", "torch._dynamo"} & set(sys.modules)
from pyshmem.ops import torch as tp
import pyshmem.ops.torch.attention
import torch
assert all(callable(getattr(tp, name)) for name in tp.__all__)
assert all(hasattr(torch.ops.pyshmem, name) for name in tp.__all__ if name not in ("clear", "name_team"))
"""


def test_ops_attention_is_the_function_though_its_package_is_imported_first(tmp_path):
    assert python(EXPORTS, tmp_path=tmp_path) == (0, "", "")


def test_ops_imports_neither_its_torch_operators_nor_torchs_compiler_and_they_are_functions(tmp_path):
    assert python(TORCH, tmp_path=tmp_path, fresh=True) == (0, "", "")
