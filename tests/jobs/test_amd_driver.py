"""AMD's devices, streams and errors by the driver without an AMD GPU, against a stand-in that records and checks the calls."""

import ctypes
import os
import re
import struct
import threading

import numpy as np
import pytest
from far_peer import FETCH, GPU, Peer, Service
from jobs import python
from pyshmem.device.arch.targets import TARGETS
from pyshmem.native import _native
from pyshmem.base.errors import LaunchError
from pyshmem.base.far import STAGE
from pyshmem.memory.gpu import driver as seam
from pyshmem.start import gpu as opening
from pyshmem.start import requirements
from pyshmem.memory.gpu.driver import COARSE, PINNED, Driver, DriverError
from pyshmem.memory.gpu.mapping import IpcMapping, VmmMapping
from standin import HEAD, Alone, Ledger, Standin, contents

MIB = 1 << 20


def test_every_hip_function_of_the_table_is_checked_by_the_standin(standin):
    driver = Driver("hip", 0, standin.path)
    assert [name for name, (_, hip, _) in seam._CALLS.items() if hip and not driver.has(name)] == []


# ---- which GPUs ----


def test_the_gpus_that_init_accepts_are_the_targets_of_kernels():
    assert ("interpreter", *opening.ARCHS) == TARGETS


@pytest.mark.parametrize("arch", ["gfx908", "gfx1030", "gfx1100", "gfx1201", "gfx1250", "gfx940", "gfx906"])
def test_a_gpu_without_fences_of_its_own_is_refused_by_name_unless_the_user_allows_it(arch, monkeypatch):
    monkeypatch.delenv("PYSHMEM_ALLOW_ARCH", raising=False)
    known = {
        "gfx908": "MI100: Triton from",
        "gfx1250": "Triton from",
        "gfx940": "a forerunner of MI300: Triton 3.6 and 3.7 do not",
        "gfx906": "unknown here",
    }.get(arch, "RDNA: Triton from")
    with pytest.raises(LaunchError) as caught:
        opening._require_arch(Alone(), arch)
    assert f"device: got a {arch} on PE 0 ({known}" in str(caught.value)
    assert "expected gfx90a, gfx942, gfx950 or an NVIDIA GPU; PYSHMEM_ALLOW_ARCH=1" in str(caught.value)
    monkeypatch.setenv("PYSHMEM_ALLOW_ARCH", "1")
    opening._require_arch(Alone(), arch)


@pytest.mark.parametrize(
    ("arch", "version", "wrong"),
    [
        ("gfx950", "3.7.0+amd.rocm7.0.0.git89002410", True),
        ("gfx950", "3.7.1+rocm7.2.git12345678", False),
        ("gfx950", "3.7.1", False),
        ("gfx950", "3.8.0+amd.rocm7.14", False),
        ("gfx942", "3.7.0+amd.rocm7.0.0.git89002410", False),
    ],
)
def test_a_triton_that_compiles_wrongly_for_a_gpu_is_refused_by_its_build_tag(arch, version, wrong, monkeypatch):
    monkeypatch.delenv("PYSHMEM_ALLOW_ARCH", raising=False)
    monkeypatch.setattr(requirements, "version_of", lambda name: version if name == "triton-rocm" else "")
    if not wrong:
        return opening._require_arch(Alone(), arch)
    with pytest.raises(LaunchError) as caught:
        opening._require_arch(Alone(), arch)
    assert f"device: got a {arch} on PE 0 (Triton {version}: " in str(caught.value)
    assert "expected the Triton of torch for ROCm; PYSHMEM_ALLOW_ARCH=1 tries it" in str(caught.value)
    monkeypatch.setenv("PYSHMEM_ALLOW_ARCH", "1")
    opening._require_arch(Alone(), arch)


@pytest.mark.parametrize("chiplets", [8, 6, 1])  # MI300X; MI300A; MI300X in CPX partitions
def test_the_number_of_chiplets_is_the_drivers(chiplets, library):
    driver = Driver("hip", 0, Standin(library, chiplets=chiplets).path)
    assert driver.chiplets() == chiplets


def test_a_driver_that_does_not_know_chiplets_has_one(standin):
    driver = Driver("hip", 0, standin.path)
    standin.fail("hipDeviceGetAttribute", 1, 1)
    assert driver.chiplets() == 1


