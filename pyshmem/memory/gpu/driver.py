"""All calls of the GPU driver, from one table for both vendors: libcuda's cu* functions and libamdhip64's hip* functions.

torch provides streams, events and devices. This module provides what torch lacks: memory that other processes can map, and
copies by address. HIP's functions mirror CUDA's, so each row of the table names both, and branches handle the few
differences. docs/decisions.md names the sources of the facts about HIP.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint8, c_uint64, c_void_p
from functools import cached_property
from typing import Any

from pyshmem.base.comparisons import EQ, GE
from pyshmem.memory import descriptors
from pyshmem.memory.gpu.layouts import Access, Fill, IpcHandle, Location, Properties
from pyshmem.native._native import enqueue, forget_errors

POSIX_FD = 1  # the kind of shareable handle
PINNED, UNCACHED = 1, 0x40000000  # kinds of virtual memory; UNCACHED exists from ROCm 7.2
COARSE, FINE, EXTENDED = 0, 1, 3  # hipExtMallocWithFlags: cached, fine-grained, "uncached"
_DEVICE, _READ_WRITE, _RECOMMENDED = 1, 3, 1
_ALREADY_ENABLED = 704  # the code for peer access in CUDA and HIP
_NO_CONTEXT = 201  # this thread has not used the GPU yet
_NOT_READY = 600
_ANY_DIRECTION = 4  # hipMemcpyDefault
_OF_TORCH = ("/torch/lib/", "/_rocm_sdk_")  # folders of the libamdhip64 that torch's wheels bring
_IPC_HINT = "; set HSA_ENABLE_IPC_MODE_LEGACY to 0 or to 1 on all PEs to select ROCm's other way to share memory"

_IMPORT_HINT = (
    "; if the job's control group hides the other PE's GPU, the kernel refuses this: let each PE see all GPUs of its node "
    "(Slurm: --gpus-per-node and --gpu-bind=none in place of --gpus-per-task; Flux: -o gpu-affinity=on), or set "
    "PYSHMEM_PEER_MAP=none"
)

_WORD, _SIZE, _POINTER = c_uint64, c_size_t, c_void_p
# operation: (CUDA's symbol, HIP's symbol, types of the arguments); None: the driver lacks the operation
_CALLS: dict[str, tuple[str | None, str | None, tuple[Any, ...]]] = {
    "init": ("cuInit", "hipInit", (c_uint,)),
    "version": ("cuDriverGetVersion", "hipRuntimeGetVersion", (POINTER(c_int),)),
    "count": ("cuDeviceGetCount", "hipGetDeviceCount", (POINTER(c_int),)),
    "attribute": ("cuDeviceGetAttribute", "hipDeviceGetAttribute", (POINTER(c_int), c_int, c_int)),
    "bus_id": ("cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId", (c_char_p, c_int, c_int)),
    "uuid": ("cuDeviceGetUuid_v2", "hipDeviceGetUuid", (c_char_p, c_int)),
    "can_access": ("cuDeviceCanAccessPeer", "hipDeviceCanAccessPeer", (POINTER(c_int), c_int, c_int)),
    "enable_access": (None, "hipDeviceEnablePeerAccess", (c_int, c_uint)),
    "get_context": ("cuCtxGetCurrent", None, (POINTER(c_void_p),)),
    "set_context": ("cuCtxSetCurrent", None, (_POINTER,)),
    "set_device": (None, "hipSetDevice", (c_int,)),
    "granularity": (
        "cuMemGetAllocationGranularity",
        "hipMemGetAllocationGranularity",
        (POINTER(c_size_t), POINTER(Properties), c_int),
    ),
    "reserve": ("cuMemAddressReserve", "hipMemAddressReserve", (POINTER(c_void_p), _SIZE, _SIZE, _POINTER, _WORD)),
    "unreserve": ("cuMemAddressFree", "hipMemAddressFree", (_POINTER, _SIZE)),
    "create": ("cuMemCreate", "hipMemCreate", (POINTER(c_void_p), _SIZE, POINTER(Properties), _WORD)),
    "release": ("cuMemRelease", "hipMemRelease", (_POINTER,)),
    "export": (
        "cuMemExportToShareableHandle",
        "hipMemExportToShareableHandle",
        (POINTER(c_int), _POINTER, c_int, _WORD),
    ),
    "import": (
        "cuMemImportFromShareableHandle",
        "hipMemImportFromShareableHandle",
        (POINTER(c_void_p), _POINTER, c_int),
    ),
    "retain": ("cuMemRetainAllocationHandle", "hipMemRetainAllocationHandle", (POINTER(c_void_p), _POINTER)),
    "range": ("cuMemGetAddressRange_v2", "hipMemGetAddressRange", (POINTER(c_void_p), POINTER(c_size_t), _POINTER)),
    "map": ("cuMemMap", "hipMemMap", (_POINTER, _SIZE, _SIZE, _POINTER, _WORD)),
    "unmap": ("cuMemUnmap", "hipMemUnmap", (_POINTER, _SIZE)),
    "set_access": ("cuMemSetAccess", "hipMemSetAccess", (_POINTER, _SIZE, POINTER(Access), _SIZE)),
    "allocate": ("cuMemAlloc_v2", "hipMalloc", (POINTER(c_void_p), _SIZE)),
    "allocate_kind": (None, "hipExtMallocWithFlags", (POINTER(c_void_p), _SIZE, c_uint)),
    "free": ("cuMemFree_v2", "hipFree", (_POINTER,)),
    "ipc_get": ("cuIpcGetMemHandle", "hipIpcGetMemHandle", (POINTER(IpcHandle), _POINTER)),
    "ipc_open": ("cuIpcOpenMemHandle_v2", "hipIpcOpenMemHandle", (POINTER(c_void_p), IpcHandle, c_uint)),
    "ipc_close": ("cuIpcCloseMemHandle", "hipIpcCloseMemHandle", (_POINTER,)),
    "copy": ("cuMemcpyAsync", "hipMemcpyAsync", (_POINTER, _POINTER, _SIZE, _POINTER)),
    "fill": ("cuMemsetD8Async", "hipMemsetD8Async", (_POINTER, c_uint8, _SIZE, _POINTER)),
    "write_value": ("cuStreamWriteValue64_v2", "hipStreamWriteValue64", (_POINTER, _POINTER, _WORD, c_uint)),
    # hipStreamWaitValue64 takes memory of one kind only, which is not that of a heap
    "wait_value": ("cuStreamWaitValue64_v2", None, (_POINTER, _POINTER, _WORD, c_uint)),
    "launch": ("cuLaunchKernel", "hipModuleLaunchKernel", ()),  # the native module calls these three
    "launch_early": ("cuLaunchKernelEx", None, ()),
    "launch_graph": ("cuGraphLaunch", "hipGraphLaunch", (_POINTER, _POINTER)),
    # graphs made by hand, for pyshmem doctor
    "graph": (None, "hipGraphCreate", (POINTER(c_void_p), c_uint)),
    "graph_fill": (
        None,
        "hipGraphAddMemsetNode",
        (POINTER(c_void_p), _POINTER, POINTER(c_void_p), _SIZE, POINTER(Fill)),
    ),
    "graph_copy": (
        None,
        "hipGraphAddMemcpyNode1D",
        (POINTER(c_void_p), _POINTER, POINTER(c_void_p), _SIZE, _POINTER, _POINTER, _SIZE, c_int),
    ),
    "graph_ready": (None, "hipGraphInstantiate", (POINTER(c_void_p), _POINTER, _POINTER, _POINTER, _SIZE)),
    "graph_end": (None, "hipGraphExecDestroy", (_POINTER,)),
    "graph_free": (None, "hipGraphDestroy", (_POINTER,)),
    "create_stream": ("cuStreamCreate", None, (POINTER(c_void_p), c_uint)),
    "synchronize": ("cuStreamSynchronize", "hipStreamSynchronize", (_POINTER,)),
    "query": ("cuStreamQuery", "hipStreamQuery", (_POINTER,)),
    # HIP 7 keeps the error of a thread's last failed call until this call; CUDA's driver keeps none
    "last_error": (None, "hipGetLastError", ()),
    "relax": (  # of a thread: its calls are allowed while another thread captures a graph
        "cuThreadExchangeStreamCaptureMode",
        "hipThreadExchangeStreamCaptureMode",
        (POINTER(c_int),),
    ),
}
_WORDS_ON_STREAMS = 122  # CUDA's attribute: whether streams write and wait for words of 8 bytes
_WAITS = {GE: 0, EQ: 1}  # the comparisons of cuStreamWaitValue64
_CHIPLETS = 10018  # HIP's attribute: the parts of the device with an L2 cache of their own, in its present partition
_MPS = 133  # CUDA's attribute: whether processes share the device by the multi-process service
_VMM_ATTRIBUTES = {"cuda": (102, 103), "hip": (89,)}  # virtual memory; for CUDA also file descriptors as handles


class DriverError(Exception):
    """A driver call returned an error code."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call} returned {code}, {text}")
        self.code = code


