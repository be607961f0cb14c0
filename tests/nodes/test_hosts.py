"""Jobs over two and three hosts, which hosts.sh makes of network namespaces: all data between them go over TCP.

Run by `make test-hosts`, as root.
"""

import os
import re

import pytest
from hosts import (  # noqa: F401
    HERE,
    MPIS,
    NAMES,
    ONE,
    PES,
    SECONDS,
    STACKS,
    THREE,
    TWO,
    UNEVEN,
    hosts,
    needs_hosts,
    received,
    start,
)

FABRIC = {"PYSHMEM_FAR": "fabric", "PYSHMEM_FABRIC": "tcp;ofi_rxm"}
LONG = 3600  # seconds for all of tests/pes
pytestmark = [pytest.mark.timeout(5 * SECONDS), needs_hosts, pytest.mark.usefixtures("hosts")]


MEGABYTES = """
import torch
import pyshmem as shmem

shmem.init()
me, n = shmem.my_pe(), shmem.n_pes()
assert shmem.TEAM_SHARED.n_pes() == n // 2
x, y = shmem.zeros(5_000_000), torch.arange(5_000_000) + float(me)
shmem.put(x, y, (me + n // 2) % n)
shmem.barrier_all()
assert torch.equal(x, torch.arange(5_000_000) + float((me - n // 2) % n))
shmem.finalize()
"""


WHY = {
    "auto": r"tcp: on PE 0 (libfabric .* offers .*, and no fabric|no libfabric .*)",
    "tcp": "tcp: requested",
    "fabric": r"fabric: tcp(;ofi_rxm)?, libfabric [\d.]+",
    "messages": r"fabric: tcp(;ofi_rxm)?, libfabric [\d.]+",
}


@pytest.mark.parametrize("carrier", WHY)
@pytest.mark.parametrize("stack", STACKS)
def test_data_go_over_the_network(stack, carrier, start):
    before = [received(host) for host in (0, 1)]
    over_tcp = "tcp" if stack == "intelmpi" else "tcp;ofi_rxm"  # Intel MPI's libfabric needs no layer over tcp
    fabric = carrier in ("fabric", "messages")
    ways = {"PYSHMEM_FAR": "fabric" if fabric else carrier, "PYSHMEM_FABRIC": over_tcp if fabric else ""}
    ways["PYSHMEM_AMO"] = "fabric" if carrier == "messages" else "auto"
    job = start(TWO, MEGABYTES, stack=stack, SHMEM_INFO="1", **ways)
    if fabric and "no libfabric from" in job.err:
        pytest.skip("this MPI brings no libfabric, and the system has none")
    assert job.end() == 0, job.err
    why = WHY[carrier]
    assert re.search(f"^Data to other nodes: {why}$", job.out, re.MULTILINE), job.out
    for host in (0, 1):
        assert received(host) - before[host] > 2 * 20_000_000, "two PEs put 20 MB each"


WHERE = """
import os
import pyshmem as shmem

shmem.init()
print(f"PE {shmem.my_pe()} on {os.uname().nodename}, {shmem.TEAM_SHARED.n_pes()} here")
"""


@pytest.mark.parametrize("placed", [ONE, TWO, UNEVEN, THREE], ids=["1+1", "2+2", "3+1", "2+1+1"])
@pytest.mark.parametrize("mpi", MPIS)
def test_pes_are_on_the_hosts_that_are_named(mpi, placed, start):
    job = start(placed, WHERE, stack=mpi)
    assert job.end() == 0, job.err
    counts = [int(each.partition(":")[2]) for each in placed.split(",")]
    places = [(name, count) for name, count in zip(NAMES, counts, strict=False) for _ in range(count)]
    assert sorted(job.out.splitlines()) == [
        f"PE {pe} on {name}, {count} here" for pe, (name, count) in enumerate(places)
    ]


EXAMPLES = HERE.parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.stem)
def test_examples_are_right_over_hosts(path, start):
    job = start(TWO, str(path))
    assert job.end() == 0, job.out + job.err


# Names of files, as make test-nodes takes them: `make test-hosts PES_TESTS='test_*.py'` runs all that there are.
FEW = "rma signal locks ordering contexts setup threads memory several_nodes device_far"
CARRIED = {"2+2": (TWO, {}), "3+1": (UNEVEN, FABRIC), "2+1+1": (THREE, {**FABRIC, "PYSHMEM_AMO": "fabric"})}
ASKED = os.environ.get("PES_TESTS") or " ".join(f"test_{name}.py" for name in FEW.split())


@pytest.mark.timeout(2 * LONG)
@pytest.mark.parametrize("placed, carrier", CARRIED.values(), ids=CARRIED)
def test_the_tests_of_tests_pes_pass(placed, carrier, start):
    """On each placing another way to other hosts: TCP, a fabric for data, and a fabric for requests too."""
    files = sorted(path.name for name in ASKED.split() for path in PES.glob(name))
    job = start(placed, "-m", "pytest", *files, "-q", folder=PES, **carrier)
    assert job.end(LONG) == 0, job.out[-3000:] + job.err[-3000:]
