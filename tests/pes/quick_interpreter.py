"""Makes Triton's interpreter faster for the tests. What kernels do, and what they see of triton.language, stays as it is.

Triton finds out in each call of a device function what it has to replace in triton.language: here that is done once. It
looks for overflows by other tensors, and forgets the answer unless it debugs: here it does not look. It makes the shape of
each tensor and type anew, though there are few shapes, and looks for the common type of operands that have the same.
"""

import dataclasses
import functools
import inspect
import math
import threading
from types import SimpleNamespace

import numpy as np
import triton.language as tl
from triton._utils import validate_block_shape
from triton.runtime import interpreter

_patch = interpreter._patch_lang


class _Patches:
    """What _patch_lang replaces in triton.language, from the first kernel that runs to the end of the last one."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = 0  # kernels, of several threads
        self.changes = []  # (object, name, replacement, original) of each attribute

    def begin(self, function):
        """_patch_lang: kernels call restore of what it returns, device functions in a kernel do not."""
        of_kernel = inspect.currentframe().f_back.f_code is inspect.unwrap(interpreter.GridExecutor.__call__).__code__
        with self.lock:
            if not of_kernel and not self.running:
                return _patch(function)  # a device function that the host calls
            self.running += of_kernel
            if of_kernel and self.running == 1:
                self.make()
        return self

    def make(self):
        for each, name, replacement, _ in self.changes:
            setattr(each, name, replacement)
        if not self.changes:
            found = _patch(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))._changes
            self.changes = [(each, name, getattr(each, name), before) for each, name, before in found]

    def restore(self):
        with self.lock:
            self.running -= 1
            for each, name, _, before in reversed([] if self.running else self.changes):
                if before is interpreter._MISSING:
                    delattr(each, name)
                else:
                    setattr(each, name, before)


def _patch_builtin(package, builder, scope):
    """Builtins get the interpreter's semantic, by one call in place of two."""
    for name, member in inspect.getmembers(package, tl.core.is_builtin):
        checking = getattr(member, "__code__", None) is tl.load.__code__  # that there is a semantic
        scope.set_attr(package, name, _interpreted(member.__wrapped__ if checking else member))


def _interpreted(function):
    def call(*args, _semantic=None, **kwargs):
        return function(*args, _semantic=interpreter.interpreter_semantic, **kwargs)

    # as a line of Triton: what looks for a program's own line goes past it
    call.__code__ = call.__code__.replace(co_filename=interpreter.__file__)
    return call


_of_scalars = functools.cache(interpreter._get_np_dtype)  # which makes its table in each call


def _numpy_dtype(dtype):
    element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
    return np.dtype(np.uint64) if isinstance(element, tl.pointer_type) else _of_scalars(element)


def _ints(shape):
    return tuple([each.value if type(each) is tl.constexpr else each for each in shape])


@functools.lru_cache(None, typed=True)
def _of_type(*ints):
    """The shape and the number of elements of a type. Errors: TypeError, ValueError."""
    return tl.core.tuple(ints), validate_block_shape(ints)


@functools.cache
def _of_tensor(*ints):
    """The shape and the number of elements of a tensor."""
    return tl.core.tuple([tl.constexpr(each) for each in ints]), tl.constexpr(math.prod(ints))


class _Name:
    """The name of a block type, made when somebody asks."""

    def __get__(self, block, _):
        return f"<{block.shape}, {block.element_ty}>"


_make_block_type = tl.block_type.__init__


def _block_type(self, element_ty, shape):
    ints = _ints(shape)
    try:
        self.shape, self.numel = _of_type(*ints)
    except TypeError:  # no shape of a block: Triton says why
        ints = ()
    self.element_ty = element_ty
    if not ints:
        _make_block_type(self, element_ty, shape)


def _tensor(self, handle, type):
    self.handle = handle
    self.type = type
    self.dtype = type.scalar
    self.shape, self.numel = _of_tensor(*(type.shape.values if type.is_block() else ()))


# With two operands of one of these types, any operator computes in that type.
_ALONE = {"int1", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "fp32", "fp64"}
_check_operands = tl.semantic.TritonSemantic.binary_op_type_checking_impl


def _operands(self, lhs, rhs, *args, **kwargs):
    if isinstance(lhs, tl.tensor) and isinstance(rhs, tl.tensor):
        name = lhs.dtype.name
        if name == rhs.dtype.name and name in _ALONE:
            return self.broadcast_impl_value(lhs, rhs)
    return _check_operands(self, lhs, rhs, *args, **kwargs)


def install():
    interpreter._patch_lang = _Patches().begin
    interpreter._patch_builtin = _patch_builtin
    interpreter._get_np_dtype = _numpy_dtype
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=builder.options.debug)
    tl.block_type.__init__ = _block_type
    tl.block_type.name = _Name()
    tl.tensor.__init__ = _tensor
    tl.semantic.TritonSemantic.binary_op_type_checking_impl = _operands
