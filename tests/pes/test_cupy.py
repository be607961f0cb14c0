"""The recipe for CuPy of docs/howto.md, as it stands there. It needs GPUs and CuPy."""

import re
from pathlib import Path

import pytest

import pyshmem as shmem

PAGE = (Path(__file__).parents[2] / "docs/howto.md").read_text().partition("## Use CuPy arrays\n")[2]
PROGRAM = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]


def test_the_recipe_for_cupy_puts_gets_and_views(device):
    """Its own check is that what came is what the left neighbour's kernel has written."""
    if device != "cuda":
        pytest.skip("CuPy needs a GPU")
    pytest.importorskip("cupy")
    exec(compile(PROGRAM, "howto.md", "exec"), {})
    shmem.finalize()  # the program's init
