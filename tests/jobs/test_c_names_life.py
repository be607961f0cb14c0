"""9.1 and 9.2 under the C names, in processes of their own: what counts, what ends, what is legal outside, and who ends all."""

import pathlib
import re
import time

import pytest
from jobs import mpiexec, python, warm
from launching import END, NOTHING, PYSHMEMRUN
from surroundings import until

PES = pathlib.Path(__file__).resolve().parents[1] / "pes"

# A call of every C name, with arguments that would be right between init and finalize.
EVERY_NAME = f"""
import inspect, sys, warnings
sys.path.insert(0, {str(PES)!r})
warnings.simplefilter("ignore")
import torch
import pyshmem as shmem
import pyshmem.shmem as c
from c_interface import read

ZERO = "pe PE_root PE_start logPE_stride src_pe start sig_op cmp options hints config_mask xaxis_mask yaxis_mask".split()
NULL = "status config xaxis_config yaxis_config".split()
MEMORY = "dest source fetch indices ivar ivars sig_addr lock ptr addr pSync pWrk cmp_values target_pes".split()
GIVEN = {{"ctx": c.SHMEM_CTX_DEFAULT, **dict.fromkeys(["team", "parent_team", "src_team", "dest_team"], c.SHMEM_TEAM_WORLD)}}
GIVEN |= {{**dict.fromkeys(ZERO, 0), **dict.fromkeys(NULL), "size": 8, "alignment": 8}}
NONE = c.SHMEM_TEAM_INVALID
LEGAL = {{
    "shmem_query_initialized": 0, "shmem_pcontrol": None,
    "shmem_info_get_version": (1, 6), "shmem_info_get_name": shmem.info_get_name(),
    "shmem_team_get_config": (1, c.shmem_team_config_t()), "shmem_team_split_strided": (1, NONE),
    "shmem_team_split_2d": (1, NONE, NONE), "shmem_team_destroy": None, "shmem_ctx_get_team": (1, NONE),
    "shmem_ctx_destroy": None, "shmem_ctx_session_start": None, "shmem_ctx_session_stop": None,
}}
GENERIC = ["shmem_wait_until"]
STARTS = ["shmem_init", "shmem_init_thread", "start_pes"]

def arguments(function, parameters, memory):
    listed = inspect.signature(function).parameters
    names = parameters if function is c.shmem_sync else [each for each in parameters if each in listed]
    return [memory if name in MEMORY else GIVEN.get(name, 1) for name in names]

def refused_or_legal(memory):
    for line in read("current", "deprecated"):
        for name, _ in line.names:
            if name in STARTS:
                continue
            function = getattr(c, name)
            given = memory if name in GENERIC else memory.view(torch.uint8)  # bytes are of any name's type
            try:
                answer = function(*arguments(function, line.parameters, given))
            except shmem.NotInitializedError:
                answer = "refused"
            if name == "shmem_team_create_ctx":
                assert answer[0] == 1 and not answer[1]
            else:
                assert answer == LEGAL.get(name, "refused"), (name, answer)
"""


def test_outside_init_and_finalize_every_name_is_refused_or_answers_that_there_is_none(tmp_path):
    """Before the first init with private memory, after the last finalize with what was symmetric: nothing is touched."""
    program = """
private = torch.full((64,), 7)
refused_or_legal(private)
c.shmem_init()
x = c.shmem_malloc(512, torch.int64)
c.shmem_finalize()
x.fill_(7)  # still memory
refused_or_legal(x)
assert (private == 7).all() and (x == 7).all()
print("done")
"""
    status, out, err = python(EVERY_NAME + program, tmp_path=tmp_path)
    assert (status, out) == (0, "done\n"), err


