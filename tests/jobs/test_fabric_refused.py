"""The choice of a carrier: what keeps one PE from a fabric keeps all. `fabric` is refused with the reason, `auto` takes TCP and has it."""

import re
import shutil
import subprocess

import pytest
from fabrics import CALLS, CARRIERS, FABRIC, INFO, KIB, NODES, PROVIDER
from jobs import mpiexec


@pytest.mark.parametrize(
    "environment, said",
    [
        (NODES, r"tcp: the nodes are pretended"),
        (CARRIERS["tcp"], r"tcp: requested"),
        (NODES | {"PYSHMEM_FABRIC": "none"}, r"tcp: on PE 0 libfabric \d+\.\d+ offers .*tcp.*, and no none"),
        (FABRIC, r"fabric: tcp;ofi_rxm, libfabric \d+\.\d+"),
    ],
)
def test_shmem_info_names_the_carrier_and_why(environment, said, tmp_path):
    status, out, err = mpiexec(2, INFO, tmp_path=tmp_path, environment=environment | {"SHMEM_INFO": "1"})
    assert status == 0, err
    assert re.search(f"^Data to other nodes: {said}$", out, re.MULTILINE), out
    assert re.search(rf"^ +{said.partition(':')[0]}  PYSHMEM_FAR ", out, re.MULTILINE)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"PYSHMEM_FAR": "mpi"}, "PYSHMEM_FAR: got 'mpi'; expected fabric, which carries data without MPI's messages, or tcp, or auto"),
        ({"PYSHMEM_FAR": "rdma"}, "PYSHMEM_FAR: got 'rdma'; expected auto or tcp or fabric"),
        ({"PYSHMEM_FABRIC": "none"}, "PYSHMEM_FAR: got fabric, but on PE 0 libfabric"),
        ({"PYSHMEM_FAR": "tcp", "PYSHMEM_AMO": "fabric"}, "PYSHMEM_AMO: got fabric, but PYSHMEM_FAR is tcp: requested; expected tcp, or auto"),
    ],
)  # fmt: skip
def test_a_carrier_that_cannot_be_is_refused_by_name_on_all_pes(changes, said, tmp_path):
    status, _, err = mpiexec(2, INFO, tmp_path=tmp_path, environment=FABRIC | changes)
    assert status != 0 and err.count(said) >= 2, err


@pytest.mark.parametrize("name, values", [("PYSHMEM_FAR", ["fabric", "tcp"]), ("PYSHMEM_FABRIC", [PROVIDER, "shm"])])
def test_different_values_are_refused_on_all_pes(name, values, tmp_path):
    program = f"import os\nos.environ['{name}'] = {values}[int(os.environ['PMI_RANK']) % 2]\n" + INFO
    status, _, err = mpiexec(3, program, tmp_path=tmp_path, environment=FABRIC)
    said = f"{name}: got {values[0]} on PEs 0 and 2 and {values[1]} on PE 1; expected one value on all PEs"
    assert status != 0 and err.count(said) >= 2, err


DROPPED = """fabric.FABRICS = ("tcp",)
use = _native.fabric_use
if me == "1":
    _native.fabric_use = lambda least, trial, messaging: use(least, trial, 0)"""
