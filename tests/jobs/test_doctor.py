"""pyshmem doctor: it finds nothing on this machine, and names each fault of a driver, with the setting to try."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from jobs import mpiexec, python
from pyshmem.launch.doctor import command as doctor
from pyshmem.launch.doctor import memory_kinds, report
from pyshmem.launch import info
from pyshmem.start import requirements
from standin import HEAD

CALLS = ("put", "get", "signal", "atomic", "kernel", "all-reduce", "GEMM", "fused GEMM")


def test_doctor_examines_all_calls_in_cpu_memory_and_prints_what_info_prints(tmp_path):
    """In a folder with another package pyshmem, such as a checkout that is not built."""
    (tmp_path / "pyshmem").mkdir()
    (tmp_path / "pyshmem" / "__init__.py").write_text("raise ImportError('not the installed one')")
    command = [os.path.join(os.path.dirname(sys.executable), "pyshmem"), "doctor", "-n", "2"]
    environment = {**os.environ, "PYSHMEM_HEAP": "cpu", "PYSHMEM_WAIT_TIMEOUT": "45"}  # of a slow machine
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nexamined   by 2 PEs; a wait fails after 45 s, a job after 225 s\n" in done.stdout
    assert re.search(r"^pyshmem +\d\S*, OpenSHMEM 1\.6, in /", done.stdout)
    assert re.findall(r"^.{10} (.+): ok  cpu heap, 2 x 2 PEs$", done.stdout, re.MULTILINE) == list(CALLS), done.stdout
    assert "\nmapping    GPU memory: not examined: torch sees no GPU\n" in done.stdout
    assert done.stdout.endswith("doctor: all that was examined works\n")


@pytest.mark.parametrize(("seconds", "words"), [("", ["--timeout", "100"]), ("90", ["--timeout", "450"]), ("0", [])])
def test_a_job_may_last_as_long_as_five_of_the_waits_that_the_user_allows(seconds, words, monkeypatch):
    monkeypatch.setenv("PYSHMEM_WAIT_TIMEOUT", seconds)
    commands = []
    monkeypatch.setattr(
        doctor.subprocess, "run", lambda command, **_: commands.append(command) or SimpleNamespace(returncode=0)
    )
    assert doctor._job(2, "calls") == 0
    assert commands[0][len(doctor.PYSHMEMRUN) : -3] == ["-n", "2", *words]


def test_a_job_that_crashes_is_named_with_what_to_try(tmp_path):
    program = """
from pyshmem.launch.doctor import command as doctor
from pyshmem.launch.doctor import memory_kinds, report
from pyshmem.launch import info
info.show = lambda: []
doctor.gpus = lambda: 2
doctor._timed = lambda n: []
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
from types import SimpleNamespace
import pyshmem as shmem
from pyshmem.launch.doctor import call_checks, examination
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
    assert lines[0] == "put: FAILED: PE 0: from PE 1: 1000 of 1000 elements differ; (0,): got 1000001, not 1000000", out
    assert lines[1] == "get: ok  cpu heap, 2 x 2 PEs"
    assert lines[2].startswith("atomic: FAILED: PE 0: [2, 259] after additions of all PEs; expected [2, 257]")
    assert "PE 1: ArgumentError: no sum" in lines[3]
    assert out.count("try: ") == 3 and "try: PYSHMEM_HIP_MEMORY=uncached" in out


# ---- on the stand-in for AMD's driver ----

