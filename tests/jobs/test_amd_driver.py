"""AMD's side of the driver seam without an AMD GPU: calls, order and unwinding, against a stand-in that records and checks them."""

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
from pyshmem.runtime import _native
from pyshmem.runtime.errors import LaunchError
from pyshmem.runtime.far import STAGE
from pyshmem.runtime.gpu import driver as seam
from pyshmem.runtime.gpu import mapping as mapping_module
from pyshmem.runtime.gpu import opening
from pyshmem.runtime.gpu.driver import COARSE, EXTENDED, FINE, PINNED, UNCACHED, Driver, DriverError
from pyshmem.runtime.gpu.mapping import IpcMapping, VmmMapping, choose
from standin import HEAD, Alone, Ledger, Standin, contents, open_descriptors

MIB = 1 << 20


@pytest.fixture
def standin(library):
    return Standin(library)


def test_every_hip_function_of_the_table_is_checked_by_the_standin(standin):
    driver = Driver("hip", 0, standin.path)
    assert [name for name, (_, hip, _) in seam._CALLS.items() if hip and not driver.has(name)] == []


# ---- virtual memory ----


def test_growth_makes_these_calls_in_this_order(standin):
    """The device is set before create, as HIP takes the current one; access comes after map, the fill after access."""
    driver = Driver("hip", 0, standin.path)
    mapping = VmmMapping(driver, Alone(), Alone(), 64 * MIB, PINNED)
    begun = len(standin.calls())
    mapping.grow(3 * MIB, 0)
    grown = len(standin.calls())
    mapping.close()
    assert standin.names()[begun:grown] == [
        "hipSetDevice",
        "hipMemCreate",
        "hipMemExportToShareableHandle",
        "hipMemMap",
        "hipMemSetAccess",
        "hipMemsetD8Async",
        "hipStreamSynchronize",
    ]
    assert standin.names(grown) == ["hipMemUnmap", "hipMemRelease", "hipMemAddressFree"]
    assert standin.ledger() == Ledger()


def test_growth_passes_what_hip_wants(standin):
    driver = Driver("hip", 0, standin.path)
    mapping = VmmMapping(driver, Alone(), Alone(), 64 * MIB, PINNED)
    mapping.grow(3 * MIB, 0)
    at = {call.name: call.values for call in standin.calls()}
    whole = 4 * MIB  # granularity 2 MiB
    assert at["hipMemAddressReserve"]["size"] == 2 * 64 * MIB  # to place the heap at a multiple of its size
    create = at["hipMemCreate"]
    assert (create["size"], create["type"], create["location"], create["flags"]) == (whole, 1, "1,0", 0)
    assert (create["handle_types"], create["rdma"]) == (1, 1)
    assert at["hipMemExportToShareableHandle"]["type"] == 1
    placed = at["hipMemMap"]
    assert (placed["address"], placed["size"], placed["offset"], placed["flags"]) == (mapping.base, whole, 0, 0)
    access = at["hipMemSetAccess"]
    assert (access["address"], access["size"]) == (mapping.base, whole)
    assert (access["location"], access["access"], access["count"]) == ("1,0", 3, 1)
    mapping.close()


def test_a_heap_begins_at_a_multiple_of_a_power_of_two_that_is_not_smaller(standin):
    """So shmem.align has the same offset on every PE, wherever the driver puts a range."""
    mappings = [VmmMapping(Driver("hip", 0, standin.path), Alone(), Alone(), 34 * MIB, PINNED) for _ in range(3)]
    assert [(mapping.alignment, mapping.base % mapping.alignment) for mapping in mappings] == [(64 * MIB, 0)] * 3
    for mapping in mappings:
        assert mapping.grow(34 * MIB, 0) == 34 * MIB, "the end of the heap lies in the range, too"
        mapping.close()
    assert standin.ledger() == Ledger()


