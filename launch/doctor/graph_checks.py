"""What `pyshmem doctor` examines of HIP's graphs: whether all children of a node wait for it."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from ctypes import byref, c_uint64, c_void_p

from pyshmem.memory.gpu.driver import COARSE, Driver, DriverError
from pyshmem.memory.gpu.layouts import Fill

CHILDREN = 7  # the peers of a PE of eight
SLOW_BYTES = 256 << 20  # to fill them takes longer than to start a child
_VALUE = 0x5A


def early_children(driver: Driver) -> str:
    """Return what is wrong with a graph whose one node fills memory and whose others copy its last byte; "" if nothing."""
    try:
        with ExitStack() as undo:
            memory = driver.allocate(SLOW_BYTES, COARSE)
            undo.callback(driver.free, memory)
            driver.clear(memory, SLOW_BYTES, 0)
            driver.call("launch_graph", _star(driver, memory, undo), 0)
            driver.synchronize(0)
            found = _word(driver, memory)
    except DriverError as error:
        return str(error)
    early = CHILDREN - found.to_bytes(8, "little").count(_VALUE)
    return f"{early} of {CHILDREN} children of a graph's node did not wait for it" if early else ""


def _star(driver: Driver, memory: int, undo: ExitStack) -> int:
    """Return a graph, ready for launches: a child copies the last byte to its place among the first eight."""
    graph, ready, fill, child = (c_void_p() for _ in range(4))
    driver.call("graph", byref(graph), 0)
    undo.callback(driver.call, "graph_free", graph)
    body = Fill(target=memory + 8, element=1, height=1, pitch=SLOW_BYTES - 8, value=_VALUE, width=SLOW_BYTES - 8)
    driver.call("graph_fill", byref(fill), graph, None, 0, byref(body))
    for place in range(CHILDREN):
        last = memory + SLOW_BYTES - 1
        driver.call("graph_copy", byref(child), graph, byref(fill), 1, memory + place, last, 1, 4)
    driver.call("graph_ready", byref(ready), graph, None, None, 0)
    undo.callback(driver.call, "graph_end", ready)
    return ready.value or 0


def _word(driver: Driver, address: int) -> int:
    word = c_uint64()
    driver.copy(ctypes.addressof(word), address, 8, 0)
    driver.synchronize(0)
    return word.value
