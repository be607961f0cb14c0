"""The two sides of pyshmem.device.arch offer the same functions, with the same parameters, for GPUs that differ as is said."""

import inspect

import pyshmem.device.arch.gpu as gpu
import pyshmem.device.arch.interpreter as interpreter
from conftest import ALIKE
from pyshmem.device.arch import targets


def parameters(function):
    """Their names, without those that Triton's compiler fills in."""
    names = inspect.signature(getattr(function, "fn", function)).parameters
    return [name for name in names if not name.startswith("_")]


def test_both_sides_offer_the_same_names():
    assert gpu.__all__ == interpreter.__all__


def test_both_sides_take_the_same_arguments():
    """But those that have a default on one side, which only that side itself gives."""
    wrong = []
    for name in set(gpu.__all__) - {"jit"}:
        one, other = parameters(getattr(gpu, name)), parameters(getattr(interpreter, name))
        if one[: len(other)] != other and other[: len(one)] != one:
            wrong.append((name, one, other))
    assert not wrong


def test_no_device_function_tells_gfx942_from_gfx950():
    """So tests of the order of memory need one of them; test_emitted.py compares their instructions."""
    indices = [targets.TARGETS.index(each) for each in ALIKE]
    predicates = [each for name, each in vars(targets).items() if name.startswith("is_")]
    assert predicates and all(len({each(index) for index in indices}) == 1 for each in predicates)