def test_grown_memory_is_zero_and_keeps_what_was_written_before(standin):
    """The stand-in's memory comes full of 0xA5, as the real one's comes full of anything."""
    mapping = VmmMapping(Driver("hip", 0, standin.path), Alone(), Alone(), 64 * MIB, PINNED)
    assert mapping.grow(MIB, 0) == 2 * MIB
    assert contents(mapping.base, 2 * MIB) == bytes(2 * MIB)
    ctypes.memset(mapping.base, 7, 2 * MIB)
    assert mapping.grow(2 * MIB, 0) == 2 * MIB
    assert contents(mapping.base, 4 * MIB) == b"\x07" * (2 * MIB) + bytes(2 * MIB)
    assert (mapping.size, mapping.most) == (4 * MIB, 60 * MIB)
    mapping.close()


@pytest.mark.parametrize("version, pieces", [("7.13", [2, 2, 2, 2]), ("7.14", [2, 6])])
def test_growth_by_another_size_is_cut_in_equal_pieces_where_access_needs_that(version, pieces, library, monkeypatch):
    monkeypatch.setattr(mapping_module, "_PIECE", 2 * MIB)
    standin = Standin(library, version=version)
    mapping = VmmMapping(Driver("hip", 0, standin.path), Alone(), Alone(), 9 * MIB, PINNED)
    assert [mapping.grow(nbytes, 0) for nbytes in (1, 5 * MIB)] == [2 * MIB, 6 * MIB]
    sizes = [call.values["size"] for call in standin.calls() if call.name == "hipMemSetAccess"]
    assert sizes == [piece * MIB for piece in pieces]
    assert contents(mapping.base, 8 * MIB) == bytes(8 * MIB)
    assert mapping.most == 2 * MIB
    mapping.close()
    assert standin.ledger() == Ledger()


@pytest.mark.parametrize("cap, unit", [(3 * MIB, 4 * MIB), (1000 * MIB, 64 * MIB)])
def test_the_equal_pieces_are_of_64_mib_or_the_whole_heap(cap, unit, library):
    """The range is reserved in whole ones, so that no cap is out of reach."""
    mapping = VmmMapping(Driver("hip", 0, Standin(library, version="7.1").path), Alone(), Alone(), cap, PINNED)
    assert (mapping.unit, mapping.most % unit) == (unit, 0)
    assert cap <= mapping.most < cap + unit
    mapping.close()


def test_another_device_than_the_first_is_the_one_that_is_used(library):
    standin = Standin(library, devices="0,1,2")
    mapping = VmmMapping(Driver("hip", 2, standin.path), Alone(), Alone(), 8 * MIB, PINNED)
    ctypes.CDLL(standin.path).hipSetDevice(0)  # as torch may have done since
    mapping.grow(MIB, 0)
    at = {call.name: call.values for call in standin.calls()}
    assert (at["hipMemCreate"]["location"], at["hipMemCreate"]["current"]) == ("1,2", 2)
    assert at["hipMemSetAccess"]["location"] == "1,2"
    mapping.close()
    assert standin.ledger() == Ledger()


def test_no_descriptor_outlives_its_growth(standin):
    before = open_descriptors()
    mapping = VmmMapping(Driver("hip", 0, standin.path), Alone(), Alone(), 64 * MIB, PINNED)
    ready = len(open_descriptors())
    mapping.grow(MIB, 0)
    mapping.grow(MIB, 0)
    assert len(open_descriptors()) == ready + 2, "besides the two that the stand-in holds for its handles"
    mapping.close()
    assert open_descriptors() == before


def test_the_driver_is_given_the_kind_that_was_chosen(library):
    standin = Standin(library)
    driver = Driver("hip", 0, standin.path)
    mapping = VmmMapping(driver, Alone(), Alone(), 4 * MIB, UNCACHED)
    mapping.grow(MIB, 0)
    mapping.close()
    for kind in (COARSE, FINE, EXTENDED):
        IpcMapping(driver, Alone(), Alone(), MIB, kind, 0).close()
    at = {call.name: call.values for call in standin.calls()}
    assert at["hipMemCreate"]["type"] == at["hipMemGetAllocationGranularity"]["type"] == 0x40000000
    flags = [call.values["flags"] for call in standin.calls() if call.name == "hipExtMallocWithFlags"]
    assert (flags, standin.names().count("hipMalloc")) == ([1, 3], 1)
    assert standin.ledger() == Ledger()


