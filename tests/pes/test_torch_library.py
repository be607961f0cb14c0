"""The operators and the collectives on streams as operators of torch: what compilers and autograd may expect of them."""

import pytest
import torch
from operands import close_to
from torch_graphs import backends, compiled, near, numbers

import pyshmem as shmem
from pyshmem.ops import torch as tp
from pyshmem.ops.gemm.operators import REFERENCES
from pyshmem.ops.gemm.problem import SHARED
from pyshmem.ops.machine import eight_bits
from pyshmem.ops.torch.team_names import handle_of, team_of
from support import here, refuses

pytestmark = pytest.mark.usefixtures("fresh")

ROWS, MIDDLE, COLUMNS = 20, 24, 36  # of each PE's operands

operators = pytest.mark.parametrize("name", REFERENCES)


def operands(pe, dtype=torch.float32, rows=ROWS):
    return numbers(pe, (rows, MIDDLE), dtype), numbers(pe + 100, (MIDDLE, COLUMNS), dtype)


def wanted(name, n, me):
    return REFERENCES[name]([operands(pe) for pe in range(n)], me)


@operators
def test_operator_returns_what_its_reference_computes(name, me, npes):
    near(getattr(tp, name)(*operands(me)), wanted(name, npes, me))


@operators
def test_result_outlives_later_calls(name, me, npes):
    call, (a, b) = getattr(tp, name), operands(me)
    first = call(a, b)
    for _ in range(3):
        call(torch.zeros_like(a), b)
    near(first, wanted(name, npes, me))


@operators
@backends
def test_compiler_keeps_the_operator(name, backend, me, npes):
    seen = []

    def function(a, b):
        return getattr(tp, name)(a * 2, b) + 1

    result = compiled(function, backend, seen)(*operands(me))
    near(result, wanted(name, npes, me) * 2 + 1)
    assert [each for each in seen if name in each]


@operators
def test_operator_passes_the_checks_of_torch(name, me):
    """Schema, shape of the fake kernel, and autograd, with fixed and with symbolic shapes."""
    a, b = operands(me)
    torch.library.opcheck(getattr(torch.ops.pyshmem, name).default, (a, b), {"team": handle_of("world")})


def test_columns_are_gathered_too(me, npes):
    every = [(operands(0)[0], operands(pe)[1]) for pe in range(npes)]
    result = compiled(lambda a, b: tp.gemm_all_gather(a, b, split="columns"), "aot_eager", [])(*every[me])
    near(result, REFERENCES["gemm_all_gather"](every, me, "columns"))


@backends
@pytest.mark.parametrize("split", ["rows", "columns"])
@operators
def test_products_of_8_bits_are_compiled_with_their_scales(name, split, backend, me, npes):
    if split == "columns" and name != "gemm_all_gather":
        pytest.skip("it has no split")
    eight, seen = eight_bits()[1][0], []
    every = [
        (
            numbers(0 if split == "columns" else pe, (ROWS, MIDDLE)).to(eight),
            numbers(pe + 100, (MIDDLE, COLUMNS)).to(eight),
        )
        for pe in range(npes)
    ]
    scales = [torch.tensor(0.5 + pe, device=here()) for pe in range(npes)]
    more = (split,) if name == "gemm_all_gather" else ()

    def function(a, b, scale):
        return getattr(tp, "scaled_" + name)(a, b, scale * 2, scale, *more, out_dtype=torch.float32) + 1

    result = compiled(function, backend, seen)(*every[me], scales[me])
    decoded = [(a.double() * 2 * scale, b.double() * scale) for (a, b), scale in zip(every, scales, strict=True)]
    close_to(result, REFERENCES[name](decoded, me, *more) + 1, 5e-4)  # a GPU's matrix units keep 14 bits of a sum
    assert [each for each in seen if "scaled_" + name in each]


@operators
def test_operators_of_8_bits_have_the_fake_kernel_that_torch_wants(name, me):
    """torch's check of schemas multiplies the operands, which it cannot with 8-bit floats."""
    a, b = (each.to(eight_bits()[1][0]) for each in operands(me))
    one = torch.ones((), device=here())
    call = getattr(torch.ops.pyshmem, "scaled_" + name).default
    torch.library.opcheck(call, (a, b, one, one), {"team": handle_of("world")}, test_utils="test_faketensor")


def whole_gradients(name, npes, weights, rows):
    """The gradients of sum(weights * result) over all PEs, from one product of all operands in float64, by PE."""
    every = [tuple(each.double().requires_grad_() for each in operands(pe, rows=rows(pe))) for pe in range(npes)]
    results = [REFERENCES[name](every, pe) for pe in range(npes)]
    sum((weight.double() * result).sum() for weight, result in zip(weights, results, strict=True)).backward()
    return [(a.grad, b.grad) for a, b in every], [result.shape for result in results]