JOB = """
import json, resource
from pyshmem.launch.doctor import device_checks, graph_checks, mapping_checks
from pyshmem.launch.doctor.examination import told
mappings = mapping_checks._MAPPINGS
graph_checks.SLOW_BYTES = 1 << 20  # the stand-in needs no time
set_limit, limit = resource.setrlimit, resource.getrlimit(resource.RLIMIT_NOFILE)
def examined(version="7.14", devices="0,1", fail=("", 0), arch="gfx942", own="", alone={}, only=None, **options):
    standin = Standin(sys.argv[1], version=version, devices=devices[me] if devices == "hidden" else devices, **options, **(alone if me else {}))
    driver = Driver("hip", 0 if devices == "hidden" else me, standin.path)
    if me == 1:
        exec(own, globals() | locals())
        standin.fail(*fail)
    def found():
        yield from device_checks.examine(driver, node, arch if me else "gfx942")
        mapping_checks._MAPPINGS = {name: way for name, way in mappings.items() if only is None or name in only}
        yield from mapping_checks.examine(driver, node)
    status = told("mapping", node, found())
    assert node.allgather(status) == [status] * n
    left = standin.ledger()
    assert left[:6] == Ledger()[:6], left
    standin.library.hipGetLastError()
    os.environ.pop("GPU_MAX_HW_QUEUES", None)
    resource.setrlimit = set_limit
    set_limit(resource.RLIMIT_NOFILE, limit)
for name, fault in json.loads(sys.argv[2]).items():
    if me == 0:
        print("==", name, flush=True)
    examined(**fault)
"""
RIGHT = {
    "ROCm 7.0": {"version": "7.0"},
    "ROCm 7.1": {"version": "7.1"},
    "ROCm 7.14": {},
    "one visible GPU for each PE": {"devices": "hidden"},
    "no virtual memory management": {"vmm": False},
}
NO_ACCESS = "hipMemSetAccess returned 1, invalid argument"
NOT_RAISED = "set_limit(resource.RLIMIT_NOFILE, (200, limit[1])); resource.setrlimit = lambda *limits: None"
# only: the mappings that are examined. What PE 1 has, the check that fails, what is said of it, and what to try
FAULTS = {
    "an architecture that kernels have no fences for": (
        {"arch": "gfx1100", "only": ()}, "architecture", "PE 1: init refuses a gfx1100 (RDNA: Triton from 3.6", "PYSHMEM_ALLOW_ARCH=1, which nobody"),
    "chiplets that the driver does not know": (
        {"fail": ("hipDeviceGetAttribute", 1, 1), "only": ()}, "chiplets", "PE 1: the driver says 0 chiplets of a gfx942; expected 1 to 8", "a newer ROCm"),
    "chiplets of another partition": (
        {"alone": {"chiplets": 6}, "only": ()}, "chiplets", "PE 1: 6 chiplets, 8 on PE 0", "amd-smi set --compute-partition"),
    "queues that are shared": (
        {"own": "os.environ['GPU_MAX_HW_QUEUES'] = '2'", "only": ()}, "queues", "PE 1: GPU_MAX_HW_QUEUES is 2: a kernel may stand behind", "unset GPU_MAX_HW_QUEUES"),
    "edges of graphs dropped": (
        {"alone": {"drops": 1}, "only": ()}, "graphs", "PE 1: 2 of 7 children of a graph's node did not wait", "DEBUG_HIP_FORCE_GRAPH_QUEUES=8"),
    "a graph that cannot be made": (
        {"fail": ("hipGraphInstantiate", 1), "only": ()}, "graphs", "PE 1: hipGraphInstantiate returned 999", "graphs of your own"),
    "a limit of descriptors": (
        {"own": NOT_RAISED, "only": ()}, "descriptors", "open files, limit 200; expected 5", "raise the hard limit of open files (ulimit -Hn"),
    "an error from before": (
        {"own": "standin.library.hipFree(4096)", "only": ()}, "last error at the start", "PE 1: error 1 is kept", "call torch.cuda.synchronize() after"),
    "the error of peer access kept": (
        {"own": "driver._code = lambda name, *values: driver._calls[name](*values)", "only": ("hip IPC, coarse", "hip IPC, fine")},
        "last error after IPC, fine", "PE 1: error 704 is kept", "call torch.cuda.synchronize() after"),
    "an import that the kernel refuses": (
        {"alone": {"hidden": 1}, "only": ("hip virtual memory, coarse",)}, "virtual memory, coarse", "the job's control group hides the other PE's GPU", "PYSHMEM_PEER_MAP=ipc"),
    "no memory for growth": (
        {"fail": ("hipMemCreate", 2, 2), "only": ("hip virtual memory, coarse",)}, "virtual memory, coarse", "PE 1: hipMemCreate returned 2, out of memory", "PYSHMEM_PEER_MAP=ipc"),
    "growth that gets no access": (
        {"fail": ("hipMemSetAccess", 3, 1), "only": ("hip virtual memory, coarse",)}, "virtual memory, coarse", f"PE 1: {NO_ACCESS}", "PYSHMEM_PEER_MAP=ipc"),
    "a copy that fails": (
        {"fail": ("hipMemcpyAsync", 2), "only": ("hip virtual memory, coarse",)}, "virtual memory, coarse", "PE 1: a copy to PE 0: hipMemcpyAsync returned 999", "PYSHMEM_PEER_MAP=ipc"),
    "copies that are lost": (
        {"own": "standin.lose()", "only": ("hip virtual memory, coarse",)}, "virtual memory, coarse", "a word of PE 1 there is 0; expected 1001000", "PYSHMEM_PEER_MAP=ipc"),
    "no uncached virtual memory": (
        {"fail": ("hipMemCreate", 1, 1), "only": ("hip virtual memory, uncached",)}, "virtual memory, uncached", "PE 1: hipMemCreate returned 1", "PYSHMEM_PEER_MAP=ipc"),
    "IPC refused": (
        {"fail": ("hipIpcOpenMemHandle", 1, 1), "only": ("hip IPC, coarse",)}, "IPC, coarse", "set HSA_ENABLE_IPC_MODE_LEGACY to 0 or to 1", "PYSHMEM_PEER_MAP=vmm"),
    "no fine memory": (
        {"fail": ("hipExtMallocWithFlags", 1), "only": ("hip IPC, fine",)}, "IPC, fine", "PE 1: hipExtMallocWithFlags returned 999", "PYSHMEM_PEER_MAP=vmm"),
}  # fmt: skip