def test_a_heap_of_a_whole_gpu_has_few_pieces_and_its_growths_get_larger(library):
    """ROCm holds a descriptor for each piece of each PE: 64 MiB at a time, 192 GiB on 8 PEs would be 24000."""
    sizes = {}
    for version in ("7.1", "7.14"):
        mapping = VmmMapping(
            Driver("hip", 0, Standin(library, version=version).path), Alone(), Alone(), 192 << 30, PINNED
        )
        mapping._add = lambda offset, piece, stream, undo: [piece]
        while mapping.most >= 64 * MIB:
            mapping.grow(64 * MIB, 0)
        sizes[version], mapping._chunks = mapping._chunks, []
        mapping.close()
    assert len(sizes["7.1"]) <= 256 and set(sizes["7.1"]) == {768 * MIB}
    assert len(sizes["7.14"]) < 50 and sizes["7.14"][-2] > 16 << 30


def test_growth_that_is_too_large_falls_back_to_what_was_asked_for(standin):
    mapping = VmmMapping(Driver("hip", 0, standin.path), Alone(), Alone(), 64 * MIB, PINNED)
    mapping.grow(16 * MIB, 0)
    standin.fail("hipMemCreate", 1, 2)
    assert (mapping.grow(MIB, 0), mapping.grow(MIB, 0)) == (2 * MIB, 6 * MIB)
    mapping.close()
    assert standin.ledger() == Ledger()


def test_the_limit_of_descriptors_is_raised_and_a_failure_at_it_names_it(library, tmp_path):
    program = """
import resource
limit = len(open_descriptors()) + 40
resource.setrlimit(resource.RLIMIT_NOFILE, (limit - 20, limit))
standin = Standin(sys.argv[1])
driver = Driver("hip", 0, standin.path)
mapping = VmmMapping(driver, node, node, 1 << 30, PINNED)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, limit)
mapping_module._LEAST_GROWTH = 1 << 30
try:
    while True:
        mapping.grow(MIB, 0)
except DriverError as error:
    print(len(mapping._chunks) > 20, str(error).replace(str(limit), "LIMIT"))
mapping.close()
"""
    status, out, err = python(HEAD + program, str(library), tmp_path=tmp_path)
    assert status == 0, err
    assert out.startswith("True hipMem") and out.endswith(
        "; this process has as many open files as it may, LIMIT: raise the hard limit (ulimit -Hn, nofile)\n"
    )


# ---- which memory, mapped how ----

AUTO = [
    ("gfx90a", "6.4", ("ipc", EXTENDED)),
    ("gfx90a", "7.1", ("ipc", EXTENDED)),  # its virtual memory is cached before 7.14, and flags in that are never seen
    ("gfx90a", "7.2", ("ipc", EXTENDED)),  # where the uncached kind exists, but is cached
    ("gfx90a:sramecc+:xnack-", "7.14", ("vmm", UNCACHED)),
    ("gfx942", "6.4", ("ipc", EXTENDED)),
    ("gfx942", "7.0", ("vmm", PINNED)),
    ("gfx942:sramecc+:xnack-", "7.2", ("vmm", PINNED)),
    ("gfx950", "7.0", ("vmm", PINNED)),
    ("gfx1100", "7.1", ("ipc", EXTENDED)),
]


@pytest.mark.parametrize("arch, version, wanted", AUTO)
def test_auto_takes_memory_in_which_flags_are_seen(arch, version, wanted, library):
    driver = Driver("hip", 0, Standin(library, version=version).path)
    choice = choose(driver, arch, "auto", "auto")
    assert choice[:2] == wanted
    assert arch in choice.why and str(driver.version) in choice.why


ASKED = [
    ("7.1", "auto", "coarse", ("vmm", PINNED)),
    ("7.1", "auto", "fine", ("ipc", FINE)),  # virtual memory has no such kind
    ("7.1", "auto", "uncached", ("ipc", EXTENDED)),
    ("7.2", "auto", "uncached", ("ipc", EXTENDED)),
    ("7.14", "auto", "uncached", ("vmm", UNCACHED)),
    ("7.1", "ipc", "auto", ("ipc", COARSE)),
    ("7.1", "ipc", "coarse", ("ipc", COARSE)),
    ("7.14", "vmm", "uncached", ("vmm", UNCACHED)),
    ("6.4", "auto", "coarse", ("ipc", COARSE)),
]


