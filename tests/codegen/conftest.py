"""Kernels compiled for GPUs that need not be here, and their instructions read. One process, in an environment of its own.

Run: `make test-codegen`. Triton reads these variables when it is imported.
"""

import os
import tempfile

os.environ["TRITON_INTERPRET"] = "0"
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="pyshmem-codegen-")
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # Triton 3.9 warns where it is not decided

import shutil

import pytest
import triton.compiler
from generated import recording

if os.environ.get("PYSHMEM_SAVE_CODE"):  # before any module takes the function's name
    triton.compiler.compile = recording(triton.compiler.compile, os.environ["PYSHMEM_SAVE_CODE"])

from compiling import TARGETS


def pytest_sessionfinish(session, exitstatus):
    shutil.rmtree(os.environ["TRITON_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(params=TARGETS)
def target(request):
    """What is compiled for."""
    return request.param


@pytest.fixture(params=[name for name in TARGETS if name != "nvidia"])
def amd(request):
    return request.param
