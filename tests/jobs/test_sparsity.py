"""The sparsity roofline of benchmarks.sparsity: its bytes are those of real tensors, and its masks follow their patterns."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch

pytest.importorskip("rich")
pytest.importorskip("sklearn")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.sparsity_model import ANY, BLOCKS, ITEM, NEIGHBOURS, PATTERNS, Roofs, dense_work, mask, sparse_work

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:Sparse ")  # torch calls its CSR tensors beta
OUTPUTS, INPUTS, BATCH = 64, 128, 8


def weights():
    return torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(
        torch.float16
    )


def nbytes(*tensors):
    return sum(each.nbytes for each in tensors)


@pytest.mark.parametrize(("pattern", "sparsity"), [(ANY, 0.5), (ANY, 0.875), (BLOCKS, 0.5), (BLOCKS, 0.875)])
def test_bytes_are_those_of_torch_tensors(pattern, sparsity):
    kept = weights() * mask(weights().float(), pattern, sparsity)
    found = kept.to_sparse_bsr((16, 16)) if pattern.side else kept.to_sparse_csr()
    indices = found.crow_indices().int(), found.col_indices().int()
    columns = torch.zeros(INPUTS + OUTPUTS, BATCH, dtype=torch.float16)
    assert sparse_work(pattern, sparsity, OUTPUTS, INPUTS, BATCH).nbytes == nbytes(found.values(), *indices, columns)
    assert dense_work(OUTPUTS, INPUTS, BATCH).nbytes == nbytes(weights(), columns)


def test_two_of_four_weights_have_half_the_bytes_and_two_bits_for_each_place():
    found = sparse_work(NEIGHBOURS[0.5], 0.5, OUTPUTS, INPUTS, 0)
    assert found.nbytes == OUTPUTS * INPUTS * (2 / 2 + 2 / 8 / 2)


@pytest.mark.parametrize(("sparsity", "pattern"), NEIGHBOURS.items(), ids=str)
def test_so_many_of_so_many_neighbours_are_kept_and_they_are_the_greatest(sparsity, pattern):
    kept = mask(weights(), pattern, sparsity)
    groups = kept.reshape(OUTPUTS, -1, pattern.of)
    assert (groups.sum(2) == pattern.kept).all()
    magnitude = weights().abs().reshape(groups.shape)
    assert (magnitude.where(groups, torch.inf).amin(2) >= magnitude.where(~groups, 0).amax(2)).all()


@pytest.mark.parametrize("sparsity", [0.5, 0.875])
def test_blocks_are_kept_or_left_out_as_wholes(sparsity):
    kept = mask(weights().float(), BLOCKS, sparsity).reshape(OUTPUTS // 16, 16, INPUTS // 16, 16)
    assert (kept == kept[:, :1, :, :1]).all()
    assert kept.float().mean() == 1 - sparsity
    assert mask(weights().float(), ANY, sparsity).float().mean() == 1 - sparsity


def test_a_product_takes_as_long_as_the_slower_of_its_bytes_and_its_operations():
    work = dense_work(OUTPUTS, INPUTS, BATCH)
    roofs = Roofs(memory=work.nbytes, cache=1, dense=work.operations, single=1)
    assert work.seconds(roofs._replace(memory=work.nbytes / 3)) == pytest.approx(3)
    assert work.seconds(roofs._replace(dense=work.operations / 2)) == pytest.approx(2)
    assert work.seconds(roofs._replace(launch=5)) == pytest.approx(6), "a launch comes before both"
    single = sparse_work(ANY, 0.5, OUTPUTS, INPUTS, BATCH)
    fast = Roofs(1e30, 1e30, 1e30, single.operations)
    assert single.seconds(fast) == 1, "no dense products of single weights"


@pytest.mark.parametrize(("pattern", "side"), [(ANY, 1), (BLOCKS, 16)], ids=str)
def test_a_block_loads_as_many_inputs_as_it_has_columns(pattern, side):
    """Of 8192 weights, each block of 16 x 16 loads 16 inputs of each column, for 256 weights."""
    work = sparse_work(pattern, 0, OUTPUTS, INPUTS, BATCH)
    once = ITEM * BATCH * INPUTS
    assert work.cached - (work.nbytes - once) == once * OUTPUTS / side
    roofs = Roofs(memory=1e30, cache=work.cached, dense=1e30, single=1e30)
    assert work.bound(roofs) == 1 and work.seconds(roofs) < 1e-20
    assert work.bound(roofs._replace(launch=2, wait=5)) == 1 + 2 + 3 * 5, "its row, its columns, its inputs"


def test_the_report_has_every_pattern_and_calls_its_times_no_figures(tmp_path):
    files = "--json", str(tmp_path / "found.json"), "--picture", str(tmp_path / "a.png")
    command = [sys.executable, "-m", "benchmarks.sparsity", "--epochs", "1", "--batch", "8", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "times are no figures" in done.stdout.replace("\n", " ")
    found = json.loads((tmp_path / "found.json").read_text())
    assert {each["family"] for each in found["points"]} == {ANY.name, BLOCKS.name, "n:m"}
    assert all(0 <= each["right"] <= 1 and each["speedup"] > 0 for each in found["points"])
    assert [*dict.fromkeys(each["pattern"] for each in found["kernels"])] == [each.name for each in PATTERNS]
    assert all(0 < each["roofline"] <= each["bound"] for each in found["kernels"])
    assert (tmp_path / "a.png").stat().st_size > 10_000
