"""The environment variables: what a text means, which name wins, and how much memory the default heap takes."""

import os
import re

import pytest
from jobs import mpiexec
from other_users import needs_root

import pyshmem as shmem
from pyshmem.base import environment, parsers
from pyshmem.start import local_cache

SIZES = {
    "0": 0, "20": 20, "4096": 4096, "20m": 20971520, "20M": 20971520, "1k": 1024, "2G": 2 << 30, "1t": 1 << 40, "3T": 3 << 40,
    "3.1M": 3250586,  # the specification's: ceil(3.1 * 2**20)
    ".5m": 524288, "0.5m": 524288, "1.5g": 3 << 29, "1.m": 1 << 20, "0.1": 1, "1.5": 2, "1.0": 1, ".1k": 103, "1e": None,
    "20kk": 20480, "20kB": 20480, "20 kB": None, "20KiB": 20480, "20k ": 20480, " 20k": 20480, "8mb of memory": 8 << 20,
    "9007199254740993": 9007199254740993, "0.0009765625k": 1, "9007199254740993.5k": 9223372036854777344,  # no float between
    "": None, " ": None, "m": None, ".": None, ".m": None, "k20": None, "-1": None, "-0.5k": None, "+1": None, "1e3": 1000, "1e6": 1000000, "1.5E3k": 1536000,
    "1x": None, "0x10": None, "inf": None, "nan": None, "1,5m": None, "1.2.3": None, "1_000": None, "two": None,
}  # fmt: skip
FLAGS = {
    "1": True,
    "yes": True,
    "any": True,
    "0 0": True,
    "": False,
    "0": False,
    "no": False,
    "OFF": False,
    " false ": False,
}
SECONDS = {
    "300": 300.0,
    "0": 0.0,
    "0.5": 0.5,
    "1e3": 1000.0,
    "-1": None,
    "soon": None,
    "": None,
    "nan": None,
    "inf": None,
}


@pytest.mark.parametrize("text", SIZES, ids=repr)
def test_a_size_is_a_number_times_the_first_letter_of_its_unit_rounded_up(text):
    if SIZES[text] is None:
        with pytest.raises(ValueError, match=r"^a number of bytes, 0 or more, with an optional unit k, m, g or t"):
            parsers.parse_size(text)
    else:
        assert parsers.parse_size(text) == SIZES[text]


@pytest.mark.parametrize("text", FLAGS, ids=repr)
def test_a_flag_is_set_by_anything_that_does_not_say_no(text):
    assert parsers.parse_flag(text) is FLAGS[text]


@pytest.mark.parametrize("text", SECONDS, ids=repr)
def test_seconds_are_a_finite_number_not_below_0(text):
    if SECONDS[text] is None:
        with pytest.raises(ValueError, match=r"^a number of seconds, 0 for no limit$"):
            parsers.parse_seconds(text)
    else:
        assert parsers.parse_seconds(text) == SECONDS[text]


@pytest.fixture
def variables(monkeypatch):
    """No variable of pyshmem is set; what a test sets is taken back."""
    for row in environment.VARIABLES.values():
        for name in (row.name, row.alias):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSHMEM_CONFIG", "")
    return monkeypatch


@pytest.fixture
def site(variables, tmp_path):
    """Writes a site's file, which this process reads from then on."""
    files = iter(range(99))

    def write(text):
        path = tmp_path / f"{next(files)}.toml"
        path.write_text(text)
        variables.setenv("PYSHMEM_CONFIG", str(path))
        return path

    return write


@pytest.mark.parametrize("name", ["VERSION", "INFO", "SYMMETRIC_SIZE", "DEBUG"])
def test_the_old_names_work_and_the_new_ones_win(name, variables):
    variables.setenv(f"SMA_{name}", "1")
    assert environment.read(f"SHMEM_{name}") == 1
    variables.setenv(f"SHMEM_{name}", "0")
    assert environment.read(f"SHMEM_{name}") == 0


@pytest.mark.parametrize("used, asked", [("SHMEM_SYMMETRIC_SIZE", "SHMEM_SYMMETRIC_SIZE"), ("SMA_SYMMETRIC_SIZE", "SHMEM_SYMMETRIC_SIZE"),
                                         ("PYSHMEM_WAIT_TIMEOUT", "PYSHMEM_WAIT_TIMEOUT"), ("PYSHMEM_HEAP", "PYSHMEM_HEAP")])  # fmt: skip
