"""Timelines on a full disk: the file opens with what there is, and a message names the file and the reason."""

import json
import os
import resource
import subprocess

import pytest
from jobs import python
from pyshmem.timelines import merging, reading
from pyshmem.timelines.events import EVENT
from pyshmem.timelines.recording import appended
from trace_format import checked

FULL = """
import os, resource
import torch
import pyshmem as shmem
shmem.init()
x = shmem.zeros(8)
for path in "out.txt", "none/out.json":
    try:
        with shmem.trace(path):
            pass
    except shmem.ArgumentError as error:
        print(error)
with shmem.trace("few.json"):
    for _ in range(120):
        shmem.put(x, x, 0)
    try:
        shmem.trace("two.json")
    except shmem.ArgumentError as error:
        print(error)
os.environ["PYSHMEM_TRACE_EVENTS"] = "40000"
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20 | 4096, resource.RLIM_INFINITY))
with shmem.trace("cut.json"):
    for _ in range(20000):
        shmem.put(x, x, 0)
"""


def slices(path):
    checked(path)
    found = json.loads(path.read_text())
    return found["metadata"], [row for row in found["traceEvents"] if row["ph"] == "X"]


def test_events_beyond_a_limit_are_counted_and_a_file_that_may_not_grow_opens(tmp_path):
    status, out, err = python(FULL, tmp_path=tmp_path, environment={"PYSHMEM_TRACE_EVENTS": "100"})
    assert status == 0, err
    name, folder, second = out.splitlines()
    assert name == "trace: PE 0: path: got 'out.txt'; expected a name that ends with .json"
    assert folder.startswith("trace: PE 0: path: got ") and "none/out.json" in folder and "No such file" in folder
    assert second.endswith("few.json is recorded; expected one timeline at a time")
    metadata, calls = slices(tmp_path / "few.json")
    assert len(calls) == 100 and metadata["lost_events"] == {"0": 20}
    assert metadata["lost_because"] == {"0": ["PYSHMEM_TRACE_EVENTS is 100"]}
    metadata, calls = slices(tmp_path / "cut.json")
    assert metadata["lost_events"] == {"0": 20000 - (1 << 14)}
    assert metadata["lost_because"] == {"0": ["pe-0.events: File too large"]}
    assert 1000 < len(calls) < 1 << 14 and "no space" in (tmp_path / "cut.json").read_text()
    parts = tmp_path / "cut.json.parts"
    assert parts.is_dir()
    few, lost, cut = (line.removeprefix("pyshmem: trace: ") for line in err.splitlines())
    assert few == f"{tmp_path}/few.json: PE 0 has lost its last 20 events: PYSHMEM_TRACE_EVENTS is 100"
    assert lost == f"{tmp_path}/cut.json: PE 0 has lost its last 3616 events: pe-0.events: File too large"
    assert cut == f"{tmp_path}/cut.json: File too large: it has the first events; all are in {parts}"


SMALL = """
import os, shutil
import torch
import pyshmem as shmem
shmem.init()
x = shmem.zeros(8)

def fill():
    with open("small/filler", "wb", buffering=0) as file:
        for size in (1 << 16, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                pass

for name, calls in ("few", 100), ("many", 20000):
    with shmem.trace(f"small/{name}.json"):
        shmem.put(x, x, 0)
        fill()
        for _ in range(calls):
            shmem.put(x, x, 0)
    os.remove("small/filler")
    shutil.copytree("small", name)
fill()
try:
    with shmem.trace("small/none.json"):
        pass
except shmem.ArgumentError as error:
    print(error)
"""
MOUNTED = "unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=4m none small && exec "$@"', "sh"


@pytest.fixture
def small(tmp_path):
    """A folder in which programs under MOUNTED find a disk of 4 MiB."""
    (tmp_path / "small").mkdir()
    if subprocess.run([*MOUNTED, "true"], cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("this user may not mount a tmpfs")
    return tmp_path


def test_a_timeline_on_a_full_disk_opens_and_is_whole_when_there_is_space_again(small):
    status, out, err = python(SMALL, tmp_path=small, launcher=MOUNTED, fresh=True)
    assert status == 0, err
    metadata, calls = slices(small / "few/few.json")  # into the space that no event has taken
    assert len(calls) == 101 and not metadata["lost_events"] and not (small / "few/few.json.parts").exists()
    kept = small / "many/many.json"
    metadata, calls = slices(kept)
    assert metadata["lost_because"] == {"0": ["pe-0.events: No space left on device"]}
    assert 0 < len(calls) < 1 << 14
    lost, cut = (line.removeprefix("pyshmem: trace: ") for line in err.splitlines())
    written = small / "small/many.json"
    assert lost == f"{written}: PE 0 has lost its last 3617 events: pe-0.events: No space left on device"
    assert cut == f"{written}: No space left on device: it has the first events; all are in {written}.parts"
    assert out.startswith("trace: PE 0: path: got ") and "none.json" in out and "No space left on device" in out
    kept.unlink()
    (line,) = merging.finish(kept, whole=False)
    assert line.endswith("pe-0.events: No space left on device")
    assert len(slices(kept)[1]) == 1 << 14
    assert f"PE 0 has lost its last 3617 events: {metadata['lost_because']['0'][0]}" in reading.read(kept)[2]


def test_events_of_kernels_are_kept_as_far_as_there_is_space_and_later_ones_stand_behind_whole_ones(tmp_path):
    path, limit = tmp_path / "pe-0.kernels", 15 * EVENT.size + 40
    events = [bytes([number]) * EVENT.size for number in range(100)]
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, usual[1]))
    try:
        assert appended(path, b"".join(events)) == (85, ["pe-0.kernels: File too large"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert appended(path, events[20]) == (0, [])
    assert path.read_bytes() == b"".join([*events[:15], events[20]])
    assert appended(tmp_path / "none" / "pe-0.kernels", events[0]) == (1, [f"pe-0.kernels: {os.strerror(2)}"])
