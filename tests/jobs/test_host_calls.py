"""The table of host calls, from which timelines, the checker and its schedules read, has all calls and no other names."""

import inspect

import pyshmem as shmem
from pyshmem.check.record import install
from pyshmem.diagnosis.host_calls import CALLS

METHODS = [name for kind in (shmem.Team, shmem.Ctx) for name, call in vars(kind).items() if inspect.isfunction(call)]
FUNCTIONS = [name for name in shmem.__all__ if inspect.isfunction(getattr(shmem, name))]


def test_every_public_function_has_a_row():
    assert not set(FUNCTIONS) - set(CALLS)


def test_every_row_is_of_a_public_function_or_method_once():
    assert not set(CALLS) - {*FUNCTIONS, *METHODS}


def test_the_checker_records_every_family():
    assert {call.family for call in CALLS.values()} - {""} == set(install._FAMILIES)