@pytest.mark.parametrize("version, way, kind, wanted", ASKED)
def test_what_is_asked_for_is_taken(version, way, kind, wanted, library):
    driver = Driver("hip", 0, Standin(library, version=version).path)
    assert choose(driver, "gfx942", way, kind)[:2] == wanted


@pytest.mark.parametrize("version, kind", [("6.4", "auto"), ("6.4", "coarse"), ("7.2", "uncached"), ("7.14", "fine")])
def test_virtual_memory_that_cannot_be_had_is_refused(version, kind, library):
    driver = Driver("hip", 0, Standin(library, version=version).path)
    with pytest.raises(ValueError, match=r"from ROCm 7\.0 coarse, from 7\.14 uncached"):
        choose(driver, "gfx942", "vmm", kind)


def test_a_driver_without_virtual_memory_gets_ipc(library):
    driver = Driver("hip", 0, Standin(library, vmm=False).path)
    assert choose(driver, "gfx942", "auto", "auto")[:2] == ("ipc", EXTENDED)


# ---- which GPUs ----


def test_the_gpus_that_init_accepts_are_the_targets_of_kernels():
    assert ("interpreter", *opening.ARCHS) == TARGETS


@pytest.mark.parametrize("arch", ["gfx908", "gfx1030", "gfx1100", "gfx1201", "gfx1250", "gfx940"])
def test_a_gpu_without_fences_of_its_own_is_refused_by_name_unless_the_user_allows_it(arch, monkeypatch):
    monkeypatch.delenv("PYSHMEM_ALLOW_ARCH", raising=False)
    known = {"gfx908": "MI100: Triton from", "gfx1250": "Triton from", "gfx940": "unknown here"}.get(
        arch, "RDNA: Triton from"
    )
    with pytest.raises(LaunchError) as caught:
        opening._require_arch(Alone(), arch)
    assert f"device: got a {arch} on PE 0 ({known}" in str(caught.value)
    assert "wants gfx90a, gfx942, gfx950 or an NVIDIA GPU; PYSHMEM_ALLOW_ARCH=1" in str(caught.value)
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
    for step in (
        lambda: driver.copy(mapping.base, mapping.base + 64, 8, 0),
        lambda: driver.clear(mapping.base, 8, 0),
    ):
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
        *(mapping.base, MIB, True, *driver.attachment(), *calls, 0, staging.ctypes.data, mapping.base + MIB, 5 * plan),
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
    head = "import ctypes, sys\nfrom pyshmem.runtime.gpu import driver as seam\n"
    status, out, err = python(head + program, real_library, tmp_path=tmp_path)
    assert (status, out) == (0, "[]\n"), err


@pytest.mark.skipif(os.path.exists("/dev/kfd"), reason="needs a machine without an AMD GPU")
def test_the_real_library_without_a_gpu_answers_every_call_with_an_error_and_no_crash(real_library, tmp_path):
    """The signatures hold: each call comes back. The first one's answer is the DriverError that a caller sees."""
    program = """
import ctypes, struct, sys
from pyshmem.runtime._native import launch_graph, launch_prepared
from pyshmem.runtime.gpu.driver import _CALLS, Driver, DriverError
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
driver._call("relax", ctypes.byref(ctypes.c_int(2)))
driver._call("enable_access", 1, 0)
driver._number("can_access", 0, 1)
print(sorted({name for name, (_, hip, _) in _CALLS.items() if hip} - set(driver.answers)), 0 in driver.answers.values())
"""
    status, out, err = python(program, real_library, tmp_path=tmp_path)
    assert status == 0, err
    said, silent = out.splitlines()
    assert re.fullmatch(r"hipInit returned 10[01], .+", said)
    assert silent == "['last_error', 'version'] False"  # they need no GPU
