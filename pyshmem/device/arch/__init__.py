"""What differs between Triton's interpreter on the CPU heap and GPUs: two packages that offer the same names.

Beside them stands what both share: rules, operators, fields, targets.
"""

from pyshmem.runtime.interpreter import active

if active():
    from pyshmem.device.arch.interpreter import *  # noqa: F403
else:
    from pyshmem.device.arch.gpu import *  # noqa: F403
