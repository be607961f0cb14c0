"""The two sides of pyshmem.device.arch offer the same functions, with the same parameters."""

import inspect

import pyshmem.device.arch.gpu as gpu
import pyshmem.device.arch.interpreter as interpreter


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