def test_a_text_without_meaning_is_refused_by_the_name_that_was_used(used, asked, variables):
    variables.setenv(used, "-x-")
    with pytest.raises(shmem.ArgumentError, match=rf"^init: PE \?: {used}: got '-x-'; expected \w+"):
        environment.read(asked)


def test_the_listing_shows_every_variable_with_its_value(variables):
    variables.setenv("PYSHMEM_WAIT_TIMEOUT", "7.5")
    listing = environment.listing({"SHMEM_SYMMETRIC_SIZE": "4096"})
    rows = dict(reversed(line.split(None, 2)[:2]) for line in listing.splitlines()[1:])
    assert set(rows) == set(environment.VARIABLES)
    assert (rows["SHMEM_SYMMETRIC_SIZE"], rows["PYSHMEM_WAIT_TIMEOUT"], rows["SHMEM_DEBUG"]) == ("4096", "7.5", "False")


@pytest.mark.parametrize(
    "free, pes, size",
    [(1 << 40, 1, 1 << 30), (1 << 40, 64, 1 << 30), (1 << 30, 4, 1 << 27), (10_000_000, 3, 1_662_976), (0, 2, 0)],
)
def test_the_default_heap_is_1_gib_or_the_pes_share_of_half_the_free_memory(free, pes, size, variables):
    variables.setattr(environment, "available_memory", lambda: free)
    assert environment.heap_bytes(None, pes) == size and size % 4096 == 0


@pytest.mark.parametrize("asked, size", [("1m", 1 << 20), (1, 4096), (4097, 8192), (0, 0), ("3.1M", 3252224)])
def test_a_heap_has_the_size_asked_for_in_whole_pages(asked, size, variables):
    assert environment.heap_bytes(environment.asked_bytes(asked), 1) == size
    variables.setenv("SHMEM_SYMMETRIC_SIZE", "2m")
    assert environment.asked_bytes(asked) == size  # the argument wins
    assert environment.asked_bytes(None) == 2 << 20


@pytest.mark.parametrize("asked", [-1, 1.5, True, [1], "12q", b"1m"])
def test_a_heap_of_no_size_is_refused(asked, variables):
    with pytest.raises(shmem.ArgumentError, match=rf"^init: PE \?: heap_size: got {re.escape(repr(asked))}; expected "):
        environment.asked_bytes(asked)


def test_a_heap_in_cpu_memory_beside_a_gpu_s_is_no_larger_than_if_nobody_asked(variables):
    variables.setattr(environment, "available_memory", lambda: 1 << 40)
    assert environment.heap_bytes(100 << 30, 4, main=False) == 1 << 30
    assert environment.heap_bytes(1 << 20, 4, main=False) == 1 << 20


def test_a_heap_beyond_the_free_memory_of_all_pes_is_refused(variables):
    variables.setattr(environment, "available_memory", lambda: 1 << 30)
    assert environment.heap_bytes(1 << 28, 4) == 1 << 28
    with pytest.raises(
        shmem.HeapExhaustedError,
        match=r"^init: PE \?: heap_size: got 268439552 bytes for each of 4 PEs; expected at most 1073741824",
    ):
        environment.heap_bytes((1 << 28) + 4096, 4)


def test_available_memory_is_what_the_machine_has_or_less():
    with open("/proc/meminfo") as meminfo:
        total = int(re.search(r"MemTotal: +(\d+)", meminfo.read())[1]) * 1024
    assert 0 < environment.available_memory() <= total


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"SHMEM_SYMMETRIC_HEAP_SIZE": "1g"}, [("SHMEM_SYMMETRIC_HEAP_SIZE", "SHMEM_SYMMETRIC_SIZE")]),
        ({"SHMEM_SYMMETRIC_HEAP_SIZE": "1g", "SHMEM_SYMMETRIC_SIZE": "1g"}, []),  # for another library
        ({"PYSHMEM_JOB_DIR": "/tmp", "SHMEM_BARRIER_ALGORITHM": "tree", "SYMMETRIC_SIZE": "1"}, []),
    ],
)
def test_a_variable_that_is_nearly_one_of_ours_is_found(given, found, monkeypatch):
    for name in environment.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    assert environment.misspelt() == found