# ---- devices, and work on streams ----


def test_devices_are_told_apart_by_bus_id_and_a_hidden_one_is_unknown(library):
    """Ordinals depend on HIP_VISIBLE_DEVICES, which may differ between PEs."""
    driver = Driver("hip", 0, Standin(library, devices="3,1").path)
    assert (driver.bus_id(), driver.device_count()) == ("0000:03:00.0", 2)
    reached = [driver.reaches(bus_id) for bus_id in ("0000:03:00.0", "0000:01:00.0", "0000:00:00.0")]
    assert reached == [True, True, None]


def test_partitions_of_one_gpu_get_access_to_each_other_though_they_have_one_bus_id(library):
    """A GPU in CPX mode: eight devices. Before ROCm 7 memory of one without access is a fault of memory."""
    standin = Standin(library, version="6.4", devices="0,1,2,3,4,5,6,7,8", partitions=8)
    driver = Driver("hip", 3, standin.path)
    assert driver.bus_ids == ["0000:00:00.0"] * 8 + ["0000:01:00.0"]
    assert [driver.reaches(bus_id) for bus_id in ("0000:00:00.0", "0000:01:00.0", "0000:02:00.0")] == [True, True, None]
    driver.enable_access("0000:00:00.0")
    enabled = [call.values["peer"] for call in standin.calls() if call.name == "hipDeviceEnablePeerAccess"]
    assert enabled == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("one_uuid", [0, 1])
@pytest.mark.parametrize("visible", ["0,1,2,3,4,5,6,7", "each its own"])
def test_pes_on_partitions_of_one_gpu_share_none_where_ordinals_or_uuids_tell_them_apart(visible, one_uuid, library):
    """Ordinals where all PEs see one list, UUIDs always. Without either, they are taken to share the GPU, which is safe."""
    pes = []
    for pe in range(8):
        devices = visible if "," in visible else str(pe)
        driver = Driver(
            "hip", pe if "," in visible else 0, Standin(library, devices=devices, partitions=8, one_uuid=one_uuid).path
        )
        pes.append(("host", (driver.device, tuple(driver.bus_ids), driver.uuid())))
    assert opening.shared(pes) == ("," not in visible and bool(one_uuid))
    assert opening.shared([*pes, pes[3]]), "two PEs on one partition"


def test_pes_of_several_hosts_share_no_gpu_though_ordinals_and_bus_ids_are_alike():
    seen = (0, ("0000:03:00.0", "0000:04:00.0"), "")
    assert not opening.shared([("one", seen), ("two", seen)])
    assert opening.shared([("one", seen), ("two", seen), ("one", seen)])
    elsewhere = (1, ("0000:04:00.0", "0000:03:00.0"), "")  # another order of HIP_VISIBLE_DEVICES
    assert opening.shared([("one", seen), ("one", elsewhere)])


def test_peer_access_is_enabled_once_accepted_when_it_was_and_skipped_for_hidden_devices(library):
    standin = Standin(library, devices="0,1")
    driver = Driver("hip", 0, standin.path)
    for bus_id in ("0000:01:00.0", "0000:01:00.0", "0000:00:00.0", "0000:07:00.0"):
        driver.enable_access(bus_id)
    enabled = [(call.values["peer"], call.code) for call in standin.calls() if call.name == "hipDeviceEnablePeerAccess"]
    assert enabled == [(1, 0), (1, 704)]
    standin.fail("hipDeviceEnablePeerAccess", 1, 801)
    with pytest.raises(DriverError, match="hipDeviceEnablePeerAccess returned 801, operation not supported"):
        driver.enable_access("0000:01:00.0")


