"""The structures that functions of CUDA's and HIP's drivers take; tests/jobs/test_amd_headers.py looks at HIP's headers."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_size_t, c_uint, c_uint8, c_uint16, c_void_p


class Location(ctypes.Structure):
    _fields_ = (("kind", c_int), ("device", c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp and hipMemAllocationProp, which have the same layout."""

    _fields_ = (
        ("kind", c_int),
        ("handles", c_int),
        ("location", Location),
        ("metadata", c_void_p),
        ("compression", c_uint8),
        ("rdma", c_uint8),
        ("usage", c_uint16),
        ("reserved", c_uint8 * 4),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc and hipMemAccessDesc."""

    _fields_ = (("location", Location), ("flags", c_int))


class Fill(ctypes.Structure):
    """hipMemsetParams: a node of a graph that fills memory."""

    _fields_ = (
        ("target", c_void_p),
        ("element", c_uint),
        ("height", c_size_t),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("width", c_size_t),
    )


class IpcHandle(ctypes.Structure):
    """A handle of 64 bytes, which another process opens."""

    _fields_ = (("bytes", c_uint8 * 64),)