def test_a_site_sets_what_the_user_has_not(site, variables):
    path = site('PYSHMEM_WAIT_TIMEOUT = 60\nSHMEM_SYMMETRIC_SIZE = "2m"\nSHMEM_DEBUG = true\nPYSHMEM_HEAP = "cpu"\n')
    variables.setenv("PYSHMEM_HEAP", "cuda")
    variables.setenv("SMA_SYMMETRIC_SIZE", "1m")
    wanted = {
        "PYSHMEM_WAIT_TIMEOUT": 60.0,
        "SHMEM_SYMMETRIC_SIZE": 1 << 20,
        "SHMEM_DEBUG": True,
        "PYSHMEM_HEAP": "cuda",
    }
    assert {name: environment.read(name) for name in wanted} == wanted
    assert environment.setting("PYSHMEM_WAIT_TIMEOUT") == ("60", str(path))
    assert environment.setting("SHMEM_SYMMETRIC_SIZE") == ("1m", "SMA_SYMMETRIC_SIZE")
    assert f"[from {path}]" in next(line for line in environment.listing({}).splitlines() if "WAIT_TIMEOUT" in line)


OF_C = ("PYSHMEM_C_START", "PYSHMEM_PYTHON", "PYSHMEM_SYMMETRIC_LIBS")  # which C programs read before there is Python
# values of the rows that no number is one of
VALUES = {"PYSHMEM_DUMP": '"SIGUSR1"', "PYSHMEM_HEAP": '"cpu"', "PYSHMEM_PEER_MAP": '"ipc"', "PYSHMEM_HIP_MEMORY": '"fine"',
          "PYSHMEM_FAR": '"tcp"', "PYSHMEM_AMO": '"tcp"', "PYSHMEM_LOCAL_CACHE": '"/tmp"', "PYSHMEM_CHECK": "false",
          "PYSHMEM_TRACE": '"out.json"', "PYSHMEM_RACE_TRACES": '"/tmp"'}  # fmt: skip


@pytest.mark.parametrize("name", environment.VARIABLES)
def test_an_empty_variable_is_an_unset_one(name, site, variables):
    row = environment.VARIABLES[name]
    for used in filter(None, (name, row.alias)):
        variables.setenv(used, "")
    assert environment.read(name) == row.default
    if name not in OF_C:
        site(f"{name} = {VALUES.get(name, 7)}")
        assert environment.read(name) not in (row.default, None)


@pytest.mark.parametrize("text, words", [
    ("PYSHMEM_WAIT_TIME = 1", "PYSHMEM_WAIT_TIME is none"), *((f"{name} = 1", f"{name} is none") for name in OF_C), ("PYSHMEM_HEAP = []", r"PYSHMEM_HEAP; it has \[\]"), ("a b", "a file of variables and values"),
])  # fmt: skip
def test_a_sites_file_of_anything_else_is_refused(text, words, site):
    path = site(text)
    with pytest.raises(shmem.ArgumentError, match=rf"^init: PE \?: PYSHMEM_CONFIG: got '{path}'; expected .*{words}"):
        environment.read("SHMEM_DEBUG")


def test_a_value_of_the_site_without_meaning_is_refused_with_its_file(site):
    path = site('PYSHMEM_HEAP = "disk"')
    with pytest.raises(shmem.ArgumentError, match=rf"PYSHMEM_HEAP of {path}: got 'disk'; expected cpu or cuda"):
        environment.read("PYSHMEM_HEAP")


def test_a_file_that_is_not_there_is_refused_if_it_was_named(variables):
    variables.setenv("PYSHMEM_CONFIG", "/none/pyshmem.toml")
    with pytest.raises(shmem.ArgumentError, match="No such file"):
        environment.read("SHMEM_DEBUG")


CACHED = """
import os, stat
import pyshmem as shmem
from mpi4py import MPI

own = f"{os.environ['PYSHMEM_LOCAL_CACHE']}/pyshmem-{os.getuid()}"
try:
    shmem.init()
except shmem.ArgumentError as error:
    print(error, flush=True)
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    os.rmdir(own)
MPI.COMM_WORLD.Barrier()
shmem.init()
import triton
assert triton.knobs.cache.dir == own and stat.S_IMODE(os.stat(own).st_mode) == 0o700
print("cached", flush=True)
"""


def test_triton_keeps_its_kernels_on_the_disk_of_the_node_if_nobody_else_may_write_there(tmp_path):
    """It executes what it finds. A folder that another user has made ready in /tmp is refused, on all PEs."""
    own = tmp_path / f"pyshmem-{os.getuid()}"
    own.mkdir()
    own.chmod(0o770)
    status, out, err = mpiexec(
        2, CACHED, tmp_path=tmp_path, environment={"PYSHMEM_LOCAL_CACHE": str(tmp_path), "TRITON_CACHE_DIR": ""}
    )
    said = rf"PE \d: PYSHMEM_LOCAL_CACHE: got '{tmp_path}'; expected {own} on \S+ to be a folder of this user, in which nobody"
    assert status == 0 and len(re.findall(said, out)) == 2 and out.count("cached") == 2, (out, err)