def default_library(vendor: str) -> str:
    """Return libcuda, or the libamdhip64 that torch has loaded, because two copies of it do not share contexts.

    torch has it in its own folder, or from the wheels of ROCm 7.14 and later; another library may have loaded the machine's.
    """
    if vendor == "cuda":
        return "libcuda.so.1"
    with open("/proc/self/maps") as maps:
        loaded = {line.split(None, 5)[5].strip() for line in maps if "/libamdhip64.so" in line}
    return min(loaded, key=lambda path: (not any(each in path for each in _OF_TORCH), path), default="libamdhip64.so")


class _Thread(threading.local):
    """State of a thread. Its first call selects the device: HIP starts threads on device 0, CUDA returns _NO_CONTEXT."""

    attached = False


def launch_function(vendor: str, operation: str) -> int:
    """Return the address of the driver function that launches a kernel, for the native module."""
    symbol = _CALLS[operation][0 if vendor == "cuda" else 1]
    return int(ctypes.cast(getattr(ctypes.CDLL(default_library(vendor)), str(symbol)), c_void_p).value or 0)


def cuda_version() -> int:
    """Return the version of CUDA that the driver supports, as 12030 for 12.3. No heap need be open."""
    found = c_int()
    ctypes.CDLL(default_library("cuda")).cuDriverGetVersion(ctypes.byref(found))
    return found.value


