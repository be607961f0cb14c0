"""The C interface of OpenSHMEM 1.6, one row per family of names. TYPE and <TYPENAME> stand for each of the row's types."""

from __future__ import annotations

from collections.abc import Iterator

from pyshmem.c_names import spellings
from pyshmem.c_names.rows import Row

_COPY = "(TYPE *dest, const TYPE *source, size_t nelems, int pe)"
_STRIDES = "(TYPE *dest, const TYPE *source, ptrdiff_t dst, ptrdiff_t sst, "
_PUT_SIGNAL = "(TYPE *dest, const TYPE *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)"
_SIGNAL = "(uint64_t *sig_addr, uint64_t signal, int pe)"
_MEM = (*spellings.SIZES, "mem")

# Python's name: (return type, parameters, body, names that count bits or bytes)
_RMA: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "put": ("void", _COPY, "one_sided.copy", _MEM),
    "p": ("void", "(TYPE *dest, TYPE value, int pe)", "one_sided.update", ()),
    "iput": ("void", _STRIDES + "size_t nelems, int pe)", "one_sided.strided", spellings.SIZES),
    "ibput": ("void", _STRIDES + "size_t bsize, size_t nblocks, int pe)", "one_sided.blocked", spellings.SIZES),
    "get": ("void", _COPY, "one_sided.copy", _MEM),
    "g": ("TYPE", "(const TYPE *source, int pe)", "one_sided.fetch", ()),
    "iget": ("void", _STRIDES + "size_t nelems, int pe)", "one_sided.strided", spellings.SIZES),
    "ibget": ("void", _STRIDES + "size_t bsize, size_t nblocks, int pe)", "one_sided.blocked", spellings.SIZES),
    "put_nbi": ("void", _COPY, "one_sided.copy", _MEM),
    "get_nbi": ("void", _COPY, "one_sided.copy", _MEM),
    "put_signal": ("void", _PUT_SIGNAL, "one_sided.copy_signal", _MEM),
    "put_signal_nbi": ("void", _PUT_SIGNAL, "one_sided.copy_signal", _MEM),
}

# Python's name: (return type, parameters, body, types, the deprecated name, its types)
_VALUE, _NONE = "(TYPE *dest, TYPE value, int pe)", "(TYPE *dest, int pe)"
_COND = "(TYPE *dest, TYPE cond, TYPE value, int pe)"
_SOURCE = "(const TYPE *source, int pe)"
_FIVE, _THREE = ("float", "double", "int", "long", "longlong"), ("int", "long", "longlong")
_AMO: dict[str, tuple[str, str, str, tuple[str, ...], str, tuple[str, ...]]] = {
    "atomic_fetch": ("TYPE", _SOURCE, "one_sided.fetch", spellings.EXTENDED_AMO, "fetch", _FIVE),
    "atomic_set": ("void", _VALUE, "one_sided.update", spellings.EXTENDED_AMO, "set", _FIVE),
    "atomic_compare_swap": ("TYPE", _COND, "one_sided.exchange", spellings.AMO, "cswap", _THREE),
    "atomic_swap": ("TYPE", _VALUE, "one_sided.update", spellings.EXTENDED_AMO, "swap", _FIVE),
    "atomic_fetch_inc": ("TYPE", _NONE, "one_sided.fetch", spellings.AMO, "finc", _THREE),
    "atomic_inc": ("void", _NONE, "one_sided.fetch", spellings.AMO, "inc", _THREE),
    "atomic_fetch_add": ("TYPE", _VALUE, "one_sided.update", spellings.AMO, "fadd", _THREE),
    "atomic_add": ("void", _VALUE, "one_sided.update", spellings.AMO, "add", _THREE),
    "atomic_fetch_and": ("TYPE", _VALUE, "one_sided.update", spellings.BITWISE_AMO, "", ()),
    "atomic_and": ("void", _VALUE, "one_sided.update", spellings.BITWISE_AMO, "", ()),
    "atomic_fetch_or": ("TYPE", _VALUE, "one_sided.update", spellings.BITWISE_AMO, "", ()),
    "atomic_or": ("void", _VALUE, "one_sided.update", spellings.BITWISE_AMO, "", ()),
    "atomic_fetch_xor": ("TYPE", _VALUE, "one_sided.update", spellings.BITWISE_AMO, "", ()),
    "atomic_xor": ("void", _VALUE, "one_sided.update", spellings.BITWISE_AMO, "", ()),
}

