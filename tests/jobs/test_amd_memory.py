"""AMD's memory by the driver without an AMD GPU: which kind is taken, and how heaps of it grow, against a stand-in."""

import ctypes

import pytest
from jobs import python
from pyshmem.memory.gpu import mapping as mapping_module
from pyshmem.memory.gpu.driver import COARSE, EXTENDED, FINE, PINNED, UNCACHED, Driver
from pyshmem.memory.gpu.mapping import IpcMapping, VmmMapping, choose
from standin import HEAD, Alone, Ledger, Standin, contents, open_descriptors

MIB = 1 << 20


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