@pytest.mark.timeout(900)  # inductor compiles C++
@pytest.mark.parametrize(
    "which, backend",
    [("a", None), ("b", None), ("ab", None), ("a", "aot_eager"), ("ab", "aot_eager"), ("ab", "inductor")],
)
@operators
def test_gradients_are_those_of_the_whole_product(name, which, backend, me, npes):
    """For one PE more rows than for the others, as far as the operator has such operands."""
    if name in SHARED and (which, backend) != ("ab", "aot_eager"):
        pytest.skip("products that all PEs have differ in their formulas alone")
    uneven = name in ("all_gather_gemm", "gemm_all_gather")

    def rows(pe):
        return ROWS + (uneven and pe == 0)

    total = ROWS * npes + 1 if uneven else None
    parts = torch.arange(ROWS).tensor_split(npes) if name == "gemm_reduce_scatter" else [torch.arange(ROWS)] * npes
    heights = [(total if uneven else len(part), COLUMNS) for part in parts]
    weights = [numbers(pe + 50, height) for pe, height in enumerate(heights)]
    gradients, shapes = whole_gradients(name, npes, weights, rows)
    assert shapes[me] == heights[me]
    a, b = (
        each.requires_grad_(letter in which) for each, letter in zip(operands(me, rows=rows(me)), "ab", strict=True)
    )

    def loss(a, b):
        return (getattr(tp, name)(a, b, size=total) * weights[me]).sum()

    (compiled(loss, backend, []) if backend else loss)(a, b).backward()
    for operand, letter, gradient in zip((a, b), "ab", gradients[me], strict=True):
        if letter in which:
            near(operand.grad, gradient)
        else:
            assert operand.grad is None


@pytest.mark.parametrize("which", ["a", "b", "ab"])
@pytest.mark.parametrize("name", ["all_gather_gemm", "gemm_reduce_scatter"])
def test_gradients_of_sizes_that_the_team_does_not_divide(name, which, me, npes):
    """Rows, columns and the sum over K: the first PEs have one more, in the forward product and in its backward."""
    M, N, K = 5 * npes + 1, 3 * npes + 1, 4 * npes + 1
    a, b = numbers(1, (M, K)), numbers(2, (K, N))
    rows, columns, middle = (torch.arange(size, device=here()).tensor_split(npes)[me] for size in (M, N, K))
    if name == "all_gather_gemm":
        mine, sizes, result = (a[rows], b[:, columns]), {"size": M, "columns": N}, (slice(None), columns)
    else:
        mine, sizes, result = (a[:, middle], b[middle]), {"size": K}, (rows, slice(None))
    operands = [each.contiguous().requires_grad_(letter in which) for each, letter in zip(mine, "ab", strict=True)]
    weights = numbers(3, (M, N))
    (getattr(tp, name)(*operands, **sizes) * weights[result]).sum().backward()
    to_a, to_b = weights.double() @ b.double().T, a.double().T @ weights.double()
    wanted = (to_a[rows], to_b[:, columns]) if name == "all_gather_gemm" else (to_a[:, middle], to_b[middle])
    for operand, letter, gradient in zip(operands, "ab", wanted, strict=True):
        if letter in which:
            near(operand.grad, gradient)
        else:
            assert operand.grad is None


@pytest.mark.parametrize("backend", [None, "aot_eager"])
@pytest.mark.parametrize("split", ["rows", "columns"])
def test_a_replicated_gradient_is_that_of_one_loss(split, backend, me, npes):
    """Each PE has all of it, and nothing crosses."""
    a, b = (each.requires_grad_() for each in operands(0))

    def loss(a, b):
        return tp.gemm_all_gather(a, b, split, gradient="replicated").square().sum() / 2

    (compiled(loss, backend, []) if backend else loss)(a, b).backward()
    product = (a @ b).detach().double()
    near(a.grad, product @ b.detach().double().T)
    near(b.grad, a.detach().double().T @ product)


def test_operators_without_gradients_say_so(me):
    q = torch.ones(1, 2, 4, device=here(), requires_grad=True)
    with pytest.raises(RuntimeError, match="autograd"):
        tp.flash_decode(q, *[torch.ones(1, 3, 2, 4, device=here())] * 2).sum().backward()