# Python's name: (return type, parameters, body); the vector forms compare each element with its own value
_MANY = "(TYPE *ivars, size_t nelems, {indices}const int *status, int cmp, {value})"
_WAITS: dict[str, tuple[str, str, str]] = {
    f"{verb}_{which}{vector}": (
        returns,
        _MANY.format(
            indices="size_t *indices, " if which == "some" else "",
            value="const TYPE *cmp_values" if vector else "TYPE cmp_value",
        ),
        body,
    )
    for verb, none in (("wait_until", "void"), ("test", "int"))
    for vector in ("", "_vector")
    for which, returns, body in (
        ("all", none, "waits.every"),
        ("any", "size_t", "waits.first"),
        ("some", "size_t", "waits.some"),
    )
}
_ONE = "(TYPE *ivar, int cmp, TYPE cmp_value)"

# Python's name: (parameters after team, body, body for active sets)
_MOVE = "TYPE *dest, const TYPE *source, size_t nelems"
_COLLECTIVES: dict[str, tuple[str, str, str]] = {
    "alltoall": (_MOVE, "collectives.alltoall", "active_sets.alltoall"),
    "alltoalls": (_STRIDES[1:] + "size_t nelems", "collectives.alltoalls", "active_sets.alltoalls"),
    "broadcast": (_MOVE + ", int PE_root", "collectives.broadcast", "active_sets.broadcast"),
    "collect": (_MOVE, "collectives.collect", "active_sets.collect"),
    "fcollect": (_MOVE, "collectives.fcollect", "active_sets.collect"),
}
# operator: (types with teams, types with active sets)
_REDUCTIONS = {
    "and": (spellings.BITWISE, spellings.SETS_BITWISE),
    "or": (spellings.BITWISE, spellings.SETS_BITWISE),
    "xor": (spellings.BITWISE, spellings.SETS_BITWISE),
    "max": (spellings.ORDERED, spellings.SETS_ORDERED),
    "min": (spellings.ORDERED, spellings.SETS_ORDERED),
    "sum": (spellings.NUMERIC, spellings.SETS_NUMERIC),
    "prod": (spellings.NUMERIC, spellings.SETS_NUMERIC),
}
_SET = "int PE_start, int logPE_stride, int PE_size, "
_TO_ALL = f"(TYPE *dest, const TYPE *source, int nreduce, {_SET}TYPE *pWrk, long *pSync)"

