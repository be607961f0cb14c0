"""The programs that stand in the reference, one for each chapter: they check their own results."""

import pathlib
import runpy

import pytest

import pyshmem as shmem
from pyshmem.base.job import job

CHAPTERS = pathlib.Path(__file__).parents[2] / "docs" / "chapters"
PROGRAMS = sorted(CHAPTERS.glob("*/*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_program_of_a_chapter_runs_and_leaves_pyshmem_as_it_was(program):
    before = job.inits
    try:
        runpy.run_path(str(program), run_name="__main__")
        assert job.inits == before
    finally:
        while job.inits > before:  # a program that was refused has not come to its finalize
            shmem.finalize()
