"""The package's names against the specification's: nothing is missing at this stage, nothing is there by chance."""

import inspect

import pytest

import pyshmem as shmem

# section of the specification: its routines without the prefix
ROUTINES = {
    "9.1": "init my_pe n_pes finalize global_exit query_initialized pe_accessible addr_accessible ptr team_ptr info_get_version"
    " info_get_name",
    "9.2": "init_thread query_thread",
    "9.3": "malloc free realloc align malloc_with_hints calloc",
    "9.6": "put p iput ibput get g iget ibget put_nbi get_nbi",
    "9.7": "atomic_fetch atomic_set atomic_compare_swap atomic_swap atomic_fetch_inc atomic_inc atomic_fetch_add atomic_add"
    " atomic_fetch_and atomic_and atomic_fetch_or atomic_or atomic_fetch_xor atomic_xor atomic_fetch_nbi"
    " atomic_compare_swap_nbi atomic_swap_nbi atomic_fetch_inc_nbi atomic_fetch_add_nbi atomic_fetch_and_nbi"
    " atomic_fetch_or_nbi atomic_fetch_xor_nbi",
    "9.8": "put_signal put_signal_nbi signal_fetch signal_set signal_add",
    "9.9": "barrier_all sync sync_all broadcast collect fcollect alltoall alltoalls sum_reduce prod_reduce min_reduce"
    " max_reduce and_reduce or_reduce xor_reduce sum_inscan sum_exscan",
    "9.10": "wait_until wait_until_all wait_until_any wait_until_some test test_all test_any test_some signal_wait_until"
    " wait_until_all_vector wait_until_any_vector wait_until_some_vector test_all_vector test_any_vector test_some_vector",
    "9.11": "fence quiet pe_quiet",
    "9.12": "set_lock test_lock clear_lock",
    "10": "pcontrol",
}
SPECIFIED = {name: section for section, names in ROUTINES.items() for name in names.split()}
CONSTRUCTORS = "empty zeros ones full array arange linspace rand randn randint as_symmetric"
LIKE = "empty_like zeros_like ones_like full_like"
ON_STREAM = "reduce reduce_scatter sum_inscan sum_exscan fcollect alltoall alltoallv broadcast barrier"
ON_STREAM += " put put_signal signal signal_wait_until quiet"
OURS = {
    *CONSTRUCTORS.split(), *LIKE.split(), "is_symmetric", "reduce", "device_context", "grid", "jit", "launch",
    "partitioned", "from_dtensor", "trace",
}  # fmt: skip
OURS |= {"alltoallv", "pool", "register", "unregister", "heap_bases", "peer_addresses", "from_address", "c_address"}
OURS |= {f"{name}_on_stream" for name in ON_STREAM.split()}
ERRORS = {
    "ShmemError": Exception,
    "NotInitializedError": RuntimeError,
    "NotSymmetricError": ValueError,
    "OutOfRangeError": IndexError,
    "HeapExhaustedError": MemoryError,
    "DtypeError": TypeError,
    "ArgumentError": ValueError,
    "UnreachableError": RuntimeError,
    "LaunchError": RuntimeError,
    "WaitTimeoutError": TimeoutError,
    "BrokenTeamError": RuntimeError,
}
OBJECTS = {
    "TEAM_WORLD": "Team",
    "TEAM_SHARED": "Team",
    "TEAM_INVALID": "Team",
    "CTX_DEFAULT": "Ctx",
    "CTX_INVALID": "Ctx",
    **{f"CMP_{sign}": "CMP" for sign in ("EQ", "NE", "GT", "GE", "LT", "LE")},
    "SIGNAL_SET": "SIGNAL",
    "SIGNAL_ADD": "SIGNAL",
}
CLASSES = {"Team", "TeamConfig", "Ctx", "CTX", "CMP", "SIGNAL", "SESSION", "THREAD", "Lock", "PartitionedTensor"}


def test_all_lists_exactly_the_names_of_the_contract():
    wanted = {*SPECIFIED, *OURS, *ERRORS, *OBJECTS, *CLASSES, "__version__"}
    assert sorted(shmem.__all__) == sorted(wanted)


def test_star_import_gives_what_all_lists():
    namespace = {}
    exec("from pyshmem import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(shmem.__all__)


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_shmem_errors_and_the_builtin_of_their_kind(name):
    error = getattr(shmem, name)
    assert issubclass(error, shmem.ShmemError) and issubclass(error, ERRORS[name])


@pytest.mark.parametrize("name", OBJECTS)
def test_predefined_handles_are_of_their_class(name):
    assert type(getattr(shmem, name)) is getattr(shmem, OBJECTS[name])


@pytest.mark.parametrize("name", [name for name, section in SPECIFIED.items() if section in ("9.6", "9.7", "9.8")])
def test_calls_to_a_pe_end_with_ctx_and_name_pe(name):
    """shmem4py's order: target, source or value, pe, then what has a default; ctx last."""
    parameters = list(inspect.signature(getattr(shmem, name)).parameters.values())
    if name == "signal_fetch":  # local
        assert [each.name for each in parameters] == ["signal"]
        return
    assert parameters[-1].name == "ctx" and parameters[-1].default is None
    assert "pe" in [each.name for each in parameters]
    assert parameters[0].name == (
        "fetch"
        if name.endswith("_nbi") and name.startswith("atomic")
        else "signal"
        if name.startswith("signal")
        else "source"
        if name in ("g", "atomic_fetch")
        else "target"
    )


def test_the_constants_are_the_specifications():
    assert list(shmem.CMP.__members__) == ["EQ", "NE", "GT", "GE", "LT", "LE"]
    assert list(shmem.SIGNAL.__members__) == ["SET", "ADD"]
    assert list(shmem.THREAD.__members__) == ["SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"]
