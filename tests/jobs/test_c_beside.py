"""C programs with another library beside OpenSHMEM: MPI in any order, and OpenMP's threads."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from launching import PYSHMEMRUN

BIN = pathlib.Path(sys.executable).parent

MPI = """
#include <mpi.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
static int is_over(int (*asked)(int *)) {
    int answer;
    asked(&answer);
    return answer;
}
int main(int argc, char **argv) {
    int shmem_begins = argc > 1 && argv[1][0] == 's', shmem_ends = argc > 1 && argv[1][1] == 's';
    if (!shmem_begins) MPI_Init(NULL, NULL);
    shmem_init();
    if (!is_over(MPI_Initialized)) MPI_Init(NULL, NULL);
    int me = shmem_my_pe(), n = shmem_n_pes();
    if (!shmem_ends) shmem_finalize();
    MPI_Finalize();
    if (shmem_ends) { /* all of it goes on without MPI */
        long *x = shmem_malloc(sizeof *x);
        shmem_long_p(x, me, (me + 1) % n);
        shmem_barrier_all();
        if (*x != (me + n - 1) % n) return 9;
        if (argc > 2 && me == 0) shmem_global_exit(atoi(argv[2]));
        if (argc > 2) shmem_long_wait_until(x, SHMEM_CMP_EQ, -1);
        shmem_finalize();
    }
    printf("end\\n");
    return 0;
}
"""
OPENMP = """
#include <omp.h>
#include <shmem.h>
int main(void) {
    int before = omp_get_max_threads(), provided, ran = 0;
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    shmem_free(shmem_calloc(1 << 20, 8));
#pragma omp parallel
#pragma omp atomic
    ran++;
    int after = omp_get_max_threads();
    shmem_finalize();
    return !(before == 7 && after == 7 && ran == 7 && omp_get_max_threads() == 7);
}
"""


def compiled(source, tmp_path, *options, compiler="cc"):
    (tmp_path / "program.c").write_text(source)
    command = [BIN / "oshcc", *options, tmp_path / "program.c", "-o", tmp_path / "program"]
    subprocess.run(command, check=True, env={**os.environ, "PYSHMEM_CC": str(compiler)})
    return tmp_path / "program"


def run(n, *command, **variables):
    return subprocess.run(
        [*PYSHMEMRUN, "-n", str(n), "--heap-size", "32m", *command],
        capture_output=True, text=True, timeout=100, env={**os.environ, **variables},
    )  # fmt: skip


def with_mpi(tmp_path):
    if not shutil.which(BIN / "mpicc"):
        pytest.skip("the environment has no mpicc")
    return compiled(MPI, tmp_path, compiler=BIN / "mpicc")


@pytest.mark.parametrize("nodes", [{}, {"PYSHMEM_NODE_SIZE": "1", "PYSHMEM_FAR": "tcp"}], ids=["near", "far"])
@pytest.mark.parametrize("order", ["mm", "ms", "sm", "ss"])
def test_mpi_and_openshmem_begin_and_end_in_any_order(order, nodes, tmp_path):
    """The first letter says which begins first, the second which ends last."""
    done = run(2, with_mpi(tmp_path), order, **nodes)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["end"] * 2, "")


def test_a_global_exit_after_mpi_has_ended_ends_all_pes_with_its_status(tmp_path):
    done = run(2, with_mpi(tmp_path), "ss", "5", PYSHMEM_WAIT_TIMEOUT="60")
    assert (done.returncode, done.stdout) == (5, ""), done.stderr


def test_openmp_keeps_the_programs_number_of_threads(tmp_path):
    done = run(1, compiled(OPENMP, tmp_path, "-fopenmp"), OMP_NUM_THREADS="7")
    assert done.returncode == 0, done.stderr