def test_a_cache_that_the_user_has_chosen_is_kept_and_one_that_cannot_be_made_is_refused(variables, tmp_path):
    variables.setenv("TRITON_CACHE_DIR", "/chosen")
    variables.setenv("PYSHMEM_LOCAL_CACHE", "/absent")
    local_cache.settle()
    assert os.environ["TRITON_CACHE_DIR"] == "/chosen"
    variables.delenv("TRITON_CACHE_DIR")
    with pytest.raises(shmem.ArgumentError, match=r"got '/absent'; expected a folder of \S+ .*; No such file"):
        local_cache.settle()
    variables.setenv("PYSHMEM_LOCAL_CACHE", "tmp")
    with pytest.raises(shmem.ArgumentError, match="got 'tmp'; expected the absolute path of a folder"):
        local_cache.settle()


@pytest.mark.parametrize("mode, refused", [(0o777, True), (0o775, True), (0o1777, False), (0o755, False)])
def test_a_cache_below_a_folder_in_which_others_may_replace_it_is_refused(mode, refused, variables, tmp_path):
    above = tmp_path / "above"
    (above / "parent").mkdir(parents=True)
    above.chmod(mode)
    variables.setenv("TRITON_CACHE_DIR", "")
    variables.setenv("PYSHMEM_LOCAL_CACHE", str(above / "parent"))
    if refused:
        with pytest.raises(shmem.ArgumentError, match=rf"expected a folder that no other user .* as {above} can be"):
            local_cache.settle()
    else:
        local_cache.settle()
    assert refused == (not os.environ["TRITON_CACHE_DIR"])


@needs_root
def test_a_cache_in_a_folder_of_another_user_is_refused(variables, tmp_path):
    os.chown(tmp_path, 1, 1)
    variables.setenv("TRITON_CACHE_DIR", "")
    variables.setenv("PYSHMEM_LOCAL_CACHE", str(tmp_path))
    with pytest.raises(shmem.ArgumentError, match=f"no other user .* as {tmp_path} can be"):
        local_cache.settle()


@pytest.mark.parametrize("content", [b"\xff", b"x = " + b"[" * 50_000, b"= 1"])
def test_a_site_s_file_of_any_content_is_refused_by_name(content, variables, tmp_path):
    path = tmp_path / "site.toml"
    path.write_bytes(content)
    variables.setenv("PYSHMEM_CONFIG", str(path))
    with pytest.raises(shmem.ArgumentError, match=rf"PYSHMEM_CONFIG: got '{path}'; expected a file of variables"):
        environment.read("SHMEM_DEBUG")


# what a text may be by mistake: beyond every bound, of another kind, of another encoding, of two lines
TEXTS = [
    "0", "1", "100", "-1", "-0", "+5", "1.5", "1e400", "1e999999999999999999999", ".", "9" * 5000, "9" * 19, "0." + "0" * 5000 + "1",
    "2 ** 8", "nan", "-inf", "1e-320", "x", "X" * 5000, "two\nlines", "\u0663", "\u00b2", "\udcff", "/", "/nowhere/at/all", "/dev/null",
    "/" + "n" * 5000, "SIGKILL", "STOP", "SIGSEGV", "SIG", "auto", "mpi", "none", "8589934592g", "17e18", "x.json", "'", "%s{}$(",
]  # fmt: skip


@pytest.mark.parametrize("name", environment.VARIABLES)
def test_whatever_a_variable_has_it_has_a_meaning_or_one_line_refuses_it(name, variables):
    for text in TEXTS:
        variables.setenv(name, text)
        try:
            environment.read(name)
        except shmem.ArgumentError as error:
            said = str(error)
            assert said.startswith(f"init: PE ?: {name}: got ") and "; expected " in said
            assert "\n" not in said and len(said) < 400, said
        else:
            environment.listing({})


BOUNDS = [
    (parsers.parse_size, "16777215t", "16777216t"),
    (parsers.parse_size, str((1 << 64) - 1), str(1 << 64)),
    (parsers.count(10, 2), "2", "1"),
    (parsers.count(10, 2), "10", "11"),
    (parsers.parse_seconds, "999999999", "1e9"),
    (parsers.parse_signal, "usr1", "KILL"),
    (parsers.parse_signal, "SIGTERM", "SIGSTOP"),
    (parsers.parse_signal, "SIGRTMAX", "SIGABRT"),
    (parsers.parse_writable, "/tmp", "/nowhere"),
]


