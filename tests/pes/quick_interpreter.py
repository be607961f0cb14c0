"""Makes Triton's interpreter faster for the tests. What kernels do, and what they see of triton.language, stays as it is.

Triton finds out in each call of a device function what it has to replace in triton.language: here that is done once. It
looks for overflows by other tensors, and forgets the answer unless it debugs: here it does not look.
"""

import dataclasses
import functools
import inspect
import threading
from types import SimpleNamespace

import numpy as np
import triton.language as tl
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
        of_kernel = inspect.currentframe().f_back.f_code is interpreter.GridExecutor.__call__.__code__
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


_of_scalars = functools.cache(interpreter._get_np_dtype)  # which makes its table in each call


def _numpy_dtype(dtype):
    element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
    return np.dtype(np.uint64) if isinstance(element, tl.pointer_type) else _of_scalars(element)


def install():
    interpreter._patch_lang = _Patches().begin
    interpreter._get_np_dtype = _numpy_dtype
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=builder.options.debug)