@pytest.fixture(scope="module")
def reports(library, tmp_path_factory):
    """What doctor prints about each, from one job of two PEs."""
    cases = {**RIGHT, **{name: fault for name, (fault, *_) in FAULTS.items()}}
    status, out, err = mpiexec(
        2, HEAD + JOB, str(library), json.dumps(cases), tmp_path=tmp_path_factory.mktemp("doctor")
    )
    assert status == 0, out + err
    return dict(each.split("\n", 1) for each in out.split("== ")[1:])


@pytest.mark.parametrize("name", RIGHT)
def test_doctor_finds_nothing_where_the_driver_has_no_fault(name, reports):
    checks = re.findall(r"^.{10} (.+?): (\w+)", reports[name], re.MULTILINE)
    assert {said for _, said in checks} == {"ok"}, reports[name]
    ways = {"virtual memory, coarse", "virtual memory, uncached", "IPC, coarse", "IPC, fine", "IPC, uncached"}
    assert {check for check, _ in checks} >= ways | {"architecture", "chiplets", "queues", "graphs", "descriptors"}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_of_the_driver_is_named_with_the_setting_to_try(name, reports):
    _, check, words, advice = FAULTS[name]
    ((failed, said, tried),) = re.findall(r"^.{10} (.+?): FAILED: (.+)\n +try: (.+)$", reports[name], re.MULTILINE)
    assert failed == check and words in said and advice in tried, reports[name]


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        ({"torch": "2.10.0+rocm7.0"}, "torch >= 2.11; 2.10 is installed: pip install -U torch --index-url"),
        ({"torch": "2.11.0+rocm7.1", "triton": "", "triton-rocm": "3.5.1"}, "triton >= 3.6; 3.5 is installed: pip install -U torch"),
    ],
    ids=["torch", "triton"],
)  # fmt: skip
def test_a_version_that_does_not_work_is_named_with_the_line_to_install_and_no_job_starts(
    installed, words, monkeypatch, capsys
):
    real = requirements.version_of
    monkeypatch.setattr(requirements, "version_of", lambda name: installed[name] if name in installed else real(name))
    monkeypatch.setattr(info, "SECTIONS", {"pyshmem": info.SECTIONS["pyshmem"]})
    monkeypatch.setattr(doctor, "_job", lambda n, part: pytest.fail("a job started"))
    assert doctor.main(["-n", "2"]) == 1
    said = capsys.readouterr().out
    assert f"missing    pyshmem needs {words}" in said and "whl/rocm7.2" in said, said
    assert said.endswith("doctor: nothing was examined: every job needs what is missing\n")