class Driver:
    """The driver of one vendor for one device. Handles, addresses and streams are ints."""

    def __init__(self, vendor: str, device: int, path: str | None = None) -> None:
        """Load the driver. Errors: OSError without the library, DriverError.

        vendor: "cuda" or "hip".  device: the ordinal of the device in this process.
        """
        self.vendor, self.device = vendor, device
        self._library = ctypes.CDLL(path or default_library(vendor))
        self._calls: dict[str, Any] = {}
        for name, (cuda, hip, arguments) in _CALLS.items():
            symbol = cuda if vendor == "cuda" else hip
            function = getattr(self._library, symbol, None) if symbol else None
            if function is not None:
                function.argtypes, function.restype = arguments, c_int
                self._calls[name] = function
        self._context = c_void_p()
        self._thread = _Thread()
        self._thread.attached = True
        forget_errors(self.address_of("last_error") if self.has("last_error") else 0)
        self.call("init", 0)
        self.version = self._number("version")
        self.attach()
        self.copy_function = self.address_of("copy")
        self._direction = -1 if vendor == "cuda" else _ANY_DIRECTION

    def attach(self) -> None:
        """Make the device current in this thread. torch must have created its context before."""
        self._thread.attached = True
        if self.vendor == "hip":
            self.call("set_device", self.device)
        elif self._context:
            self.call("set_context", self._context)
        else:
            self.call("get_context", byref(self._context))

    def address_of(self, operation: str) -> int:
        """Return the address of the driver's function, for the native module."""
        return int(ctypes.cast(self._calls[operation], c_void_p).value or 0)

    def attachment(self) -> tuple[int, int]:
        """Return (address of the function, argument) of the call that makes the device current in a thread."""
        if self.vendor == "hip":
            return self.address_of("set_device"), self.device
        return self.address_of("set_context"), int(self._context.value or 0)

    def has(self, operation: str) -> bool:
        """Return whether the library has the function. Old libraries lack some."""
        return operation in self._calls

    def device_count(self) -> int:
        return self._number("count")

    def has_virtual_memory(self) -> bool:
        """Return whether memory can be exported, and mapped by another process at an address of its choice."""
        if self.vendor == "hip" and not self.has("export"):
            return False
        return all(self._number("attribute", attribute, self.device) for attribute in _VMM_ATTRIBUTES[self.vendor])

    def takes_turns(self) -> bool:
        """Return whether processes that share the device take turns on all of it, so that none can starve another.

        Under CUDA's MPS and HIP they divide it: a kernel that waits may occupy what the one that it waits for needs.
        """
        try:
            return self.vendor == "cuda" and not self._number("attribute", _MPS, self.device)
        except DriverError:  # a driver that does not know the attribute
            return False

    def chiplets(self) -> int:
        """Return how many parts with an L2 cache of their own the device has."""
        return self.known_chiplets() or 1

    def known_chiplets(self) -> int:
        """Return what chiplets does, but 0 if the driver does not say."""
        try:
            return self._number("attribute", _CHIPLETS, self.device) if self.vendor == "hip" else 1
        except DriverError:  # a driver that does not know the attribute
            return 0

    # ---- devices ----

    def bus_id(self, device: int | None = None) -> str:
        """Return a device's PCI bus id, which is the same in all processes. Ordinals depend on the visible devices.

        device: an ordinal, by default this device's.  Partitions of an AMD GPU may have one bus id.
        """
        text = ctypes.create_string_buffer(32)
        self.call("bus_id", text, 32, self.device if device is None else device)
        return text.value.decode()

    @cached_property
    def bus_ids(self) -> list[str]:
        """The bus ids of the visible devices, by ordinal."""
        return [self.bus_id(device) for device in range(self.device_count())]

    def uuid(self) -> str:
        """Return the device's UUID; "" if the driver has none. Old kernels give all partitions of an AMD GPU the same."""
        found = ctypes.create_string_buffer(16)
        code = self._code("uuid", found, self.device) if self.has("uuid") else 1
        return "" if code else found.raw.hex()

    def reaches(self, bus_id: str) -> bool | None:
        """Return whether this device can access the memory of that one, of all partitions with its bus id; None if it
        is hidden from this process.
        """
        if bus_id not in self.bus_ids:
            return None
        return all(self._number("can_access", self.device, peer) for peer in self._peers(bus_id))

    def enable_access(self, bus_id: str) -> None:
        """Enable peer access under HIP: versions before 7 do not enable it when a handle is opened.

        A device that is hidden from this process is skipped.
        """
        if self.vendor == "cuda":
            return
        for peer in self._peers(bus_id):
            code = self._code("enable_access", peer, 0)
            if code not in (0, _ALREADY_ENABLED):
                self._refuse("enable_access", code)

    def _peers(self, bus_id: str) -> list[int]:
        """Return the ordinals of the visible devices with that bus id, without this device."""
        return [device for device, found in enumerate(self.bus_ids) if found == bus_id and device != self.device]

    # ---- virtual memory ----

    def granularity(self, kind: int) -> int:
        size = c_size_t()
        self.call("granularity", byref(size), byref(self._properties(kind)), _RECOMMENDED)
        return size.value

    def reserve(self, nbytes: int, alignment: int) -> int:
        address = c_void_p()
        self.call("reserve", byref(address), nbytes, alignment, None, 0)
        return int(address.value or 0)

    def unreserve(self, address: int, nbytes: int) -> None:
        self.call("unreserve", address, nbytes)

    def create(self, nbytes: int, kind: int) -> int:
        """Allocate physical memory of this device. HIP always uses the current device, so it is set first."""
        self.attach()
        handle = c_void_p()
        self.call("create", byref(handle), nbytes, byref(self._properties(kind)), 0)
        return int(handle.value or 0)

    def release(self, handle: int) -> None:
        self.call("release", handle)

    def export(self, handle: int) -> int:
        fd = c_int(-1)
        self.call("export", byref(fd), handle, POSIX_FD, 0)
        return fd.value

    def import_(self, fd: int) -> int:
        """Return the handle of a descriptor. HIP before 7.1 requires a pointer to the descriptor."""
        handle, number = c_void_p(), c_int(fd)
        by_pointer = self.vendor == "hip" and self.version < 70100000
        self.call(
            "import", byref(handle), ctypes.cast(byref(number), c_void_p) if by_pointer else c_void_p(fd), POSIX_FD
        )
        return int(handle.value or 0)

    def retain(self, address: int) -> tuple[int, int, int]:
        """Return (a handle, its address, its bytes) of the virtual memory at an address. Errors: DriverError for other."""
        handle, start, size = c_void_p(), c_void_p(), c_size_t()
        self.call("retain", byref(handle), address)
        self.call("range", byref(start), byref(size), address)
        return int(handle.value or 0), int(start.value or 0), size.value

    def map(self, address: int, nbytes: int, handle: int) -> None:
        self.call("map", address, nbytes, 0, handle, 0)

    def unmap(self, address: int, nbytes: int) -> None:
        self.call("unmap", address, nbytes)

    def allow(self, address: int, nbytes: int) -> None:
        """Give this device read and write access to the range."""
        access = Access(Location(_DEVICE, self.device), _READ_WRITE)
        self.call("set_access", address, nbytes, byref(access), 1)

    # ---- memory that is shared by IPC handles ----

    def allocate(self, nbytes: int, kind: int) -> int:
        """Allocate memory. kind: COARSE, or for HIP also FINE or EXTENDED."""
        self.attach()
        address = c_void_p()
        if kind == COARSE:
            self.call("allocate", byref(address), nbytes)
        else:
            self.call("allocate_kind", byref(address), nbytes, kind)
        return int(address.value or 0)

    def free(self, address: int) -> None:
        self.call("free", address)

    def ipc_get(self, address: int) -> bytes:
        handle = IpcHandle()
        self.call("ipc_get", byref(handle), address)
        return bytes(handle)

    def ipc_open(self, handle: bytes) -> int:
        address = c_void_p()
        self.call("ipc_open", byref(address), IpcHandle.from_buffer_copy(handle), 1)
        return int(address.value or 0)

    def ipc_close(self, address: int) -> None:
        self.call("ipc_close", address)

    # ---- work on streams ----

    def copy(self, dest: int, source: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy between device or host addresses. A source in pageable memory may be reused on return."""
        if not self._thread.attached and self.vendor == "hip":
            self.attach()
        code = enqueue(self.copy_function, dest, source, nbytes, self._direction, stream)
        if code == _NO_CONTEXT:
            self.attach()
            code = enqueue(self.copy_function, dest, source, nbytes, self._direction, stream)
        if code:
            self._refuse("copy", code)

    def clear(self, address: int, nbytes: int, stream: int) -> None:
        """Fill memory with zeros, in stream order."""
        self.call("fill", address, 0, nbytes, stream)

    def can_wait(self, cmp: int = EQ) -> bool:
        """Return whether streams can write words, and wait until a comparison with a word is true, without a kernel."""
        if cmp not in _WAITS or not (self.has("write_value") and self.has("wait_value")):
            return False
        return bool(self._number("attribute", _WORDS_ON_STREAMS, self.device))

    def write_value(self, stream: int, address: int, value: int) -> None:
        """Enqueue a store of a uint64 to memory of this GPU or a mapped one, after all earlier work is visible there."""
        self.call("write_value", stream, address, value, 0)

    def wait_value(self, stream: int, address: int, cmp: int, value: int) -> None:
        """Let the stream wait for a uint64, without a limit. GE compares by the sign of the difference."""
        self.call("wait_value", stream, address, value, _WAITS[cmp])

    def create_stream(self) -> int:
        """Return a stream whose work and that of the legacy default stream wait for each other."""
        stream = c_void_p()
        self.call("create_stream", byref(stream), 0)
        assert stream.value is not None
        return stream.value

    def synchronize(self, stream: int) -> None:
        self.call("synchronize", stream)

    def idle(self, stream: int) -> bool:
        """Return whether all work on the stream is complete."""
        code = self._code("query", stream)
        if code not in (0, _NOT_READY):
            self._refuse("query", code)
        return code == 0

    def _properties(self, kind: int) -> Properties:
        location = Location(_DEVICE, self.device)
        rdma = 1 if self.vendor == "hip" else 0  # ROCm's other code path crashed after many mappings
        return Properties(kind=kind, handles=POSIX_FD, location=location, rdma=rdma)

    def _number(self, operation: str, *arguments: Any) -> int:
        number = c_int()
        self.call(operation, byref(number), *arguments)
        return number.value

    def call(self, operation: str, *arguments: Any) -> None:
        """Make a call of the table. Errors: DriverError."""
        if not self._thread.attached and self.vendor == "hip":
            self.attach()
        code = self._code(operation, *arguments)
        if code == _NO_CONTEXT and operation not in ("get_context", "set_context", "set_device"):
            self.attach()
            code = self._code(operation, *arguments)
        if code:
            self._refuse(operation, code)

    def kept_error(self) -> int:
        """Return the error that torch would find after its next launch in this thread, which then is forgotten; 0: none."""
        return int(self._calls["last_error"]()) if self.has("last_error") else 0

    def _code(self, operation: str, *arguments: Any) -> int:
        """Call the driver and return its code. No error is left, which torch would report after its next launch."""
        code = int(self._calls[operation](*arguments))
        if code and self.has("last_error"):
            self._calls["last_error"]()
        return code

    def _refuse(self, operation: str, code: int) -> None:
        cuda, hip, _ = _CALLS[operation]
        hint = ""
        if self.vendor == "hip":
            hint = _IPC_HINT if operation.startswith("ipc") else _IMPORT_HINT if operation == "import" else ""
        if operation in ("create", "export", "import", "ipc_get", "ipc_open"):
            hint += descriptors.exhausted()
        raise DriverError((cuda if self.vendor == "cuda" else hip) or operation, code, self._message(code) + hint)

    def _message(self, code: int) -> str:
        if self.vendor == "hip":
            function = self._library.hipGetErrorString
            function.argtypes, function.restype = (c_int,), c_char_p
            return (function(code) or b"an unknown error").decode()
        text = c_char_p()
        self._library.cuGetErrorString(code, byref(text))
        return (text.value or b"an unknown error").decode()
