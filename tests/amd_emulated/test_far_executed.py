"""Calls to PEs on other nodes, compiled for AMD GPUs and executed by the emulator: their requests go through the real proxy.

Run: with PYSHMEM_NODE_SIZE=1; on one node the tests skip.
"""

import test_device_far_calls

globals().update({name: each for name, each in vars(test_device_far_calls).items() if name.startswith("test_")})
several_nodes = test_device_far_calls.several_nodes