def test_no_call_that_pyshmem_handles_leaves_its_error_to_torch(library):
    """From Python and from C, for each call of the table, and what is no fault: a hidden device, access enabled twice."""
    standin = Standin(library, devices="0,1")
    driver = Driver("hip", 0, standin.path)
    kept = standin.library.standin_errors_left
    driver.enable_access("0000:01:00.0")
    driver.enable_access("0000:01:00.0")
    driver.enable_access("0000:07:00.0")
    assert (driver.reaches("0000:07:00.0"), kept()) == (None, 0)
    failing = {
        "hipIpcOpenMemHandle": lambda: driver.ipc_open(bytes(64)),
        "hipMemcpyAsync": lambda: driver.copy(4096, 8192, 0, 0),
        "hipStreamQuery": lambda: driver.idle(0),
    }
    for name, call in failing.items():
        standin.fail(name)
        with pytest.raises(DriverError, match=name):
            call()
        assert kept() == 0
    launch, graph = (driver.address_of(name) for name in ("launch", "launch_graph"))
    assert _native.launch_prepared(struct.pack("<8Q", launch, 0, 1, 1, 1, 64, 0, False), 0) == 1
    assert (_native.launch_graph(graph, 0, 0), kept()) == (1, 0)
    standin.library.hipFree(4096)
    assert (kept(), standin.library.hipGetLastError(), kept()) == (1, 1, 0), "the stand-in keeps what nobody handles"


def test_copies_and_fills_land_where_they_should(standin):
    """Beside guards, words of every size among them; streams are addresses, 8 bytes wide."""
    driver = Driver("hip", 0, standin.path)
    mapping = IpcMapping(driver, Alone(), Alone(), 4096, COARSE, 0)
    stream, begun = 0x7FFF12345670, len(standin.calls())
    host = ctypes.create_string_buffer(bytes(range(64)), 64)
    at = ctypes.addressof(host)
    driver.copy(mapping.base, at, 64, stream)
    driver.copy(mapping.base + 128, mapping.base, 64, stream)
    driver.clear(mapping.base + 8, 8, stream)
    for nbytes in (1, 2, 4, 8):
        driver.copy(mapping.base + 16 + 4 * nbytes, at, nbytes, stream)
    driver.copy(at + 8, mapping.base + 131, 3, stream)
    driver.synchronize(stream)
    assert driver.idle(stream)
    expected = bytearray(range(64)) + bytes(64) + bytes(range(64))
    expected[8:16] = bytes(8)
    for nbytes in (1, 2, 4, 8):
        expected[16 + 4 * nbytes : 16 + 5 * nbytes] = range(nbytes)
    assert contents(mapping.base, 192) == expected
    assert host.raw == bytes([*range(8), 3, 4, 5, *range(11, 64)])
    made = standin.calls()[begun:]
    assert {call.values["stream"] for call in made} == {stream}
    assert {call.values["kind"] for call in made if call.name == "hipMemcpyAsync"} == {4}, "hipMemcpyDefault"
    mapping.close()
    assert standin.ledger() == Ledger()


def test_a_stream_writes_words_and_does_not_wait_for_those_of_a_heap(standin):
    """hipStreamWaitValue64 takes memory of its own kind only."""
    driver = Driver("hip", 0, standin.path)
    mapping = IpcMapping(driver, Alone(), Alone(), 4096, COARSE, 0)
    driver.write_value(0x7FFF12345670, mapping.base + 8, 2**64 - 2)
    assert contents(mapping.base, 24) == bytes(8) + (2**64 - 2).to_bytes(8, "little") + bytes(8)
    with pytest.raises(DriverError, match="hipStreamWriteValue64 returned"):
        driver.write_value(0, mapping.base + 4, 1)
    assert not driver.can_wait()
    mapping.close()


def test_a_thread_that_has_no_context_gets_the_device_and_the_call_is_made_again(standin):
    driver = Driver("hip", 0, standin.path)
    mapping = IpcMapping(driver, Alone(), Alone(), 4096, COARSE, 0)
    for name, call in (
        ("hipMemcpyAsync", lambda: driver.copy(mapping.base, mapping.base + 64, 8, 0)),
        ("hipMemsetD8Async", lambda: driver.clear(mapping.base, 8, 0)),
    ):
        standin.fail(name, 1, 201)
        begun = len(standin.calls())
        call()
        assert standin.names(begun) == [name, "hipSetDevice", name]
        standin.fail(name, 1, 1)
        with pytest.raises(DriverError, match=f"{name} returned 1, invalid argument"):
            call()
    mapping.close()