_LONE = """
9.1 INIT | void shmem_init(void)
9.1 MY_PE | int shmem_my_pe(void)
9.1 N_PES | int shmem_n_pes(void)
9.1 FINALIZE | void shmem_finalize(void)
9.1 GLOBAL_EXIT | void shmem_global_exit(int status)
9.1 QUERY_INITIALIZED | void shmem_query_initialized(int *initialized)
9.1 PE_ACCESSIBLE | int shmem_pe_accessible(int pe)
9.1 ADDR_ACCESSIBLE | int shmem_addr_accessible(const void *addr, int pe)
9.1 PTR | void *shmem_ptr(const void *dest, int pe)
9.1 TEAM_PTR | void *shmem_team_ptr(shmem_team_t team, const void *dest, int pe)
9.1 INFO_GET_VERSION | void shmem_info_get_version(int *major, int *minor)
9.1 INFO_GET_NAME | void shmem_info_get_name(char *name)
9.2 INIT_THREAD | int shmem_init_thread(int requested, int *provided)
9.2 QUERY_THREAD | void shmem_query_thread(int *provided)
9.3 MALLOC | void *shmem_malloc(size_t size)
9.3 MALLOC | void shmem_free(void *ptr)
9.3 MALLOC | void *shmem_realloc(void *ptr, size_t size)
9.3 MALLOC | void *shmem_align(size_t alignment, size_t size)
9.3 MALLOC_WITH_HINTS | void *shmem_malloc_with_hints(size_t size, long hints)
9.3 CALLOC | void *shmem_calloc(size_t count, size_t size)
9.4 TEAM_MY_PE | int shmem_team_my_pe(shmem_team_t team)
9.4 TEAM_N_PES | int shmem_team_n_pes(shmem_team_t team)
9.4 TEAM_GET_CONFIG | int shmem_team_get_config(shmem_team_t team, long config_mask, shmem_team_config_t *config)
9.4 TEAM_TRANSLATE_PE | int shmem_team_translate_pe(shmem_team_t src_team, int src_pe, shmem_team_t dest_team)
9.4 TEAM_SPLIT_STRIDED | int shmem_team_split_strided(shmem_team_t parent_team, int start, int stride, int size, \
const shmem_team_config_t *config, long config_mask, shmem_team_t *new_team)
9.4 TEAM_SPLIT_2D | int shmem_team_split_2d(shmem_team_t parent_team, int xrange, \
const shmem_team_config_t *xaxis_config, long xaxis_mask, shmem_team_t *xaxis_team, \
const shmem_team_config_t *yaxis_config, long yaxis_mask, shmem_team_t *yaxis_team)
9.4 TEAM_DESTROY | void shmem_team_destroy(shmem_team_t team)
9.5 CTX_CREATE | int shmem_ctx_create(long options, shmem_ctx_t *ctx)
9.5 TEAM_CREATE_CTX | int shmem_team_create_ctx(shmem_team_t team, long options, shmem_ctx_t *ctx)
9.5 CTX_DESTROY | void shmem_ctx_destroy(shmem_ctx_t ctx)
9.5 CTX_GET_TEAM | int shmem_ctx_get_team(shmem_ctx_t ctx, shmem_team_t *team)
9.5 CTX_SESSION_START | void shmem_ctx_session_start(shmem_ctx_t ctx, long options, \
const shmem_ctx_session_config_t *config, long config_mask)
9.5 CTX_SESSION_STOP | void shmem_ctx_session_stop(shmem_ctx_t ctx)
9.9 BARRIER_ALL | void shmem_barrier_all(void)
9.9 SYNC_ALL | void shmem_sync_all(void)
9.9 SYNC | int shmem_team_sync(shmem_team_t team)
9.11 FENCE | void shmem_fence(void)
9.11 FENCE | void shmem_ctx_fence(shmem_ctx_t ctx)
9.11 QUIET | void shmem_quiet(void)
9.11 QUIET | void shmem_ctx_quiet(shmem_ctx_t ctx)
9.11 PE_QUIET | void shmem_pe_quiet(const int *target_pes, size_t npes)
9.11 PE_QUIET | void shmem_ctx_pe_quiet(shmem_ctx_t ctx, const int *target_pes, size_t npes)
9.12 LOCK | void shmem_set_lock(long *lock)
9.12 LOCK | void shmem_clear_lock(long *lock)
9.12 LOCK | int shmem_test_lock(long *lock)
PCONTROL | void shmem_pcontrol(int level, ...)
"""
# (prototype, section and page, body, deprecated since, replacement)
_OLD = (
    (f"void shmem_sync({_SET}long *pSync)", "9.9 SYNC", "management.sync", "1.5", "shmem_team_sync"),
    ("void start_pes(int npes)", "9.1 START_PES", "management.start_pes", "1.2", "shmem_init"),
    ("int _my_pe(void)", "9.1 MY_PE", "management.my_pe", "1.2", "shmem_my_pe"),
    ("int _num_pes(void)", "9.1 N_PES", "management.n_pes", "1.2", "shmem_n_pes"),
    ("void *shmalloc(size_t size)", "9.3 MALLOC", "management.malloc", "1.2", "shmem_malloc"),
    ("void shfree(void *ptr)", "9.3 MALLOC", "management.free", "1.2", "shmem_free"),
    ("void *shrealloc(void *ptr, size_t size)", "9.3 MALLOC", "management.realloc", "1.2", "shmem_realloc"),
    ("void *shmemalign(size_t alignment, size_t size)", "9.3 MALLOC", "management.align", "1.2", "shmem_align"),
    (
        f"void shmem_barrier({_SET}long *pSync)",
        "9.9 BARRIER",
        "management.barrier",
        "1.5",
        "shmem_quiet, shmem_team_sync",
    ),
)


def _page(page: str) -> str:
    """ "9.6 PUT" as the specification's pages are called."""
    return page.replace(" ", " SHMEM_") if page.startswith("9") else f"SHMEM_{page}"


def _lone() -> Iterator[Row]:
    for line in _LONE.strip().splitlines():
        page, prototype = line.split(" | ")
        row = Row(prototype, "", _page(page))
        yield row._replace(body="management." + row.name.removeprefix("shmem_"))
    for prototype, page, body, since, instead in _OLD:
        yield Row(prototype, body, _page(page), deprecated=(since, instead))
    yield Row("int shmem_sync(shmem_team_t team)", "management.sync", _page("9.9 SYNC"), generic=True)


def _rma() -> Iterator[Row]:
    for name, (returns, parameters, body, sizes) in _RMA.items():
        prototype = f"{returns} shmem_<TYPENAME>_{name}{parameters}"
        section = "9.8" if "signal" in name else "9.6"
        yield Row(
            prototype, body, _page(f"{section} {name.upper()}"), name, spellings.RMA, sizes, ctx=True, generic=True
        )