LIMITED = """def fail(*words):
    raise OSError("fi_mr_reg: Cannot allocate memory")
if me == "1":
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    _native.fabric_open = fail"""
FAULTS = {  # what is done to a fabric, or to what PE 1 of two needs for it, and what is said of it
    "a provider that is early": ("_native.fabric_trial = lambda *words: False",
        "on PE 0 tcp;ofi_rxm, libfabric .* says that data are in place before they are"),
    "data that do not come": ("_native.far_get = lambda *words: None",
        "on PE 0 tcp;ofi_rxm, libfabric .* does not bring back what was written to PE 1"),
    "data that do not come to PE 1": ("if me == '1': _native.far_get = lambda *words: None",
        "on PE 1 tcp;ofi_rxm, libfabric .* does not bring back what was written to PE 0"),
    "requests that are dropped": (DROPPED,
        "on PE 0 init: PE 0: pe: got no answer from PE 1 on .*; expected one that can be reached.*"),
    "a version that differs": ("providers, _native.fabric_providers = _native.fabric_providers, lambda path: (1, int(me), providers(path)[2])",
        "PEs have different fabrics: tcp;ofi_rxm, libfabric 1.0 on PE 0 and tcp;ofi_rxm, libfabric 1.1 on PE 1"),
    "no library": ("if me == '1': fabric.library = lambda: '/nowhere/libfabric.so.1'",
        "on PE 1 no libfabric from 1.9 on can be loaded"),
    "a library that is too old": ("if me == '1': fabric.library = lambda: os.environ['OLD']",
        "on PE 1 no libfabric from 1.9 on can be loaded"),
    "no memory that may be locked": (LIMITED,
        r"on PE 1 fi_mr_reg: Cannot allocate memory \(ulimit -l: 65536 bytes may be locked\)"),
}  # fmt: skip
FAULTY = """
import os
import resource
from pyshmem.native import _native
from pyshmem.transport.far import fabric

get, me = _native.far_get, os.environ["PMI_RANK"]
{}
import pyshmem

pyshmem.init()
_native.far_get = get
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A library whose functions have no versions."""
    folder = tmp_path_factory.mktemp("old")
    (folder / "old.c").write_text("void fi_freeinfo(void) {}\nvoid fi_getinfo(void) {}\n")
    library = folder / "libold.so"
    subprocess.run([shutil.which("cc") or "gcc", "-shared", "-fPIC", folder / "old.c", "-o", library], check=True)
    return str(library)


@pytest.mark.parametrize("fault", FAULTS)
def test_tcp_takes_the_place_of_a_fabric_that_one_pe_lacks_or_that_fails_its_test_and_says_why(fault, old, tmp_path):
    code, said = FAULTS[fault]
    environment = FABRIC | {"PYSHMEM_FAR": "auto", "SHMEM_INFO": "1", "OLD": old}
    program = FAULTY.format(code) + CALLS
    status, out, err = mpiexec(2, program, "16", str(16 * KIB), tmp_path=tmp_path, environment=environment)
    assert status == 0 and re.search(f"^Data to other nodes: tcp: {said}$", out, re.MULTILINE), (out, err)


# requests are tried over this fabric by auto alone
@pytest.mark.parametrize("fault", [each for each in FAULTS if each != "requests that are dropped"])
def test_a_fabric_that_is_asked_for_is_refused_on_all_pes_for_what_one_lacks(fault, old, tmp_path):
    code, said = FAULTS[fault]
    status, _, err = mpiexec(2, FAULTY.format(code), tmp_path=tmp_path, environment=FABRIC | {"OLD": old})
    assert status != 0 and len(re.findall(f"PYSHMEM_FAR: got fabric, but {said}; expected", err)) >= 2, err


LATE = """
import os
import time
from pyshmem.transport.far.fabric import Fabric

test = Fabric._test
if os.environ["PMI_RANK"] == "1":
    Fabric._test = lambda fabric: time.sleep(1) or test(fabric)
"""


def test_a_pe_that_is_late_for_the_test_of_a_fabric_is_ready_for_that_of_others(tmp_path):
    status, _, err = mpiexec(2, LATE + INFO, tmp_path=tmp_path, environment=FABRIC)
    assert status == 0, err


@pytest.mark.parametrize("auto, requests", [("", "tcp"), ("fabric.FABRICS = ('tcp',)", "fabric")])
def test_a_fabric_carries_requests_if_it_is_of_hardware(auto, requests, tmp_path):
    """Of which there is none here."""
    program = f"from pyshmem.transport.far import fabric\n{auto}\n" + CALLS
    environment = FABRIC | {"PYSHMEM_FAR": "auto", "SHMEM_INFO": "1"}
    status, out, err = mpiexec(2, program, "16", str(16 * KIB), tmp_path=tmp_path, environment=environment)
    assert status == 0 and re.search(f"^ +{requests}  PYSHMEM_AMO ", out, re.MULTILINE), (out, err)
