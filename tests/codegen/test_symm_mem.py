"""The kernel of barriers and signals of pyshmem.distributed.symm_mem, as GPUs run it."""

import pytest
import pyshmem.device as dev  # noqa: F401  before triton
import torch
from compiling import TARGETS, array, compile, context, instructions, places, specialise
from pyshmem.distributed import symm_mem


@pytest.mark.parametrize(("put", "take"), [(True, True), (True, False), (False, True)])
def test_signals_are_swaps_at_system_scope_that_come_after_and_before_the_accesses_around_them(put, take, target):
    args = [context(target), array(torch.int32), array(torch.int64), 1, 0, put, take]
    source, options = specialise(symm_mem._meet, target, args)
    asm = compile(source, target=TARGETS[target], options=options.__dict__).asm
    if target == "nvidia":
        atomics = [line for line in asm["ptx"].splitlines() if "atom." in line]
        swaps = [line for line in atomics if "cas.b32" in line]
        assert bool(swaps) == put and all("acq_rel" in line and "sys" in line for line in swaps)
        cleared = [line for line in atomics if "exch.b32" in line]
        assert len(cleared) == take and all("release" in line and "sys" in line for line in cleared)
        assert ("ld.acquire.sys" in asm["ptx"] or "ld.global.acquire.sys" in asm["ptx"]) or not take
        return
    lines = instructions(asm["amdgcn"])
    assert bool(places(lines, "atomic_cmpswap")) == put
    assert any("atomic_swap " in line for line in lines) == take  # that of 64 bits is the report of a time-out
