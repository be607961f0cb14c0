"""Products take operands as torch's linear layers do: the types of autocast, more than two dimensions, and a bias."""

import pytest
import torch
from pyshmem import ops
from pyshmem.ops import torch as tp
from support import here, refuses
from torch_graphs import backends, compiled, numbers

pytestmark = pytest.mark.usefixtures("fresh")


@backends
def test_autocast_chooses_the_type_as_for_torchs_products(backend, npes):
    """Of two float32 matrices, of a Linear's bfloat16 and a float32 one; gradients come back in the operands' types."""
    kind, seen = here().type, []
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 8).to(here())
    x, w, bias = (numbers(0, shape).requires_grad_() for shape in ((3, 8), (8, 6), (6,)))
    function = compiled(lambda x, w, bias: tp.gemm_all_reduce(layer(x) + x, w, bias=bias), backend, seen)
    with torch.autocast(kind, dtype=torch.bfloat16):
        found, plain = function(x, w, bias), ops.gemm_all_reduce(x, w)
        wanted = torch.nn.functional.linear(layer(x) + x, w.T)
        assert found.dtype == wanted.dtype == plain.dtype == torch.bfloat16
    torch.testing.assert_close(found, (wanted * npes + bias).to(found.dtype), rtol=0.05, atol=0.1)
    assert tp.gemm_all_reduce(x.double(), w.double()).dtype == torch.float64
    found.sum().backward()
    assert x.grad.dtype == w.grad.dtype == bias.grad.dtype == torch.float32 and (bias.grad == 3).all()


def test_float64_is_left_as_it_is_under_autocast():
    with torch.autocast(here().type, dtype=torch.bfloat16):
        assert (
            ops.gemm_all_reduce(*(torch.ones(4, 4, dtype=torch.float64, device=here()) for _ in "ab")).dtype
            == torch.float64
        )


@pytest.mark.parametrize("library", [ops, tp])
def test_the_first_of_several_dimensions_is_what_the_pes_share(library, me, npes):
    a, b = numbers(0, (npes * 2, 3, 2, 4)), numbers(1, (4, 5))
    own = a[2 * me : 2 * me + 2]
    for name, given, wanted in (
        ("all_gather_gemm", own, a @ b), ("gemm_all_gather", own, a @ b), ("gemm_all_reduce", a, npes * (a @ b)),
        ("gemm_reduce_scatter", a, npes * (own @ b)),
    ):  # fmt: skip
        torch.testing.assert_close(getattr(library, name)(given, b), wanted)
    with refuses("all_gather_gemm", "size: got 7, with a of 4 dimensions; expected None, or matrices"):
        library.all_gather_gemm(own, b, size=7)
    if npes > 1:
        with refuses("gemm_reduce_scatter", "a: got 1 in the first of 3 dimensions; expected a multiple of the"):
            library.gemm_reduce_scatter(torch.ones(1, 3, 4, device=here()), b)