def _amo() -> Iterator[Row]:
    for name, (returns, parameters, body, kinds, old, old_kinds) in _AMO.items():
        row = Row(
            f"{returns} shmem_<TYPENAME>_{name}{parameters}",
            body,
            _page(f"9.7 {name.upper()}"),
            name,
            kinds,
            ctx=True,
            generic=True,
        )
        yield row
        if "fetch" in name or "swap" in name:
            yield row._replace(
                prototype=f"void shmem_<TYPENAME>_{name}_nbi(TYPE *fetch, {parameters[1:]}",
                body="one_sided.later",
                page=_page(f"9.7 {name.upper()}_NBI"),
                host=f"{name}_nbi",
            )
        if old:
            prototype = f"{returns} shmem_<TYPENAME>_{old}{parameters}"
            instead = ("1.4", f"shmem_<TYPENAME>_{name}")
            yield row._replace(prototype=prototype, types=old_kinds, ctx=False, deprecated=instead)


def _signals() -> Iterator[Row]:
    for name in ("signal_add", "signal_set"):
        row = Row(f"void shmem_{name}{_SIGNAL}", "one_sided.update", _page(f"9.8 {name.upper()}"), name)
        yield row._replace(ctx=True, generic=True)
    fetched = "uint64_t shmem_signal_fetch(const uint64_t *sig_addr)"
    yield Row(fetched, "one_sided.signal_fetch", "9.8 SHMEM_SIGNAL_FETCH", "signal_fetch")
    waited = "uint64_t shmem_signal_wait_until(uint64_t *sig_addr, int cmp, uint64_t cmp_value)"
    yield Row(waited, "waits.wait", "9.10 SHMEM_SIGNAL_WAIT_UNTIL", "signal_wait_until")


def _waits() -> Iterator[Row]:
    for returns, name, body in (("void", "wait_until", "waits.wait"), ("int", "test", "waits.test")):
        row = Row(f"{returns} shmem_<TYPENAME>_{name}{_ONE}", body, _page(f"9.10 {name.upper()}"), name, spellings.AMO)
        yield row._replace(generic=True)
        instead = ("1.5", f"the names of other types, such as shmem_int_{name}")
        yield row._replace(types=("short", "ushort"), deprecated=instead)
    lone = Row(
        f"void shmem_wait_until{_ONE.replace('TYPE', 'long')}", "waits.wait", "9.10 SHMEM_WAIT_UNTIL", "wait_until"
    )
    yield lone._replace(deprecated=("1.4", "shmem_long_wait_until"))
    for name, (returns, parameters, body) in _WAITS.items():
        prototype = f"{returns} shmem_<TYPENAME>_{name}{parameters}"
        yield Row(prototype, body, _page(f"9.10 {name.upper()}"), name, spellings.AMO, generic=True)
    old = Row("void shmem_wait(long *ivar, long cmp_value)", "waits.wait_change", "9.10 SHMEM_WAIT_UNTIL", "wait_until")
    yield old._replace(deprecated=("1.4", "shmem_long_wait_until with SHMEM_CMP_NE"))
    typed = old._replace(prototype="void shmem_<TYPENAME>_wait(TYPE *ivar, TYPE cmp_value)")
    instead = ("1.4", "shmem_<TYPENAME>_wait_until with SHMEM_CMP_NE")
    yield typed._replace(types=("short", "int", "long", "longlong"), deprecated=instead)


def _collectives() -> Iterator[Row]:
    for name, (parameters, body, old_body) in _COLLECTIVES.items():
        page = _page(f"9.9 {name.upper()}")
        prototype = f"int shmem_<TYPENAME>_{name}(shmem_team_t team, {parameters})"
        yield Row(prototype, body, page, name, spellings.RMA, ("mem",), generic=True)
        old = f"void shmem_<TYPENAME>_{name}({parameters}, {_SET}long *pSync)"
        instead = ("1.5", f"shmem_long_{name}, another type's name, or shmem_{name}mem")
        yield Row(old, old_body, page, name, (), ("32", "64"), deprecated=instead)
    for operator, (kinds, old_kinds) in _REDUCTIONS.items():
        page, name = _page(f"9.9 {operator.upper()}_REDUCE"), f"{operator}_reduce"
        prototype = f"int shmem_<TYPENAME>_{name}(shmem_team_t team, TYPE *dest, const TYPE *source, size_t nreduce)"
        yield Row(prototype, "collectives.reduce", page, name, kinds, generic=True)
        old = f"void shmem_<TYPENAME>_{operator}_to_all{_TO_ALL}"
        instead = ("1.5", f"shmem_<TYPENAME>_{name}")
        yield Row(old, "active_sets.to_all", page, name, old_kinds, deprecated=instead)
    for name in ("sum_inscan", "sum_exscan"):
        prototype = f"int shmem_<TYPENAME>_{name}(shmem_team_t team, {_MOVE})"
        yield Row(prototype, "collectives.reduce", _page("9.9 SCAN"), name, spellings.NUMERIC, generic=True)


ROWS = (*_lone(), *_rma(), *_amo(), *_signals(), *_waits(), *_collectives())
