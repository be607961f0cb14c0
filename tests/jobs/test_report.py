"""pyshmemrun --report: the table of where each PE is."""

import os

import pytest
from jobs import warm
from launching import PYSHMEMRUN, start  # noqa: F401
from pyshmem.start import report

PROGRAM = "import pyshmem as shmem\nshmem.init()\nshmem.barrier_all()\nprint(f'then {shmem.my_pe()}\\n', end='')\n"


def test_the_report_has_a_row_for_each_pe_in_order_and_comes_before_the_program_goes_on(start, program):
    job = start(*PYSHMEMRUN, "-n", "3", "--report", *warm(), program(PROGRAM), env={"PYSHMEM_HEAP": "cpu"})
    assert job.wait() == 0, job.errors
    lines = job.output.splitlines()
    titles, *rows = (line for line in lines if not line.startswith("then"))
    assert titles.split() == ["PE", "host", "cores", "NUMA", "node", "GPU"]
    cores = report.ranges(os.sched_getaffinity(0))
    assert [row.split()[:3] for row in rows] == [[str(pe), os.uname().nodename, cores] for pe in range(3)]
    assert all(row.split()[-1] == "none" for row in rows)
    assert sorted(set(lines) - {titles, *rows}) == [f"then {pe}" for pe in range(3)]
    # mpiexec passes on what PE 0 prints in order, and others' at any time
    assert lines.index("then 0") > lines.index(rows[-1])


@pytest.mark.parametrize("numbers, text", [([], ""), ([5], "5"), ([0, 1, 2, 3, 8], "0-3,8"), ([9, 1, 3, 4], "1,3-4,9")])
def test_a_list_of_cores_is_written_in_ranges_and_read_again(numbers, text):
    assert report.ranges(numbers) == text
    assert report.members(f"{text}\n") == set(numbers)


def test_the_numa_nodes_are_those_of_the_cores(tmp_path):
    for node, cores in {"node0": "0-3,8\n", "node1": "4-7\n", "node10": "\n"}.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(cores)
    assert report.numa_nodes({8}, tmp_path) == {0}
    assert report.numa_nodes({3, 4}, tmp_path) == {0, 1}
    assert report.numa_nodes({99}, tmp_path) == set()


def test_the_table_is_in_columns():
    rows = [("0", "n1", "0-15", "0", "H100, 0000:1B:00.0"), ("10", "node2", "0", "unknown", "none")]
    assert report.table(rows).splitlines() == [
        "PE  host   cores  NUMA node  GPU",
        "0   n1     0-15   0          H100, 0000:1B:00.0",
        "10  node2  0      unknown    none",
    ]