def test_the_last_finalize_ends_what_the_others_left(tmp_path):
    """And a further init begins anew: memory, teams and contexts of the one before are none."""
    program = """
import torch
import pyshmem as shmem
from pyshmem.shmem import *

shmem_init()
x = shmem_calloc(4, 8, torch.int64)
ret, team = shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, shmem_n_pes(), None, 0)
_, ctx = shmem_team_create_ctx(team, 0)
shmem_init()
assert shmem_init_thread(SHMEM_THREAD_SINGLE)[0] == 0
for left in (2, 1):
    shmem_finalize()
    assert shmem_query_initialized() == 1
    right = (shmem_my_pe() + 1) % shmem_n_pes()
    shmem_ctx_long_atomic_add(ctx, x, left, right)
    shmem_team_sync(team)
assert shmem_long_g(x, right) == 3
shmem_finalize()
assert shmem_query_initialized() == 0
assert team == SHMEM_TEAM_INVALID and SHMEM_TEAM_WORLD == SHMEM_TEAM_INVALID and not ctx

shmem_init()
y = shmem_calloc(4, 8, torch.int64)
assert team == SHMEM_TEAM_INVALID != SHMEM_TEAM_WORLD
assert shmem_ctx_get_team(ctx) == (1, SHMEM_TEAM_INVALID) and shmem_team_my_pe(team) == -1
assert shmem_team_split_strided(team, 0, 1, 1, None, 0) == (1, SHMEM_TEAM_INVALID)
assert shmem_addr_accessible(x, 0) == 0 and shmem_addr_accessible(y, 0) == 1
for call, kind in (
    (lambda: shmem_long_p(x, 1, 0), shmem.NotSymmetricError),
    (lambda: shmem_free(x), shmem.NotSymmetricError),
    (lambda: shmem_ctx_long_p(ctx, y, 1, 0), shmem.ArgumentError),
    (lambda: shmem_team_sync(team), shmem.ArgumentError),
):
    try:
        call()
    except kind:
        pass
    else:
        raise AssertionError(kind)
assert y.tolist() == [0] * 4
shmem_finalize()
print("done")
"""
    status, out, err = mpiexec(2, program, tmp_path=tmp_path)
    assert (status, out) == (0, 2 * "done\n"), err


def test_init_thread_gives_each_level_and_query_thread_the_same(tmp_path):
    """PE n asks for level n. A further init_thread changes nothing, whatever it asks for."""
    program = """
import os
from pyshmem.shmem import *
levels = [SHMEM_THREAD_SINGLE, SHMEM_THREAD_FUNNELED, SHMEM_THREAD_SERIALIZED, SHMEM_THREAD_MULTIPLE]
requested = levels[int(os.environ["PMI_RANK"])]
ret, provided = shmem_init_thread(requested)
from mpi4py import MPI
assert (ret, provided) == (0, MPI.Query_thread()) and provided == shmem_query_thread() == requested
assert shmem_init_thread(SHMEM_THREAD_MULTIPLE) == (0, provided)
shmem_finalize()
assert shmem_query_thread() == provided
shmem_finalize()
print("done")
"""
    status, out, err = mpiexec(4, program, tmp_path=tmp_path)
    assert (status, out) == (0, 4 * "done\n"), err


@pytest.mark.parametrize("status", [0, 256 + 7])
def test_global_exit_of_one_pe_ends_all_with_its_status_wherever_they_are(start, program, status):
    """PE 0 waits in a barrier, PE 2 for a flag, PE 3 for a lock, PE 4 computes; what PE 1 has printed is not lost."""
    prog = program(f"""
from pyshmem.shmem import *
shmem_init()
flag, lock = shmem_calloc(1, 8), shmem_calloc(1, 8)
if me == 1:
    shmem_set_lock(lock)
shmem_barrier_all()
note(f"there-{{me}}")
if me == 0:
    shmem_barrier_all()
if me == 1:
    for pe in range(5):
        wait_for(f"there-{{pe}}")
    note("ends", str(time.time()))
    print("last words", end="")
    shmem_global_exit({status})
if me == 2:
    shmem_long_wait_until(flag, SHMEM_CMP_NE, 0)
if me == 3:
    shmem_set_lock(lock)
while me == 4:
    pass
note("lived-on")
""")
    job = start(*PYSHMEMRUN, "-n", 5, *warm(), prog)
    assert job.wait() == status % 256, job.errors
    assert time.time() - float((job.folder / "ends").read_text()) < END
    assert "last words" in job.output and not (job.folder / "lived-on").exists()
    assert not re.search("Traceback", job.errors), job.errors
    assert until(lambda: job.left() == NOTHING, END), job.left()
