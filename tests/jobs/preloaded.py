"""What a process has imported before the program for which it is forked, and how it ends without copying all of that."""

import atexit
import ctypes
import gc
import os
import pathlib
import sys
import weakref
from importlib.machinery import ModuleSpec

PES = pathlib.Path(__file__).parents[1] / "pes"
INTERPRET = "TRITON_INTERPRET"


class Interpreted:
    """Triton as it is imported for its interpreter, made faster. A program finds it that has chosen the interpreter."""

    def __init__(self):
        names = [name for name in sys.modules if name.partition(".")[0] in ("triton", "quick_interpreter")]
        # its library cannot be loaded twice
        self.modules = {name: sys.modules.pop(name) for name in names if not name.startswith("triton._C")}
        self.spec = self.modules["triton"].__spec__
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        chosen = os.environ.get(INTERPRET, "").lower() in ("1", "on", "true", "y", "yes")
        return ModuleSpec(name, self) if name == "triton" and chosen else None

    def create_module(self, spec):
        sys.modules.update(self.modules)
        return self.modules["triton"]

    def exec_module(self, module):
        module.__spec__ = self.spec


def load():
    """Import what programs of the tests import. Python's end, and torch's, leave it alone in processes that are forked."""
    kept = {}

    def leave():
        for name in kept:
            sys.modules.pop(name, None)

    atexit.register(leave)  # the first to be registered is the last to be called
    os.environ[INTERPRET] = "1"
    sys.path.append(str(PES))
    import quick_interpreter
    import torch
    import torch._dynamo  # as the first call of an optimiser or of an operator of pyshmem.ops.torch does

    sys.path.remove(str(PES))
    del os.environ[INTERPRET]
    quick_interpreter.install()
    torch.set_num_threads(1)  # the PEs of a test share few cores
    triton = Interpreted()
    kept |= {name: each for name, each in sys.modules.items() if name not in ("__main__", __name__, "sys", "builtins")}
    kept |= triton.modules
    for each in weakref.finalize._registry:  # each library of torch would remove its operators
        each.atexit = False
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    gc.freeze()
    c = ctypes.CDLL(None)  # its handlers are called from the last to the first
    c.on_exit(c._exit, None)
    c.__cxa_atexit(c.fflush, None, None)
