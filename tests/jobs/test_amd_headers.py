"""What driver.py passes to HIP is what HIP's own headers declare: signatures, layouts and numbers. They are in Triton's wheel."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import triton
from pyshmem.memory.gpu import driver

INCLUDE = Path(triton.__file__).parent / "backends/amd/include"
# of each function of the table, its parameters as the headers declare them
PROTOTYPES = """
hipInit(unsigned)
hipRuntimeGetVersion(int *)
hipGetDeviceCount(int *)
hipDeviceGetAttribute(int *, hipDeviceAttribute_t, int)
hipDeviceGetPCIBusId(char *, int, int)
hipDeviceGetUuid(hipUUID *, int)
hipDeviceCanAccessPeer(int *, int, int)
hipDeviceEnablePeerAccess(int, unsigned)
hipSetDevice(int)
hipMemGetAllocationGranularity(size_t *, const hipMemAllocationProp *, hipMemAllocationGranularity_flags)
hipMemAddressReserve(void **, size_t, size_t, void *, unsigned long long)
hipMemAddressFree(void *, size_t)
hipMemCreate(hipMemGenericAllocationHandle_t *, size_t, const hipMemAllocationProp *, unsigned long long)
hipMemRelease(hipMemGenericAllocationHandle_t)
hipMemExportToShareableHandle(void *, hipMemGenericAllocationHandle_t, hipMemAllocationHandleType, unsigned long long)
hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t *, void *, hipMemAllocationHandleType)
hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t *, void *)
hipMemGetAddressRange(hipDeviceptr_t *, size_t *, hipDeviceptr_t)
hipMemMap(void *, size_t, size_t, hipMemGenericAllocationHandle_t, unsigned long long)
hipMemUnmap(void *, size_t)
hipMemSetAccess(void *, size_t, const hipMemAccessDesc *, size_t)
hipMalloc(void **, size_t)
hipExtMallocWithFlags(void **, size_t, unsigned)
hipFree(void *)
hipIpcGetMemHandle(hipIpcMemHandle_t *, void *)
hipIpcOpenMemHandle(void **, hipIpcMemHandle_t, unsigned)
hipIpcCloseMemHandle(void *)
hipMemcpyAsync(void *, const void *, size_t, hipMemcpyKind, hipStream_t)
hipMemsetD8Async(hipDeviceptr_t, unsigned char, size_t, hipStream_t)
hipStreamWriteValue64(hipStream_t, void *, uint64_t, unsigned)
hipModuleLaunchKernel(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, hipStream_t, void **, void **)
hipGraphLaunch(hipGraphExec_t, hipStream_t)
hipGraphCreate(hipGraph_t *, unsigned)
hipGraphAddMemsetNode(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, const hipMemsetParams *)
hipGraphAddMemcpyNode1D(hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, void *, const void *, size_t, hipMemcpyKind)
hipGraphInstantiate(hipGraphExec_t *, hipGraph_t, hipGraphNode_t *, char *, size_t)
hipGraphExecDestroy(hipGraphExec_t)
hipGraphDestroy(hipGraph_t)
hipStreamSynchronize(hipStream_t)
hipStreamQuery(hipStream_t)
hipGetLastError(void)
hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *)
"""
ROWS = dict(re.findall(r"(\w+)\((.*)\)\n", PROTOTYPES))
BY_NATIVE = ("hipMemcpyAsync", "hipModuleLaunchKernel")  # called from C, with casts of their own
NUMBERS = {
    "hipMemHandleTypePosixFileDescriptor": driver.POSIX_FD,
    "hipMemAllocationTypePinned": driver.PINNED,
    "hipMemLocationTypeDevice": driver._DEVICE,
    "hipMemAccessFlagsProtReadWrite": driver._READ_WRITE,
    "hipMemAllocationGranularityRecommended": driver._RECOMMENDED,
    "hipErrorPeerAccessAlreadyEnabled": driver._ALREADY_ENABLED,
    "hipErrorInvalidContext": driver._NO_CONTEXT,
    "hipErrorNotReady": driver._NOT_READY,
    "hipMemcpyDefault": driver._ANY_DIRECTION,
    "hipDeviceMallocFinegrained": driver.FINE,
    "hipDeviceMallocUncached": driver.EXTENDED,
    "hipIpcMemLazyEnablePeerAccess": 1,
    "hipDeviceAttributeVirtualMemoryManagementSupported": driver._VMM_ATTRIBUTES["hip"][0],
    "hipDeviceAttributeNumberOfXccs": driver._CHIPLETS,
    "hipStreamCaptureModeRelaxed": 2,
}
FIELDS = {
    ("hipMemAllocationProp", driver.Properties): {
        "kind": "type",
        "location": "location",
        "metadata": "win32HandleMetaData",
        "compression": "allocFlags.compressionType",
        "rdma": "allocFlags.gpuDirectRDMACapable",
        "usage": "allocFlags.usage",
    },
    ("hipMemLocation", driver.Location): {"kind": "type", "device": "id"},
    ("hipMemAccessDesc", driver.Access): {"location": "location", "flags": "flags"},
    ("hipIpcMemHandle_t", driver.IpcHandle): {"bytes": "reserved"},
    ("hipMemsetParams", driver.Fill): {
        "target": "dst",
        "element": "elementSize",
        "height": "height",
        "pitch": "pitch",
        "value": "value",
        "width": "width",
    },
}


def layouts():
    for (name, structure), fields in FIELDS.items():
        yield f"sizeof({name}) == {ctypes.sizeof(structure)}"
        for field, theirs in fields.items():
            yield f"offsetof({name}, {theirs}) == {getattr(structure, field).offset}"
            yield f"sizeof((({name} *)0)->{theirs}) == {getattr(structure, field).size}"


def kind(parameter):
    """The class of ctypes that passes it: its size and whether it is an address."""
    if parameter == "hipIpcMemHandle_t":
        return "handle"
    handles = ("hipStream_t", "hipDeviceptr_t", "hipMemGenericAllocationHandle_t", "hipGraph_t", "hipGraphExec_t")
    if "*" in parameter or parameter in handles:
        return "address"
    names = {"size_t": 8, "unsigned long long": 8, "uint64_t": 8, "unsigned char": 1}
    return names.get(parameter, 4)


def passed(type_):
    if type_ is driver.IpcHandle:
        return "handle"
    address = type_ in (ctypes.c_void_p, ctypes.c_char_p) or issubclass(type_, ctypes._Pointer)
    return "address" if address else ctypes.sizeof(type_)


def test_every_function_of_the_table_is_passed_what_its_prototype_has():
    table = {hip: arguments for _, hip, arguments in driver._CALLS.values() if hip}
    assert set(table) == set(ROWS)
    for name, arguments in table.items():
        if name not in BY_NATIVE:
            wanted = [] if ROWS[name] == "void" else [kind(each) for each in ROWS[name].split(", ")]
            assert [passed(each) for each in arguments] == wanted, name


def test_prototypes_layouts_and_numbers_are_those_of_the_headers(tmp_path):
    if not (INCLUDE / "hip/hip_runtime_api.h").exists():
        pytest.skip("this Triton has no headers of HIP")
    lines = ["#define __HIP_PLATFORM_AMD__", "#include <hip/hip_runtime_api.h>", "#include <stddef.h>"]
    lines += [f"hipError_t (*p_{name})({parameters}) = {name};" for name, parameters in ROWS.items()]
    facts = [*layouts(), *(f"{name} == {number}" for name, number in NUMBERS.items())]
    lines += [f'_Static_assert({fact}, "{fact}");' for fact in facts]
    source = tmp_path / "facts.c"
    source.write_text("\n".join(lines) + "\n")
    command = ["cc", "-std=gnu11", "-Werror=incompatible-pointer-types", "-fsyntax-only", f"-I{INCLUDE}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
