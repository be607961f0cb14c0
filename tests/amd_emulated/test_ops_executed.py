"""The kernel of the fused operators executed for small shapes: the product by matrix instructions, its tiles on their PEs."""

import pyshmem as shmem
import pytest
import torch
from pyshmem.device.arch.fields import encoded
from pyshmem.ops import protocol
from pyshmem.ops.gemm.gemm_kernel import REDUCE, ROWS, SCATTER, Memory, multiply_and_send
from pyshmem.ops.gemm.tile import Form, Schedule, shape_of

HIGH, WIDE, STEP = 32, 32, 32  # of a tile and of a step of its K loop
# two tiles for each PE: the first is sent from the K loop of the second
ROWS_EACH, COLUMNS, DEPTH = (2 * HIGH, WIDE, 3 * STEP)
BF16, U64 = torch.bfloat16, torch.uint64


def multiply(kind, m, a, b, c, memory, above):
    """Launch one program. memory: the plan's arrays."""
    n_pes = shmem.n_pes()
    tiles = -(-m // HIGH) * (COLUMNS // WIDE)
    shape, schedule = (
        shape_of(m, COLUMNS, DEPTH, DEPTH, DEPTH, COLUMNS),
        Schedule(*map(encoded, (above, 0, tiles, tiles, 1, 1))),
    )
    fan = min(1, n_pes - 1) if kind is SCATTER else n_pes - 1
    form = Form(
        HIGH, WIDE, STEP, A_ALONG=True, B_ALONG=True, DESCRIBED=False, WHOLE=m % HIGH == 0, EDGES=m % HIGH > 0,
        PRECISION="ieee", SLAB=4, GROUP=2, FAN=fan, VECTOR=8, CLAMPED=True,
    )  # fmt: skip
    context = shmem.device_context()
    multiply_and_send[(1,)](context, memory, shape, schedule, a, b, c, None, None, kind.value, form, None, num_warps=1)


def plan_memory(rows, npes):
    """For ``rows`` of the whole result. Symmetric, but the sums and the parts."""
    words = shmem.zeros(protocol.words_of(npes) + 4 * rows, dtype=U64)
    each = rows // npes
    return Memory(
        words=words[: protocol.words_of(npes)],
        sums=torch.zeros(1),
        tallies=words[-2 * rows : -rows],
        parts=torch.zeros(rows, COLUMNS, dtype=BF16),
        slots=shmem.zeros((2 * max(npes - 1, 1), each, COLUMNS), dtype=BF16),
        flags=words[-rows:],
        tall=encoded(each),
    )


def operands(me, turn):
    """a, b with b lying along K; other values for each PE and turn."""
    generator = torch.Generator().manual_seed(100 * turn + me)
    a, b = (torch.randn(size, DEPTH, generator=generator).to(BF16) for size in (ROWS_EACH, COLUMNS))
    return a, b


def assert_close(got, wanted):
    torch.testing.assert_close(got.double(), wanted, rtol=2e-2, atol=2e-1)


@pytest.mark.parametrize("missing", [0, 5], ids=["whole tiles", "a tile without its last rows"])
def test_rows_of_the_product_come_to_all_pes_and_nothing_behind_them(missing, me, npes):
    """Twice: the second call waits until its result may be written."""
    each = ROWS_EACH - missing
    memory = plan_memory(ROWS_EACH * npes, npes)
    for turn in range(2):
        c = shmem.full((ROWS_EACH * npes, COLUMNS), float("nan"), dtype=BF16)
        b = operands(0, turn)[1]
        multiply(ROWS, each, operands(me, turn)[0][:each].clone(), b, c, memory, ROWS_EACH * me)
        for pe in range(npes):
            assert_close(c[ROWS_EACH * pe :][:each], operands(pe, turn)[0][:each].double() @ b.double().T)
            assert c[ROWS_EACH * pe + each : ROWS_EACH * (pe + 1)].isnan().all()


@pytest.mark.parametrize("kind", [SCATTER, REDUCE], ids=["scatter", "reduce"])
def test_products_of_all_pes_are_added_up(kind, me, npes):
    rows = ROWS_EACH * npes
    memory = plan_memory(rows, npes)
    for turn in range(2):
        parts = [[operands(10 * pe + i, turn)[0] for i in range(npes)] for pe in range(npes)]
        b = [operands(pe, turn)[1] for pe in range(npes)]
        wanted = sum(torch.cat(parts[pe]).double() @ b[pe].double().T for pe in range(npes))
        c = shmem.full((rows if kind is REDUCE else ROWS_EACH, COLUMNS), float("nan"), dtype=BF16)
        multiply(kind, rows, torch.cat(parts[me]), b[me], c, memory, 0)
        assert_close(c, wanted if kind is REDUCE else wanted[ROWS_EACH * me :][:ROWS_EACH])
