"""pyshmem.shmem as a module: its names are the specification's, and what it takes for an address, a status, a struct."""

import inspect
import pathlib
import re
import warnings

import numpy as np
import pytest
import torch

import pyshmem as shmem
import pyshmem.shmem as c
from c_interface import NUMPY, read, unfolded
from pyshmem.c_names import deprecation, rows
from pyshmem.c_names.table import ROWS
from support import live, near_neighbours, neighbours, work

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ROUTINES = unfolded("current", "deprecated")
PROTOTYPES = {
    name: (line.prototype, key) for line in read("current", "deprecated") for name, key in line.names
}  # fmt: skip
C_TYPES = {
    "longdouble": "long double", "schar": "signed char", "longlong": "long long", "uchar": "unsigned char",
    "ushort": "unsigned short", "uint": "unsigned int", "ulong": "unsigned long", "ulonglong": "unsigned long long",
    "complexd": "double _Complex", "complexf": "float _Complex", "size": "size_t", "ptrdiff": "ptrdiff_t",
    **{f"{u}int{n}": f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)},
}  # fmt: skip


def test_the_table_unfolds_to_the_names_of_the_specification_and_no_other():
    assert set(rows.names(ROWS)) == ROUTINES
    assert set(rows.generics(ROWS)) == unfolded("generic")
    assert len(ROUTINES) == 1788


def test_dir_lists_every_name_once_and_nothing_else():
    wanted = ROUTINES | {"p" + name for name in ROUTINES} | unfolded("generic", "constant", "type")
    assert set(dir(c)) == set(c.__all__) == wanted
    assert len(c.__all__) == len(wanted)


