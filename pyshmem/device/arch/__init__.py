"""The device functions that differ between GPUs and Triton's interpreter. The two packages define the same names.

The modules rules, operators, fields and targets are shared by both.
"""

from pyshmem.base.interpreter import active

if active():
    from pyshmem.device.arch.interpreter import *
else:
    from pyshmem.device.arch.gpu import *