# ---- large messages and times ----


def test_large_messages_of_kernels_reach_all_pes_and_the_first_that_did_not_is_named(tmp_path):
    """Small ones here, in chunks of all programs, the last of which is shorter; the loss of one is noticed."""
    program = """
import pyshmem as shmem
from pyshmem.launch.doctor import large_checks
shmem.init()
print(large_checks.large(8 * 1003) == [""] * shmem.n_pes(), flush=True)
launch = large_checks.write_all
class Losing:
    def __getitem__(self, grid):
        def run(ctx, inbox, message, n, each):
            launch[grid](ctx, inbox, message, n, each)
            if shmem.my_pe() == 1:
                shmem.p(inbox[1, 777:778], 5, 0)
                shmem.quiet()
        return run
large_checks.write_all = Losing()
found = large_checks.large(8 * 1003)
assert found == ["", "from PE 1: element 777 is 5; expected 1780"] if shmem.my_pe() == 0 else found == ["", ""], found
"""
    status, out, err = mpiexec(2, program, tmp_path=tmp_path)
    assert (status, out) == (0, "True\n" * 2), out + err


@pytest.mark.parametrize("n", [2, 3])
def test_signals_and_barriers_of_kernels_are_timed_and_the_largest_time_is_said_once(n, tmp_path):
    program = """
import sys
from types import SimpleNamespace
from pyshmem.launch.doctor import examination
sys.exit(examination.main("times", sys.argv[1]))
"""
    status, out, err = mpiexec(n, program, str(tmp_path / "times"), tmp_path=tmp_path)
    assert (status, out) == (0, ""), out + err
    found = memory_kinds.read(tmp_path / "times")
    assert set(found) == {"signal", "barrier"} and all(0 < us < 1e7 for us in found.values())


@pytest.mark.parametrize(
    ("uncached", "words"),
    [
        ({"signal": 1.5, "barrier": 4.0}, "set PYSHMEM_HIP_MEMORY=uncached"),
        ({"signal": 1.5, "barrier": 5.2}, "coarse is as good"),
        ({"signal": 1.95, "barrier": 4.95}, "coarse is as good"),
    ],
)
def test_a_kind_of_memory_is_proposed_if_signals_and_barriers_are_both_faster_there(uncached, words):
    lines = memory_kinds.said({"coarse": {"signal": 2.0, "barrier": 5.0}, "uncached": uncached}, "coarse")
    assert lines[0] == "coarse: a signal 2.0 us, a barrier 5.0 us" and lines[-1].startswith(words)