def test_star_import_gives_all_of_them():
    namespace = {}
    exec("from pyshmem.shmem import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(c.__all__)


@pytest.mark.parametrize("name", sorted(unfolded("removed")))
def test_names_that_the_specification_has_removed_are_absent(name):
    assert not hasattr(c, name) and name not in c.__all__


def test_the_text_of_a_name_begins_with_its_prototype():
    for name in sorted(ROUTINES - unfolded("generic")):
        prototype, key = PROTOTYPES[name]
        kind = "void" if key.isdigit() else C_TYPES.get(key, key)
        wanted = prototype.replace("<TYPENAME>", key).replace("<SIZE>", key).replace("TYPE ", f"{kind} ")
        assert inspect.getdoc(getattr(c, name)).splitlines()[0] == wanted


def test_a_signature_has_the_parameters_of_c():
    for name in sorted(ROUTINES - unfolded("generic")):
        inside = PROTOTYPES[name][0].split("(")[1].rstrip(")")
        wanted = [] if inside == "void" else [each.split(" ")[-1].lstrip("*") for each in inside.split(", ")]
        got = [each for each in inspect.signature(getattr(c, name)).parameters if each not in ("dtype", "rest")]
        assert got == [each for each in wanted if each in got], name  # what C returns through a pointer is left out
        assert set(wanted) - set(got) <= {"initialized", "major", "minor", "name", "provided", "config", "ctx", "team",
                                          "new_team", "xaxis_team", "yaxis_team", "..."}, name  # fmt: skip


def test_a_profiling_name_is_the_same_function():
    assert c.pshmem_long_put is c.shmem_long_put
    assert c.p_my_pe is c._my_pe


@pytest.mark.parametrize("name", ["shmem_fence", "shmem_ctx_fence"])
def test_a_profiling_name_is_the_librarys_when_a_tool_has_replaced_the_other(name, monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(name)
        return getattr(c, "p" + name)(*arguments)

    monkeypatch.delitem(vars(c), "p" + name, raising=False)  # as where nobody has asked for it yet
    monkeypatch.setattr(c, name, counted)
    getattr(c, name)(*([c.SHMEM_CTX_DEFAULT] if "ctx" in name else []))
    assert calls == [name]


def test_a_function_knows_its_name_and_module():
    for name in ("shmem_ctx_long_put", "shmem_malloc", "shmem_put", "shmem_int_inc", "shmem_team_sync"):
        function = getattr(c, name)
        assert (function.__name__, function.__module__) == (name, "pyshmem.shmem")
        assert "Spec: " in function.__doc__


# ---- constants and handles ----


def test_comparisons_and_signals_and_thread_levels_are_the_python_ones():
    assert [c.SHMEM_CMP_EQ, c._SHMEM_CMP_LE] == [shmem.CMP.EQ, shmem.CMP.LE]
    assert [c.SHMEM_SIGNAL_SET, c.SHMEM_SIGNAL_ADD] == [shmem.SIGNAL.SET, shmem.SIGNAL.ADD]
    levels = [getattr(c, "SHMEM_THREAD_" + name) for name in ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")]
    assert levels == sorted(set(levels))


def test_option_flags_can_be_told_apart():
    options = [c.SHMEM_CTX_SERIALIZED, c.SHMEM_CTX_PRIVATE, c.SHMEM_CTX_NOSTORE]
    assert len({int(a) | int(b) for a in options for b in options}) == 6
    assert c.SHMEM_MALLOC_ATOMICS_REMOTE & c.SHMEM_MALLOC_SIGNAL_REMOTE == 0
    version = c.shmem_info_get_version()
    assert version == (c.SHMEM_MAJOR_VERSION, c.SHMEM_MINOR_VERSION) and version == (1, 6)
    assert c.shmem_info_get_name() == c.SHMEM_VENDOR_STRING and len(c.SHMEM_VENDOR_STRING) < c.SHMEM_MAX_NAME_LEN


def test_handles_are_the_python_ones():
    assert c.SHMEM_TEAM_WORLD is shmem.TEAM_WORLD and c.SHMEM_CTX_DEFAULT is shmem.CTX_DEFAULT
    assert not c.SHMEM_TEAM_INVALID and not c.SHMEM_CTX_INVALID
    assert c.shmem_team_config_t(num_contexts=4).num_contexts == 4
    assert c.shmem_team_config_t() == c.shmem_team_config_t(0)
    assert c.shmem_ctx_session_config_t().total_ops == 2**64 - 1


# ---- life and queries ----


def test_queries_answer_as_in_c():
    assert (c.shmem_my_pe(), c.shmem_n_pes()) == (shmem.my_pe(), shmem.n_pes())
    assert c.shmem_query_initialized() == 1 and type(c.shmem_query_initialized()) is int
    assert c.shmem_query_thread() == shmem.query_thread()
    assert c.shmem_pe_accessible(shmem.n_pes() - 1) == 1 and c.shmem_pe_accessible(shmem.n_pes()) == 0
    assert c._my_pe() == shmem.my_pe() and c._num_pes() == shmem.n_pes()


def test_init_and_finalize_count():
    assert c.shmem_init_thread(c.SHMEM_THREAD_SINGLE) == (0, shmem.query_thread())
    c.shmem_init()
    c.shmem_finalize()
    c.shmem_finalize()
    c.start_pes(0)  # does nothing: it is initialised
    assert c.shmem_query_initialized() == 1


def test_addr_accessible_knows_symmetric_from_private():
    array = shmem.zeros(4)
    assert c.shmem_addr_accessible(array, 0) == c.shmem_addr_accessible(array.data_ptr() + 8, 0) == 1
    assert c.shmem_addr_accessible(torch.zeros(4), 0) == c.shmem_addr_accessible(None, 0) == 0


def test_ptr_gives_a_tensor_for_a_tensor_and_an_int_for_an_int():
    left, me, right = near_neighbours()
    array = shmem.full(4, me, dtype=torch.int64)
    there = c.shmem_ptr(array, right)
    assert there.tolist() == [right] * 4
    assert c.shmem_ptr(array.data_ptr() + 16, right) == there.data_ptr() + 16
    assert c.shmem_team_ptr(c.SHMEM_TEAM_WORLD, array, right).tolist() == [right] * 4
    assert c.shmem_team_ptr(c.SHMEM_TEAM_WORLD, array.data_ptr(), right) == there.data_ptr()


# ---- memory ----


def test_malloc_gives_a_tensor_of_the_bytes_asked_for():
    array = c.shmem_malloc(64)
    assert (array.dtype, array.numel()) == (torch.uint8, 64) and shmem.is_symmetric(array)
    typed = c.shmem_malloc(64, torch.float64)
    assert (typed.dtype, typed.numel()) == (torch.float64, 8)
    assert c.shmem_calloc(8, 8, dtype=torch.int64).tolist() == [0] * 8
    assert c.shmem_align(1024, 16).data_ptr() % 1024 == 0
    assert c.shmem_malloc_with_hints(16, c.SHMEM_MALLOC_SIGNAL_REMOTE).numel() == 16
    assert shmem.is_symmetric(c.shmalloc(8)) and shmem.is_symmetric(c.shmemalign(64, 8))


def test_what_cannot_be_allocated_is_null():
    before = live()
    assert c.shmem_malloc(0) is None and c.shmem_calloc(0, 8) is None
    assert c.shmem_malloc(1 << 50) is None and c.shmem_align(64, 1 << 50) is None
    array = c.shmem_malloc(64)
    assert c.shmem_realloc(array, 1 << 50) is None
    assert shmem.is_symmetric(array), "a realloc that fails leaves the block"
    c.shmem_free(array)
    assert live() == before


def test_realloc_and_free_take_an_address():
    array = c.shmem_malloc(64, torch.int64)
    array[:] = torch.arange(8)
    longer = c.shmem_realloc(array.data_ptr(), 128)
    assert longer.view(torch.int64)[:8].tolist() == list(range(8)) and longer.nbytes == 128
    grown = c.shrealloc(longer, 256)
    before = live()
    c.shfree(grown.data_ptr())
    assert len(live()) == len(before) - 1
    c.shmem_free(None)
    assert c.shmem_realloc(None, 16).numel() == 16


# ---- what a call by its C name leaves to the program ----


def test_deprecated_names_warn_at_the_callers_line_once():
    array = shmem.zeros(1, dtype=torch.int32)
    deprecation._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            c.shmem_int_inc(array, 0)
    (warning,) = caught
    assert warning.category is DeprecationWarning and warning.filename == __file__
    assert str(warning.message) == "shmem_int_inc is deprecated since OpenSHMEM 1.4; use shmem_int_atomic_inc"


@pytest.mark.parametrize(
    "psync_form", [lambda psync: psync, lambda psync: psync[2:], lambda psync: psync.data_ptr() + 8]
)
def test_a_psync_serves_one_active_set_after_another(psync_form):
    """Its words are as before after each call, so the next may be of other PEs, once all agree that they are there."""
    n, me = shmem.n_pes(), shmem.my_pe()
    psync = psync_form(shmem.full((c.SHMEM_SYNC_SIZE + 2,), c.SHMEM_SYNC_VALUE, dtype=torch.int64))
    source, dest = shmem.full(2, me + 1, dtype=torch.int64), shmem.zeros(2, dtype=torch.int64)
    for turn, (start, log_stride, size) in enumerate([(0, 0, n), (0, 1, (n + 1) // 2), (n - 1, 0, 1), (0, 0, n)]):
        members = range(start, start + (size << log_stride), 1 << log_stride)
        if me in members:
            c.shmem_long_sum_to_all(dest, source, 2, start, log_stride, size, None, psync)
            assert dest.tolist() == [sum(pe + 1 for pe in members)] * 2, turn
        c.shmem_barrier_all()


def test_back_to_back_barriers_of_an_active_set_let_nobody_through_early(monkeypatch):
    """PE 0, where all meet, is slow after each word it writes: who has been released comes again meanwhile."""
    n, me = shmem.n_pes(), shmem.my_pe()
    set_word = shmem.atomic_set
    if me == 0:
        monkeypatch.setattr(shmem, "atomic_set", lambda *arguments: (set_word(*arguments), work(2000)))
    psync = shmem.full((c.SHMEM_BARRIER_SYNC_SIZE,), c.SHMEM_SYNC_VALUE, dtype=torch.int64)
    turns = shmem.zeros(n, dtype=torch.int64)
    for turn in range(1, 200):
        for pe in range(n):
            c.shmem_long_p(turns[me:], turn, pe)
        c.shmem_barrier(0, 0, n, psync)
        assert int(turns.min()) >= turn
        c.shmem_sync(0, 0, n, psync)


def test_teams_answer_with_a_status_first():
    n, me = shmem.n_pes(), shmem.my_pe()
    ret, evens = c.shmem_team_split_strided(c.SHMEM_TEAM_WORLD, 0, 2, (n + 1) // 2, None, 0)
    assert ret == 0 and (evens != c.SHMEM_TEAM_INVALID) == (me % 2 == 0)
    assert c.shmem_team_my_pe(evens) == (me // 2 if me % 2 == 0 else -1)
    assert c.shmem_team_n_pes(evens) == ((n + 1) // 2 if me % 2 == 0 else -1)
    if me % 2 == 0:
        assert c.shmem_team_translate_pe(evens, me // 2, c.SHMEM_TEAM_WORLD) == me
        assert c.shmem_team_sync(evens) == c.shmem_sync(evens) == 0
    c.shmem_team_destroy(evens)
    assert c.shmem_team_split_strided(c.SHMEM_TEAM_INVALID, 0, 1, 1, None, 0) == (1, c.SHMEM_TEAM_INVALID)
    ret, team = c.shmem_team_split_strided(c.SHMEM_TEAM_WORLD, 0, 1, n + 1, None, 0)
    assert ret != 0 and team == c.SHMEM_TEAM_INVALID


def test_a_split_in_two_dimensions_gives_both_teams():
    ret, x, y = c.shmem_team_split_2d(c.SHMEM_TEAM_WORLD, 2, None, 0, None, 0)
    me = shmem.my_pe()
    assert ret == 0
    assert (c.shmem_team_my_pe(x), c.shmem_team_my_pe(y)) == (me % 2, me // 2)
    assert c.shmem_team_split_2d(c.SHMEM_TEAM_INVALID, 2, None, 0, None, 0)[0] != 0
    c.shmem_team_destroy(x)
    c.shmem_team_destroy(y)


def test_a_team_config_counts_where_the_mask_says_so():
    n = shmem.n_pes()
    config = c.shmem_team_config_t(num_contexts=3)
    for mask, wanted in ((c.SHMEM_TEAM_NUM_CONTEXTS, 3), (0, 0)):
        ret, team = c.shmem_team_split_strided(c.SHMEM_TEAM_WORLD, 0, 1, n, config, mask)
        assert ret == 0
        assert c.shmem_team_get_config(team, c.SHMEM_TEAM_NUM_CONTEXTS) == (0, c.shmem_team_config_t(wanted))
        c.shmem_team_destroy(team)
    assert c.shmem_team_get_config(c.SHMEM_TEAM_INVALID, 0)[0] != 0


def test_contexts_answer_with_a_status_first():
    left, me, right = neighbours()
    word = shmem.zeros(1, dtype=torch.int64)
    for ret, ctx in (
        c.shmem_ctx_create(c.SHMEM_CTX_SERIALIZED | c.SHMEM_CTX_NOSTORE),
        c.shmem_team_create_ctx(c.SHMEM_TEAM_WORLD, 0),
    ):
        assert ret == 0 and c.shmem_ctx_get_team(ctx) == (0, c.SHMEM_TEAM_WORLD)
        c.shmem_ctx_session_start(ctx, c.SHMEM_CTX_SESSION_BATCH, c.shmem_ctx_session_config_t(total_ops=2), 1)
        c.shmem_ctx_long_atomic_add(ctx, word, 1, right)
        c.shmem_atomic_add(ctx, word, 1, right)
        c.shmem_ctx_session_stop(ctx)
        c.shmem_ctx_fence(ctx)
        c.shmem_ctx_pe_quiet(ctx, np.array([right], np.int32), 1)
        c.shmem_ctx_quiet(ctx)
        c.shmem_ctx_destroy(ctx)
    shmem.barrier_all()
    assert word.item() == 4
    c.shmem_ctx_quiet(c.SHMEM_CTX_INVALID)
    c.shmem_ctx_fence(c.SHMEM_CTX_INVALID)
    assert c.shmem_ctx_get_team(c.SHMEM_CTX_INVALID) == (1, c.SHMEM_TEAM_INVALID)
    assert c.shmem_team_create_ctx(c.SHMEM_TEAM_INVALID, 0) == (1, c.SHMEM_CTX_INVALID)
    c.shmem_ctx_destroy(c.SHMEM_CTX_INVALID)


def test_pes_count_in_the_contexts_team_under_generic_names_too():
    n, me = shmem.n_pes(), shmem.my_pe()
    ret, backwards = c.shmem_team_split_strided(c.SHMEM_TEAM_WORLD, n - 1, -1, n, None, 0)
    _, ctx = c.shmem_team_create_ctx(backwards, 0)
    typed, untyped = shmem.full(1, -1, dtype=torch.int64), shmem.full(1, -1, dtype=torch.int64)
    signal = shmem.zeros(1, dtype=torch.uint64)
    c.shmem_ctx_long_p(ctx, typed, me, 0)  # check: ignore, any of the numbers may stay
    c.shmem_atomic_set(ctx, untyped, me, me)  # number me of the team is PE n - 1 - me
    c.shmem_signal_set(ctx, signal, me + 1, me)
    c.shmem_ctx_quiet(ctx)  # which a barrier is not for a context
    shmem.barrier_all()
    assert (typed.item() == -1) == (me != n - 1)
    assert untyped.item() == n - 1 - me and c.shmem_signal_fetch(signal) == n - me
    c.shmem_ctx_destroy(ctx)
    c.shmem_team_destroy(backwards)


@pytest.mark.parametrize("reduce", ["long_sum_to_all", "longdouble_sum_to_all", "longdouble_sum_reduce"])
def test_a_reduction_in_place_reads_all_sources_before_it_writes(reduce):
    n, me = shmem.n_pes(), shmem.my_pe()
    psync = shmem.full((c.SHMEM_REDUCE_SYNC_SIZE,), c.SHMEM_SYNC_VALUE, dtype=torch.int64)
    kind = NUMPY[reduce.split("_")[0]]
    values = shmem.zeros(2000 * np.dtype(kind).itemsize, dtype=torch.uint8).numpy().view(kind)
    for turn in range(30):
        values[:] = me + turn
        arguments = (values, values, len(values))
        if reduce.endswith("to_all"):
            getattr(c, "shmem_" + reduce)(*arguments, 0, 0, n, None, psync)
        else:
            getattr(c, "shmem_" + reduce)(c.SHMEM_TEAM_WORLD, *arguments)
        assert (values == sum(pe + turn for pe in range(n))).all(), turn


def test_order_and_barriers_return_nothing():
    assert [c.shmem_fence(), c.shmem_quiet(), c.shmem_barrier_all(), c.shmem_sync_all()] == [None] * 4
    c.shmem_pe_quiet([shmem.my_pe()], 1)
    c.shmem_pe_quiet(torch.tensor([0], dtype=torch.int32), 1)
    assert c.shmem_pcontrol(1, "more") is None


def test_a_lock_is_taken_by_one_pe_at_a_time():
    locks = shmem.zeros(2, dtype=torch.int64)
    counter = shmem.zeros(1, dtype=torch.int64)
    for turn in range(20):
        if turn % 2:
            c.shmem_set_lock(locks[1:])
        else:
            while c.shmem_test_lock(locks.data_ptr() + 8):
                pass
        c.shmem_long_p(counter, c.shmem_long_g(counter, 0) + 1, 0)
        c.shmem_quiet()
        c.shmem_clear_lock(locks[1])
    shmem.barrier_all()
    assert c.shmem_long_g(counter, 0) == 20 * shmem.n_pes()


def test_every_name_is_called_here_or_by_its_family():
    from test_c_names_calls import FAMILIES

    files = (pathlib.Path(__file__), pathlib.Path(__file__).with_name("test_c_names_addresses.py"))
    called = {name for file in files for name in re.findall(r"\bc\.(\w+)\(", file.read_text())}
    called.add("shmem_global_exit")  # in tests/jobs
    called |= {name for line in FAMILIES for name, _ in line.names}
    assert ROUTINES - called == set()


def test_errors_of_routines_with_a_body_of_their_own_have_the_c_name_too(me):
    """The others', whose bodies are made of a table, are in test_c_names_calls."""
    private, symmetric = torch.zeros(8, dtype=torch.uint8), c.shmem_malloc(8)
    for call, words in (
        (lambda: c.shmem_align(48, 64), "shmem_align: PE {me}: alignment: got 48; expected a power of two, 8 or more"),
        (lambda: c.shmem_ptr(private, 0), "shmem_ptr: PE {me}: target: got "),
        (lambda: c.shmem_ptr(symmetric, 1.0), "shmem_ptr: PE {me}: pe: got 1.0; expected an int"),
        (lambda: c.shmem_free(private), "shmem_free: PE {me}: "),
    ):
        with pytest.raises(shmem.ShmemError) as caught:
            call()
        assert str(caught.value).startswith(words.format(me=me))