def test_team_goes_by_its_name(me, npes, reserve):
    """Two teams, of the even and the odd PEs of a node, have one name each, and work at the same time."""
    shmem.barrier_all()
    node = shmem.TEAM_SHARED
    n = node.n_pes()
    team = next(filter(None, [node.split_strided(i, 2, (n - i + 1) // 2) for i in range(min(2, n))]))
    assert tp.name_team("mine", team) == "mine"
    a, b = operands(me)
    members = [team.translate_pe(pe) for pe in range(team.n_pes())]
    result = compiled(lambda a, b: tp.gemm_reduce_scatter(a, b, team="mine"), "aot_eager", [])(a, b)
    near(result, REFERENCES["gemm_reduce_scatter"]([operands(pe) for pe in members], team.my_pe()))


def test_names_of_teams_are_refused(me):
    with refuses("gather_rows", "team: got 'nobody'; expected 'world', or what name_team", shmem.ShmemError):
        tp.gather_rows(operands(me)[0], team="nobody")
    for name in ("", "world", 3):
        with refuses("name_team", "name: got ", shmem.ShmemError):
            tp.name_team(name, shmem.TEAM_WORLD)
    team = shmem.TEAM_WORLD.split_strided(0, 1, shmem.n_pes())
    other = shmem.TEAM_WORLD.split_strided(0, 1, shmem.n_pes())
    tp.name_team("again", team)
    with pytest.raises(shmem.ShmemError, match="a name that no other live team has"):
        tp.name_team("again", other)
    team.destroy()
    with pytest.raises(shmem.ShmemError, match="team: got 'again'"):
        tp.gather_rows(operands(me)[0], team="again")
    assert tp.name_team("again", other) == "again"


def test_code_compiled_for_other_numbers_of_pes_is_refused(me, npes):
    """Compilers keep code in files, and find it by the operators' arguments: the handle says of how many PEs it is."""
    assert team_of("x", handle_of("world")) is shmem.TEAM_WORLD
    with pytest.raises(shmem.ShmemError, match=r"x: PE \d: team: got 'world'; expected a handle such as 'world 0/2'"):
        team_of("x", "world")
    with pytest.raises(shmem.ShmemError, match=rf"got 'world {me}/{npes + 1}'; expected 'world {me}/{npes}'"):
        torch.ops.pyshmem.gather_rows(operands(me)[0], team=f"world {me}/{npes + 1}")


# -- collectives


def collective(name, npes):
    """Arguments after target and source, target's length for a source of 4 npes, and what it holds then on a PE, of all sources."""
    return {
        "reduce_on_stream": (("sum",), 4 * npes, lambda every, pe: sum(every)),
        "reduce_scatter_on_stream": (("sum",), 4, lambda every, pe: sum(every).chunk(npes)[pe]),
        "sum_inscan_on_stream": ((), 4 * npes, lambda every, pe: sum(every[: pe + 1])),
        "sum_exscan_on_stream": ((), 4 * npes, lambda every, pe: sum(every[:pe], torch.zeros_like(every[0]))),
        "fcollect_on_stream": ((), 4 * npes * npes, lambda every, pe: torch.cat(every)),
        "alltoall_on_stream": ((), 4 * npes, lambda every, pe: torch.cat([each.chunk(npes)[pe] for each in every])),
        "broadcast_on_stream": ((npes - 1,), 4 * npes, lambda every, pe: every[-1]),
    }[name]


collectives = pytest.mark.parametrize(
    "name",
    [f"{name}_on_stream" for name in ("reduce", "reduce_scatter", "fcollect", "alltoall", "broadcast")]
    + ["sum_inscan_on_stream", "sum_exscan_on_stream"],
)


@collectives
@backends
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "private"])
def test_compiler_keeps_the_collective_and_its_target_has_the_result(name, backend, symmetric, me, npes):
    """The source is made by the compiled function, and the target is read by it."""
    more, length, result = collective(name, npes)
    target = shmem.zeros(length, dtype=torch.float32) if symmetric else torch.zeros(length, device=here())
    every = [numbers(pe, (4 * npes,)) * 3 for pe in range(npes)]
    seen = []

    def function(target, source):
        getattr(tp, name)(target, source * 3, *more)
        return target + 1

    call = compiled(function, backend, seen)
    for _ in range(2):
        target.zero_()
        after = call(target, numbers(me, (4 * npes,)))
        torch.testing.assert_close(target, result(every, me))
        torch.testing.assert_close(after, result(every, me) + 1)
    assert [each for each in seen if name in each]


@collectives
def test_a_part_of_a_private_target_is_written(name, me, npes):
    """size counts elements; what follows them stays."""
    more, length, result = collective(name, npes)
    target = torch.full((length,), 7.0, device=here())
    every = [numbers(pe, (4 * npes,)) for pe in range(npes)]
    size = {"alltoall_on_stream": 3}.get(name, 2)
    getattr(tp, name)(target, every[me], *more, size=size)
    part = {
        "fcollect_on_stream": lambda: torch.cat([each[:2] for each in every]),
        "alltoall_on_stream": lambda: torch.cat([each[3 * me : 3 * me + 3] for each in every]),
        "reduce_scatter_on_stream": lambda: sum(every)[2 * me : 2 * me + 2],
    }.get(name, lambda: result(every, me)[:2])()
    torch.testing.assert_close(target[: len(part)], part)
    assert (target[len(part) :] == 7).all()


@backends
def test_rows_of_different_numbers_are_exchanged(backend, me, npes):
    """PE i sends i + j % 2 rows to PE j. Compiled code reads what has come, and how much."""
    counts = [[i + j % 2 for j in range(npes)] for i in range(npes)]
    source, seen = numbers(me, (2 * npes * npes, 3)), []

    def function(target, source, counts, received):
        tp.alltoallv_on_stream(target, source * 3, counts, received)
        return target + 1, received + 1

    target = torch.zeros(2 * npes * npes, 3, device=here())
    asked = torch.tensor(counts[me], device=here())
    after, numbers_after = compiled(function, backend, seen)(target, source, asked, torch.zeros_like(asked))
    came = [each[me] for each in counts]
    assert numbers_after.tolist() == [count + 1 for count in came]
    parts = [
        3 * numbers(pe, (2 * npes * npes, 3))[sum(counts[pe][:me]) : sum(counts[pe][: me + 1])] for pe in range(npes)
    ]
    torch.testing.assert_close(after[: sum(came)], torch.cat(parts) + 1)
    assert [each for each in seen if "alltoallv_on_stream" in each]


def test_a_reduction_in_place(me, npes):
    """Target and source are one private array."""
    array = numbers(me, (5,))
    tp.reduce_on_stream(array, array, "max")
    torch.testing.assert_close(array, torch.stack([numbers(pe, (5,)) for pe in range(npes)]).amax(0))


@backends
def test_compiler_keeps_the_barrier(backend, monkeypatch):
    """It has neither arguments nor results; twice it is there, and twice it comes."""
    seen, done = [], []
    barrier = shmem.barrier_on_stream
    monkeypatch.setattr(shmem, "barrier_on_stream", lambda team: done.append(barrier(team)))

    def function(x):
        tp.barrier_on_stream()
        y = x + 1
        tp.barrier_on_stream()
        return y

    assert compiled(function, backend, seen)(torch.ones(3, device=here())).sum() == 6
    assert len(done) == 2 and len(seen) >= 2


@pytest.mark.timeout(900)  # each PE starts a C++ compiler
def test_inductor_keeps_all_of_them(me, npes):
    """Its code works in place on a symmetric target, and stages what it has allocated itself."""
    seen, target = [], shmem.zeros(ROWS, COLUMNS, dtype=torch.float32)

    def function(a, b, target):
        tp.barrier_on_stream()
        tp.reduce_on_stream(target, tp.gemm_all_reduce(a, b) + 1, "sum")
        return [getattr(tp, name)(a * 2, b) + 1 for name in REFERENCES], target * 2

    results, doubled = compiled(function, "inductor", seen)(*operands(me), target)
    for name, result in zip(REFERENCES, results, strict=True):
        near(result, wanted(name, npes, me) * 2 + 1)
    near(target, npes * (wanted("gemm_all_reduce", npes, me) + 1))
    near(doubled, target.double() * 2)
    for name in (*REFERENCES, "barrier_on_stream", "reduce_on_stream"):
        assert [each for each in seen if name in each], name


def test_gather_rows_of_matrices_without_rows(me, npes):
    assert tp.gather_rows(torch.zeros(0, 3, device=here())).shape == (0, 3)
    every = [numbers(pe, (2 - (pe > 0), 3)) for pe in range(npes)]
    torch.testing.assert_close(tp.gather_rows(every[me], size=npes + 1), torch.cat(every), rtol=0, atol=0)


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_rows_that_are_gathered_or_summed_have_the_transposed_gradients(backend, me, npes):
    """Of the sum of all losses: rows of PE p count p + 1 times."""
    a, size = numbers(me, (2 - (me > 0), 3)).requires_grad_(), npes + 1

    def gathered(a):
        return tp.gather_rows(a, size).sum() * (me + 1)

    def shared(a):
        return tp.reduce_scatter_rows(a).sum() * (me + 1)

    def summed(a):
        return tp.all_reduce(a).sum() * (me + 1)

    losses = npes * (npes + 1) // 2
    (compiled(gathered, backend, []) if backend else gathered)(a).backward()
    assert (a.grad == losses).all()
    whole = numbers(me, (npes + 1, 3)).requires_grad_()
    (compiled(shared, backend, []) if backend else shared)(whole).backward()
    assert whole.grad[:, 0].tolist() == [1, *range(1, npes + 1)]
    whole.grad = None
    (compiled(summed, backend, []) if backend else summed)(whole).backward()
    assert (whole.grad == losses).all()
    every = [numbers(pe, (npes + 1, 3)) for pe in range(npes)]
    torch.testing.assert_close(tp.all_reduce(whole), sum(every))
    torch.testing.assert_close(tp.reduce_scatter_rows(whole), sum(every).tensor_split(npes)[me])