@pytest.mark.parametrize(("n", "gpus", "device", "wanted"), [(2, 1, "", True), (2, 2, "", False), (2, 2, "0", True)])
def test_times_of_pes_that_share_a_gpu_are_said_to_be_those_of_its_time_slices(n, gpus, device, wanted, monkeypatch):
    """No kind of memory is proposed after them."""
    monkeypatch.setattr(doctor, "gpus", lambda: gpus)
    monkeypatch.setenv("PYSHMEM_DEVICE", device)
    assert doctor.shared(n) == wanted
    found = {"coarse": {"signal": 3514.1, "barrier": 7028.0}, "uncached": {"signal": 1.5, "barrier": 4.0}}
    lines = memory_kinds.said(found, "coarse", doctor.shared(n))
    assert lines[0].startswith("PEs share one GPU") == wanted and lines[-1].startswith("set PYSHMEM") != wanted


def test_where_one_kind_of_memory_could_be_timed_none_is_proposed():
    assert memory_kinds.said({"uncached": {"signal": 2.0, "barrier": 5.0}}, "coarse") == [
        "uncached: a signal 2.0 us, a barrier 5.0 us"
    ]
    assert memory_kinds.said({}, "coarse") == []


@pytest.mark.parametrize(
    ("hip", "arch", "wanted"),
    [
        ("7.2", "gfx942:sramecc+", ("coarse", "uncached")),
        ("7.2", "gfx90a", ("uncached",)),
        (None, "", ("GPU memory",)),
    ],
)
def test_kinds_of_memory_in_which_flags_may_stay_unseen_are_not_timed(hip, arch, wanted, monkeypatch):
    cuda = SimpleNamespace(get_device_properties=lambda index: SimpleNamespace(gcnArchName=arch))
    monkeypatch.setattr(
        doctor, "import_module", lambda name: SimpleNamespace(version=SimpleNamespace(hip=hip), cuda=cuda)
    )
    assert doctor.kinds() == wanted


# ---- the report ----


def test_a_report_has_what_doctor_prints_and_the_files_that_are_added_and_no_names(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("USER", "maria.k")
    monkeypatch.setattr(report.platform, "node", lambda: "tux-04.lab.example")
    (tmp_path / "tests.txt").write_text("4 passed, on tux-04 for maria.k in /home/other/src, ask a.b@lab.example\n")
    program = "print('tux-04.lab.example: Linux'); print('/scratch/maria.k_1/x', 'tux-045', 'vmm'); raise SystemExit(1)"
    status = report.write(tmp_path / "out", [sys.executable, "-c", program], [tmp_path / "tests.txt"])
    text = (tmp_path / "out").read_text()
    assert status == 1 and "tux-04.lab.example: Linux" in capsys.readouterr().out
    assert text.startswith("== pyshmem doctor\nHOST: Linux\n/scratch/USER_1/x tux-045 vmm\n\n==")
    assert text.endswith("== tests.txt\n4 passed, on HOST for USER in /home/USER/src, ask ADDRESS\n\n")


def test_a_report_names_the_versions_of_the_drivers_of_this_machine(tmp_path, monkeypatch):
    (tmp_path / "version").write_text("7.14.0-12\n")
    monkeypatch.setattr(report, "DRIVERS", (str(tmp_path / "version"), str(tmp_path / "none")))
    report.write(tmp_path / "out", [sys.executable, "-c", "print('crashed', file=__import__('sys').stderr)"], [])
    assert re.search(r"^crashed\n\n== \S+version\n7\.14\.0-12\n\n$", (tmp_path / "out").read_text(), re.MULTILINE)


def test_doctor_with_a_report_runs_itself_and_refuses_files_that_there_are_not(tmp_path, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(report, "write", lambda *arguments: ran.append(arguments) or 0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests.txt").touch()
    assert doctor.main(["-n", "3", "--report", "out", "--add", "tests.txt"]) == 0
    ((path, command, added),) = ran
    assert path == tmp_path / "out" and command[1:] == ["-m", "pyshmem", "doctor", "-n", "3"]
    for arguments in (["--add", "tests.txt"], ["--report", "out", "--add", "none.txt"]):
        with pytest.raises(SystemExit):
            doctor.main(arguments)
    assert "got none.txt, which is no file" in capsys.readouterr().err