@pytest.mark.parametrize("parse, good, bad", BOUNDS, ids=[f"{parse.__name__} {bad}" for parse, _, bad in BOUNDS])
def test_each_parser_knows_its_bounds(parse, good, bad):
    parse(good)
    with pytest.raises(ValueError):
        parse(bad)


def test_no_time_is_so_short_that_it_counts_as_none():
    assert parsers.parse_seconds("1e-320") > 0 and parsers.parse_seconds("0.0") == 0


@pytest.mark.parametrize("asked", [1 << 64, 10**5000, "9" * 5000, -(10**5000)], ids=lambda asked: str(type(asked)))
def test_a_heap_of_any_number_of_digits_is_refused_in_one_line(asked, variables):
    with pytest.raises(shmem.ArgumentError, match=r"^init: PE \?: heap_size: got .{1,100}; expected ") as refused:
        environment.asked_bytes(asked)
    assert len(str(refused.value)) < 400


FUZZED = """
import os, sys
import torch
import pyshmem as shmem

for name in NAMES:
    for text in TEXTS:
        os.environ[name] = text
        try:
            shmem.init(heap_size="1m", device="cpu")
        except shmem.ShmemError as error:
            assert name in str(error) and "\\n" not in str(error), (name, text, error)
        else:
            x = torch.ones(1000)
            try:
                shmem.sum_reduce(x, x)
            except shmem.HeapExhaustedError as error:
                assert "PYSHMEM_STAGING" in str(error), (name, text, error)
            else:
                assert x[0] == shmem.n_pes(), (name, text)
            shmem.finalize()
        del os.environ[name]
print("all")
"""
# what init reads; what is read at import has the test above
OF_INIT = [name for name in environment.VARIABLES if name not in ("PYSHMEM_NVTX", "PYSHMEM_TRACE", "SHMEM_INFO", "SHMEM_VERSION",
           "PYSHMEM_REPORT", "PYSHMEM_WAIT_TIMEOUT", "PYSHMEM_QUIET", "PYSHMEM_CHECK", "PYSHMEM_RACE_TRACES")]  # fmt: skip
FEW = ["0", "1", "100", "20k", "-1", "9" * 5000, "1e30", "900t", "x", "/nowhere", "SIGKILL", "\udcff"]


@pytest.mark.parametrize("pes", [1, 2])
@pytest.mark.parametrize("part", range(3))
def test_init_with_any_setting_works_or_is_refused_on_all_pes_by_the_variable_s_name(part, pes, tmp_path):
    """No PE hangs, and none ends with another error: 0, 1 and 100 bytes of scratch memory gave a ValueError."""
    program = FUZZED.replace("NAMES", repr(OF_INIT[part::3])).replace("TEXTS", ascii(FEW))
    status, out, err = mpiexec(pes, program, tmp_path=tmp_path)
    assert (status, out.count("all")) == (0, pes), err


@pytest.mark.parametrize("name", ["PYSHMEM_SCRATCH", "PYSHMEM_STAGING"])
def test_memory_beside_the_heap_that_no_machine_has_is_refused(name, tmp_path):
    """It hung, or the system killed the job."""
    program = (
        "import pyshmem as shmem\ntry:\n    shmem.init()\nexcept shmem.HeapExhaustedError as error:\n    print(error)\n"
    )
    out = mpiexec(2, program, tmp_path=tmp_path, environment={name: "900t"})[1]
    said = (
        rf"init: PE [01]: {name}: got {900 << 40} bytes for each of 2 PEs; expected at most \d+ bytes in all, the free"
    )
    assert len(re.findall(said, out)) == 2, out


def test_the_heap_and_its_scratch_memory_fit_together(variables):
    """A heap without a size gets less; before, both together could be more than the machine has."""
    from pyshmem.start import census

    answer = census.Answer(0, 0, "host", 1, 1 << 30, None, 0, None, None, None, 0, None, "", False)
    variables.setattr(census.job, "scratch", 400 << 20)
    variables.setattr(census.job, "staging", None)
    assert census.heap_bytes([answer] * 2) == ((1 << 30) - (800 << 20)) // 4 // 4096 * 4096
    variables.setattr(census.job, "scratch", 600 << 20)
    with pytest.raises(shmem.HeapExhaustedError, match="PYSHMEM_SCRATCH: got 629145600 bytes for each of 2 PEs"):
        census.heap_bytes([answer] * 2)