def test_a_new_thread_works_on_the_drivers_device(library):
    """HIP starts each thread on device 0; stream 0 is the current device's, and copies are for memory open to that one."""
    standin = Standin(library, devices="0,1,2")
    driver = Driver("hip", 2, standin.path)
    mapping = VmmMapping(driver, Alone(), Alone(), 4 * MIB, PINNED)
    mapping.grow(MIB, 0)
    begun = len(standin.calls())
    for step in (lambda: driver.copy(mapping.base, mapping.base + 64, 8, 0), lambda: driver.clear(mapping.base, 8, 0)):
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
    made = [(call.name, call.values.get("current"), call.code) for call in standin.calls()[begun:]]
    device = ("hipSetDevice", None, 0)
    assert made == [device, ("hipMemcpyAsync", 2, 0), device, ("hipMemsetD8Async", 2, 0)]
    mapping.close()


def test_the_service_thread_works_on_the_drivers_device(library):
    """It serves far PEs by the driver's functions alone, called from C."""
    standin = Standin(library, devices="0,1,2")
    driver = Driver("hip", 2, standin.path)
    mapping = VmmMapping(driver, Alone(), Alone(), 4 * MIB, PINNED)
    mapping.grow(MIB, 0)
    staging, service = np.zeros(STAGE + 64, np.uint8), Service()
    plan = struct.pack("=8Q", driver.address_of("launch"), 77, 1, 1, 1, 64, 0, 0)
    calls = (driver.address_of(name) for name in ("relax", "copy", "query"))
    begun = len(standin.calls())
    code = _native.far_open_gpu(
        *(mapping.base, MIB, True, *driver.attachment(), *calls, 0, staging.ctypes.data, mapping.base + MIB, 5 * plan)
    )
    warmed = len(standin.calls())
    assert code == 0
    peer = Peer(service.port)
    peer.reply()
    data = (np.arange(9000) % 251).astype(np.uint8).tobytes()
    peer.put(GPU + 64, data)
    peer.send(FETCH, GPU, detail=3)
    assert peer.reply()[0] == 3
    made = [(call.name, call.values.get("current"), call.code) for call in standin.calls()[begun:]]
    copies = [("hipMemcpyAsync", 2, 0), ("hipStreamQuery", None, 0)]
    launches = [("hipModuleLaunchKernel", None, 0), ("hipStreamQuery", None, 0)]
    assert made[:2] == [("hipSetDevice", None, 0), ("hipThreadExchangeStreamCaptureMode", None, 0)]
    made, work = made[2 : warmed - begun], made[warmed - begun :]
    assert made == launches * (len(made) // 2 - 2) + 2 * copies, (
        "each kernel and the copy engine both ways, before a request"
    )
    assert work == copies * (len(work) // 2 - 1) + launches
    assert ctypes.string_at(mapping.base + 64, 9000) == data
    assert standin.misuses() == []
    peer.leave()
    service.close()
    mapping.close()


def test_the_library_that_is_loaded_already_is_the_one_that_is_used(library, tmp_path):
    """torch brings its own; a second libamdhip64 in the process would share neither contexts nor memory with it."""
    program = """
standin = Standin(sys.argv[1])
Driver("hip", 0)
assert standin.names() == ["hipInit", "hipRuntimeGetVersion", "hipSetDevice"]
print("used")
"""
    status, out, err = python(HEAD + program, str(library), tmp_path=tmp_path)
    assert (status, out) == (0, "used\n"), err


def test_the_library_of_torchs_wheels_is_used_where_another_has_loaded_the_machines(library, tmp_path):
    """Wheels for ROCm 7.14 and later have it in _rocm_sdk_core, under a name with a version alone."""
    program = """
import shutil
from pyshmem.memory.gpu.driver import default_library
folders = [f"{sys.argv[2]}/{part}" for part in ("opt/rocm/lib", "site-packages/_rocm_sdk_core/lib")]
paths = [os.path.join(folder, "libamdhip64.so.7") for folder in folders]
for folder, path in zip(folders, paths):
    os.makedirs(folder)
    shutil.copy(sys.argv[1], path)
    ctypes.CDLL(path)
assert default_library("hip") == paths[1], default_library("hip")
Driver("hip", 0)
print("used")
"""
    status, out, err = python(HEAD + program, str(library), str(tmp_path), tmp_path=tmp_path)
    assert (status, out) == (0, "used\n"), err


def test_a_missing_library_is_an_os_error_with_its_name():
    with pytest.raises(OSError, match="/nowhere/libamdhip64.so"):
        Driver("hip", 0, "/nowhere/libamdhip64.so")


# ---- the real library, where there is one: Debian's libamdhip64-5 loads without a GPU ----

NAMES = ("libamdhip64.so", *(f"libamdhip64.so.{major}" for major in range(5, 9)))


@pytest.fixture(scope="session")
def real_library(tmp_path_factory):
    """A name that the loader finds. Tried in another process: this one has the stand-in."""
    program = f"import ctypes\nfor name in {NAMES}:\n try: ctypes.CDLL(name); print(name); break\n except OSError: pass"
    _, out, _ = python(program, tmp_path=tmp_path_factory.mktemp("real"))
    if not out:
        pytest.skip("no libamdhip64 here (Debian: apt install libamdhip64-5)")
    return out.strip()


def test_the_real_library_has_every_function_of_the_table(real_library, tmp_path):
    program = """
library = ctypes.CDLL(sys.argv[1])
print([hip for _, hip, _ in seam._CALLS.values() if hip and not hasattr(library, hip)])
"""
    head = "import ctypes, sys\nfrom pyshmem.memory.gpu import driver as seam\n"
    status, out, err = python(head + program, real_library, tmp_path=tmp_path)
    assert (status, out) == (0, "[]\n"), err


@pytest.mark.skipif(os.path.exists("/dev/kfd"), reason="needs a machine without an AMD GPU")
def test_the_real_library_without_a_gpu_answers_every_call_with_an_error_and_no_crash(real_library, tmp_path):
    """The signatures hold: each call comes back. The first one's answer is the DriverError that a caller sees."""
    program = """
import ctypes, struct, sys
from pyshmem.native._native import launch_graph, launch_prepared
from pyshmem.memory.gpu.driver import _CALLS, Driver, DriverError
try:
    Driver("hip", 0, sys.argv[1])
except DriverError as error:
    print(error)
class Deaf(Driver):
    answers = {}
    def _refuse(self, operation, code):
        self.answers[operation] = code
driver = Deaf("hip", 0, sys.argv[1])
driver.device_count(), driver.has_virtual_memory(), driver.bus_id(), driver.reaches("0000:01:00.0")
driver.granularity(1), driver.reserve(1 << 21, 1 << 21), driver.create(1 << 21, 1), driver.export(0), driver.import_(2)
driver.map(4096, 4096, 0), driver.allow(4096, 4096), driver.unmap(4096, 4096), driver.release(0), driver.unreserve(4096, 4096)
driver.allocate(4096, 0), driver.allocate(4096, 3), driver.free(4096)
driver.ipc_get(4096), driver.ipc_open(bytes(64)), driver.ipc_close(4096)
driver.copy(4096, 8192, 0, 0), driver.clear(4096, 0, 0), driver.synchronize(0)
driver.idle(0), driver.write_value(0, 4096, 1)
address = ctypes.cast(driver._library.hipModuleLaunchKernel, ctypes.c_void_p).value
driver.answers["launch"] = launch_prepared(struct.pack("<8Q", address, 0, 1, 1, 1, 64, 0, False), 0)
address = ctypes.cast(driver._library.hipGraphLaunch, ctypes.c_void_p).value
driver.answers["launch_graph"] = launch_graph(address, 0, 0)
driver.call("relax", ctypes.byref(ctypes.c_int(2)))
driver.call("enable_access", 1, 0)
for name, (_, hip, types) in _CALLS.items():
    if name.startswith("graph"):
        driver.call(name, *(0 if each in (ctypes.c_int, ctypes.c_uint, ctypes.c_size_t) else None for each in types))
driver._number("can_access", 0, 1)
print(sorted({name for name, (_, hip, _) in _CALLS.items() if hip} - set(driver.answers)), 0 in driver.answers.values())
"""
    status, out, err = python(program, real_library, tmp_path=tmp_path)
    assert status == 0, err
    said, silent = out.splitlines()
    assert re.fullmatch(r"hipInit returned 10[01], .+", said)
    assert silent == "['last_error', 'version'] False"  # they need no GPU
