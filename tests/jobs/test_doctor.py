"""pyshmem doctor: it finds nothing on this machine, and names each fault of a driver, with the setting to try."""

import os
import re
import subprocess
import sys

from jobs import mpiexec, python
from standin import HEAD

CALLS = ("put", "get", "signal", "atomic", "kernel", "all-reduce", "GEMM", "fused GEMM")


def test_doctor_examines_all_calls_in_cpu_memory_and_prints_what_info_prints(tmp_path):
    """In a folder with another package pyshmem, such as a checkout that is not built."""
    (tmp_path / "pyshmem").mkdir()
    (tmp_path / "pyshmem" / "__init__.py").write_text("raise ImportError('not the installed one')")
    command = [os.path.join(os.path.dirname(sys.executable), "pyshmem"), "doctor", "-n", "2"]
    environment = {**os.environ, "PYSHMEM_HEAP": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^pyshmem +\d\S*, OpenSHMEM 1\.6, in /", done.stdout)
    assert re.findall(r"^.{10} (.+): ok  cpu heap, 2 x 2 PEs$", done.stdout, re.MULTILINE) == list(CALLS), done.stdout
    assert done.stdout.endswith("doctor: all that was examined works\n")


def test_a_job_that_crashes_is_named_with_what_to_try(tmp_path):
    program = """
from pyshmem.launch import doctor, info
info.show = lambda: []
doctor._job = lambda n, part: 139 if part == "mapping" else 0
print(doctor.main(["-n", "2"]))
"""
    status, out, err = python(program, tmp_path=tmp_path)
    assert status == 0, err
    assert (
        "FAILED: the job that examines mapping ended with status 139, in the check above\n  try: PYSHMEM_PEER_MAP=ipc"
        in out
    )
    assert out.endswith("doctor: something failed, see FAILED above\n1\n")


def test_each_call_that_goes_wrong_is_named_with_its_pes_and_the_setting_to_try(tmp_path):
    """On one PE alone: the others must not wait for it, and all say that there is a fault."""
    program = """
import sys
import pyshmem as shmem
from pyshmem.launch import call_checks, examination
add, put, reduce = shmem.atomic_add, shmem.put, shmem.reduce
def wrong_put(target, source, pe):
    put(target, source + (shmem.my_pe() == 1 and pe == 0), pe)
def refused(*arguments):
    if shmem.my_pe() == 1:
        raise shmem.ArgumentError("no sum")
    return None
shmem.put, shmem.reduce = wrong_put, refused
shmem.atomic_add = lambda word, value, pe: add(word, value + 1, pe)
call_checks.CHECKS = {name: call_checks.CHECKS[name] for name in ("put", "get", "atomic", "all-reduce")}
sys.exit(10 + examination.main("calls"))
"""
    status, out, err = mpiexec(2, program, tmp_path=tmp_path)
    assert status == 11, out + err
    lines = [line[11:] for line in out.splitlines() if not line.startswith(" " * 14)]
    assert lines[0] == "put: FAILED: PE 0: from PE 1: 1000 of 1000 elements differ; (0,): got 1000001, wants 1000000", (
        out
    )
    assert lines[1] == "get: ok  cpu heap, 2 x 2 PEs"
    assert lines[2].startswith("atomic: FAILED: PE 0: [2, 259] after additions of all PEs; wants [2, 257]")
    assert "PE 1: ArgumentError: no sum" in lines[3]
    assert out.count("try: ") == 3 and "try: PYSHMEM_HIP_MEMORY=uncached" in out


def test_each_fault_of_the_driver_is_named_with_the_setting_to_try(library, tmp_path):
    """Injected in turn on one of two PEs; without a fault, nothing is found in any version."""
    program = """
import resource
from pyshmem.launch import device_checks, mapping_checks
def examined(version="7.14", fail=None, before=lambda standin: None, arch="gfx942", **options):
    standin = Standin(sys.argv[1], version=version, devices="0,1", **options)
    driver = Driver("hip", me, standin.path)
    if me == 1:
        before(standin)
        standin.fail(*fail or ("", 0))
    found = [*device_checks.examine(driver, node, arch if me == 1 else "gfx942"), *mapping_checks.examine(driver, node)]
    assert standin.ledger()[:5] == Ledger()[:5], standin.ledger()
    faults = [each[:3] for each in found if each.fault]
    assert node.allgather(faults) == [faults] * n, node.allgather(faults)
    return found
for version in ("7.0", "7.1", "7.14"):
    assert [each for each in examined(version) if each.fault] == []
FAULTS = [
    ("virtual memory, coarse", "PYSHMEM_PEER_MAP=ipc", dict(fail=("hipMemCreate", 1, 2))),
    ("virtual memory, coarse", "control group", dict(hidden=1)),
    ("virtual memory, coarse", "PE 1: a copy to PE 0: hipMemcpyAsync returned 999", dict(fail=("hipMemcpyAsync", 1))),
    ("virtual memory, coarse", "a word of PE 0 there is", dict(lost=1)),
    ("virtual memory, uncached", "PYSHMEM_PEER_MAP=ipc", dict(fail=("hipMemSetAccess", 3))),
    ("IPC, coarse", "HSA_ENABLE_IPC_MODE_LEGACY", dict(fail=("hipIpcOpenMemHandle", 1))),
    ("IPC, fine", "PYSHMEM_PEER_MAP=vmm", dict(fail=("hipExtMallocWithFlags", 1))),
    ("architecture", "PE 1: init refuses a gfx1100 (RDNA: Triton from 3.6 compiles", dict(arch="gfx1100")),
    ("architecture", "PYSHMEM_ALLOW_ARCH=1", dict(arch="gfx908")),
    ("chiplets", "PE 1: the driver says 0 chiplets of a gfx942; wants 1 to 8a newer ROCm", dict(fail=("hipDeviceGetAttribute", 1, 1))),
    ("chiplets", "PE 1: 6 chiplets, 8 on PE 0", dict(chiplets=6 + 2 * (me == 0))),
    ("queues", "PE 1: GPU_MAX_HW_QUEUES is 2: a kernel may stand behind one that waits for itunset GPU_MAX_HW_QUEUES",
     dict(before=lambda standin: os.environ.update(GPU_MAX_HW_QUEUES="2"))),
    ("last error at the start", "error 1 is kept", dict(before=lambda standin: standin.library.hipFree(4096))),
]
for check, words, fault in FAULTS:
    bad = [each for each in examined(**fault) if each.fault]
    os.environ.pop("GPU_MAX_HW_QUEUES", None)
    assert bad and bad[0].check == check and words in bad[0].fault + bad[0].advice, (check, words, bad)
    assert "lost" in fault or "hidden" in fault or len(bad) == 1, bad
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
bad = [each for each in examined() if each.fault]
assert [each.check for each in bad] == ["descriptors"] and "ulimit -Hn" in bad[0].advice, bad
print("done", flush=True)
"""
    status, out, err = mpiexec(2, HEAD + program, str(library), tmp_path=tmp_path)
    assert (status, out) == (0, "done\n" * 2), err
