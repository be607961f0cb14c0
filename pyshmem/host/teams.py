"""Teams: strided triplets of world PEs, each with the meeting of its members. Spec: OpenSHMEM 1.6, 9.4.

A team takes no memory from the symmetric heap: pyshmem.memory.areas provides its area.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pyshmem.base import bootstrap
from pyshmem.base.errors import ArgumentError, OutOfRangeError, UnreachableError, listed, refuse
from pyshmem.base.job import job
from pyshmem.memory.areas import RESERVED, begin, clear, pool
from pyshmem.memory.arguments import exact_int, integer_of, is_int, require_init
from pyshmem.transport.near_or_far import meeting_of

__all__ = ["TEAM_INVALID", "TEAM_SHARED", "TEAM_WORLD", "Team", "TeamConfig"]


class TeamConfig(NamedTuple):
    """The configuration of a team, a named tuple.

    num_contexts: the number of contexts that the program will create on the team; 0, the default, asks for none.
    Spec: 9.4, shmem_team_config_t.
    """

    num_contexts: int = 0


_PLAIN = TeamConfig()
_ROW = struct.Struct("4q")  # of a range: start, step, length, stop
_NO_ROW = (0, 1, 0, 0)


class Team:
    """The PEs ``start + i * stride`` of the world, for i less than ``size``.

    A Team is false if it has no members, as before init and after destroy.
    """

    __slots__ = ("area_index", "choices", "config", "launches", "me", "meeting", "name", "size", "start", "stride")

    def __init__(self, name: str) -> None:
        self.name = name
        self._leave()

    def _enter(self, start: int, stride: int, size: int, me: int, area_index: int, config: TeamConfig = _PLAIN) -> None:
        """Become a team. The area has the same offset on all members; no other team uses it."""
        self.start, self.stride, self.size, self.me = start, stride, size, me
        self.area_index, self.config = area_index, config
        self.launches = 0  # by shmem.launch
        self.choices: dict[bytes, int] = {}  # of configurations of kernels, by shmem.launch
        self.meeting = meeting_of(self.name, self._world_pes(), me, area_index)

    def _leave(self) -> None:
        """Become no team; all such objects are equal."""
        self.start = self.stride = self.size = 0
        self.me = self.area_index = -1
        self.config = _PLAIN

    def _was_one(self) -> bool:
        """Return whether the object has been a team before: destroy and finalize have ended it."""
        return not self and hasattr(self, "meeting")

    def __bool__(self) -> bool:
        return self.size > 0

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Team) and not self and not other)

    def __hash__(self) -> int:
        return hash(Team)  # a team may end, and then equals all that have ended

    def __repr__(self) -> str:
        if self:
            return f"<{self.name}: PE {self.me} of {self.size}>"
        return f"<destroyed {self.name}>" if self._was_one() else f"<{self.name}: no team>"

    def my_pe(self) -> int:
        """Return this PE's number in the team, or -1 if it is not a member.

        Errors: NotInitializedError.
        Spec: 9.4 SHMEM_TEAM_MY_PE.
        """
        if not job.inits:
            require_init("my_pe")
        return self.me

    def n_pes(self) -> int:
        """Return the number of PEs of the team, or -1 if it is no team.

        Errors: NotInitializedError.
        Spec: 9.4 SHMEM_TEAM_N_PES.
        """
        if not job.inits:
            require_init("n_pes")
        return self.size or -1

    def get_config(self) -> TeamConfig:
        """Return the configuration of the team.

        Errors: ArgumentError if it is no team, NotInitializedError.
        Spec: 9.4 SHMEM_TEAM_GET_CONFIG.
        """
        return member("get_config", self).config

    def translate_pe(self, pe: int | None = None, team: Team | None = None) -> int:
        """Return the number in ``team`` of PE ``pe`` of this team, or -1 if it has none.

        pe: None is this PE.  team: None is TEAM_WORLD.
        Errors: NotInitializedError.
        Spec: 9.4 SHMEM_TEAM_TRANSLATE_PE.
        """
        require_init("translate_pe")
        pe, team = self.me if pe is None else integer_of(pe), TEAM_WORLD if team is None else team
        if not self or not team or not is_int(pe) or not 0 <= pe < self.size:
            return -1
        world = self.start + int(pe) * self.stride
        if team.size == 1:
            return 0 if world == team.start else -1
        index, rest = divmod(world - team.start, team.stride)
        return index if rest == 0 and 0 <= index < team.size else -1

    def split_strided(
        self,
        start: int = 0,
        stride: int = 1,
        size: int | None = None,
        config: TeamConfig | dict[str, int] | None = None,
        *,
        num_contexts: int | None = None,
    ) -> Team:
        """Return a team of ``size`` PEs of this team, beginning with ``start``, in steps of ``stride``.

        stride: may be negative; it may be 0 if size is 1.
        size: None means as many PEs as there are.
        config: num_contexts as a TeamConfig, a dict or None.
        num_contexts: the number of contexts wanted; it overrides that of config.
        Returns: TEAM_INVALID on PEs outside the new team, and on all PEs if PYSHMEM_MAX_TEAMS teams exist.
        Order: collective over this team, with the same arguments.
        Errors: OutOfRangeError, ArgumentError, NotInitializedError, on all PEs alike; WaitTimeoutError.
        Spec: 9.4 SHMEM_TEAM_SPLIT_STRIDED.
        """
        settings = _config("split_strided", config, {} if num_contexts is None else {"num_contexts": num_contexts})
        member("split_strided", self)
        first, step = exact_int("split_strided", "start", start), exact_int("split_strided", "stride", stride)
        if size is None:
            size = 1 if step == 0 else (self.size - 1 - first) // step + 1 if step > 0 else first // -step + 1
        count = exact_int("split_strided", "size", size)
        last = first + (count - 1) * step
        if not (0 <= first < self.size and count >= 1 and 0 <= last < self.size and (step or count == 1)):
            got = f"start {first}, stride {step}, size {count}"
            refuse(OutOfRangeError, "split_strided", "start", got, f"PEs from 0 to {self.size - 1}, each of them once")
        return _form("split_strided", self, range(first, last + (1 if step >= 0 else -1), step or 1), settings)

    def split_2d(
        self,
        xrange: int,
        xconfig: TeamConfig | dict[str, int] | None = None,
        yconfig: TeamConfig | dict[str, int] | None = None,
    ) -> tuple[Team, Team]:
        """Return the teams (x, y) of this PE's row and column, with rows of ``xrange`` PEs; the last row may be shorter.

        PE i of this team is PE i % xrange of x and PE i // xrange of y.
        xconfig, yconfig: num_contexts, the number of contexts wanted, as a TeamConfig, a dict or None.
        Order: collective over this team, with the same arguments.
        Errors: OutOfRangeError, ArgumentError, NotInitializedError, on all PEs alike; WaitTimeoutError.
        Spec: 9.4 SHMEM_TEAM_SPLIT_2D.
        """
        settings = [_config("split_2d", each, {}) for each in (xconfig, yconfig)]
        member("split_2d", self)
        width = min(exact_int("split_2d", "xrange", xrange), self.size)
        if width < 1:
            refuse(OutOfRangeError, "split_2d", "xrange", str(width), "1 or more")
        row, column = divmod(self.me, width)
        across = range(row * width, min((row + 1) * width, self.size))
        x = _form("split_2d", self, across, settings[0])
        y = _form("split_2d", self, range(column, self.size, width), settings[1])
        if not (x and y):
            x.destroy()
            y.destroy()
        return x, y

    @staticmethod
    def from_group(group: Any) -> Team:
        """Return the team of the processes of a torch process group; rank i of the group is PE i of the team.

        group: the ProcessGroup of this PE, or a DeviceMesh of one dimension, as mesh["tp"]. PEs may pass different groups
            that have no PE in common. A PE that is in none passes None, or what new_group has returned there.
        Returns: TEAM_INVALID on PEs without a group, and on all PEs if PYSHMEM_MAX_TEAMS teams exist.
        Order: collective over TEAM_WORLD. The team outlives the group.
        Errors: ArgumentError on all PEs if a group is no sequence of PEs with equal distances, or if torch.distributed is
            not initialised; NotInitializedError, WaitTimeoutError.
        """
        require_init("from_group")
        holders = {rank: pe for pe, rank in enumerate(_ranks("from_group", TEAM_WORLD))}
        mine = _row([holders.get(rank, -1) for rank in bootstrap.ranks_of(group)])
        notes = TEAM_WORLD.meeting.share("from_group", _ROW.pack(mine.start, mine.step, len(mine), mine.stop))
        rows = [_ROW.unpack(note) for note in notes]
        wrong = [
            pe
            for pe, row in enumerate(rows)
            if row != _NO_ROW and (pe not in range(row[0], row[3], row[1]) or rows.count(row) != row[2])
        ]
        if wrong:
            wants = "PEs of the job with equal distances, and the same group on all of them"
            refuse(ArgumentError, "from_group", "group", f"on {listed(wrong)} a group of other processes", wants)
        return _form("from_group", TEAM_WORLD, mine, _PLAIN)

    def to_group(self, backend: str | None = None) -> Any:
        """Return a new torch process group of the PEs of the team; PE i of the team is rank i of the group.

        backend: of torch.distributed, as "gloo"; None is that of its default group, which must be initialised.
        Order: collective over the team. The group outlives the team.
        Errors: ArgumentError on all PEs if torch.distributed is not initialised or numbers the PEs in another order;
            NotInitializedError, WaitTimeoutError.
        """
        ranks = _ranks("to_group", member("to_group", self))
        if ranks != sorted(ranks):
            refuse(ArgumentError, "to_group", "team", f"{self!r} with the ranks {ranks}", "PEs whose ranks ascend")
        return bootstrap.group_of(ranks, backend)

    def create_ctx(self, options: int = 0) -> Any:
        """Return a new context on this team; CTX_INVALID if it is no team. Local.

        options: 0, or members of CTX combined with ``|``.
        Errors: ArgumentError, NotInitializedError.
        Spec: 9.5 SHMEM_TEAM_CREATE_CTX.
        """
        from pyshmem.host.contexts import Ctx  # imported here because contexts imports teams

        return Ctx.create(options, self)

    def sync(self) -> None:
        """Wait until every PE of the team has called sync. Orders plain stores; does not complete puts.

        Errors: ArgumentError, NotInitializedError, WaitTimeoutError.
        Spec: 9.9 SHMEM_TEAM_SYNC.
        """
        member("sync", self).meeting.sync("sync")

    def destroy(self) -> None:
        """End the team and its contexts; the team is false afterwards. Does nothing if it is no team.

        Order: collective over the team; the call does not wait.
        Errors: ArgumentError for TEAM_WORLD and TEAM_SHARED.
        Spec: 9.4 SHMEM_TEAM_DESTROY.
        """
        if not self:
            return
        if self.area_index < RESERVED:
            refuse(ArgumentError, "destroy", "team", self.name, "a team that split_strided or split_2d made")
        pool.give_back(self)

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *exception: object) -> None:
        self.destroy()

    def _world_pe(self, routine: str, pe: int, argument: str = "pe") -> int:
        """Return the number in TEAM_WORLD of PE ``pe`` of this team.

        Errors: NotInitializedError, OutOfRangeError; ArgumentError for a float, a bool or a text.
        """
        if type(pe) is not int or not 0 <= pe < self.size:
            if not self:
                refuse_team(routine, self)
            pe = exact_int(routine, argument, pe)
            if not 0 <= pe < self.size:
                refuse(OutOfRangeError, routine, argument, str(pe), f"a PE from 0 to {self.size - 1} of {self.name}")
        return self.start + pe * self.stride

    def _world_pes(self) -> list[int]:
        """Return the numbers in TEAM_WORLD of all PEs of this team."""
        return [self.start + i * self.stride for i in range(self.size)]


TEAM_WORLD = Team("TEAM_WORLD")
TEAM_SHARED = Team("TEAM_SHARED")
TEAM_INVALID = Team("TEAM_INVALID")


def _form(routine: str, parent: Team, members: range, config: TeamConfig) -> Team:
    """The new team of ``members``, PEs of ``parent``; TEAM_INVALID on other PEs, and no team if no area is free.

    All new teams of one split use areas with the same index, because they have no PE in common. The owner of an area
    clears it before its first use, because an earlier team may have used it.
    """
    team = None
    try:
        index = pool.agree(routine, parent)
    except BaseException:
        pool.take(parent, -1, None)
        raise
    if index is None:
        return Team(f"no team, PYSHMEM_MAX_TEAMS={pool.size} are in use")
    if parent.me in members:
        start, stride = parent.start + members.start * parent.stride, parent.stride * members.step
        team = Team(f"team of PE {start}" if len(members) == 1 else f"team of PEs {start}, {start + stride}, ...")
        team._enter(start, stride, len(members), members.index(parent.me), index, config)
        clear(index)
        begin(index, pool.stamp)
    pool.take(parent, index, team)
    try:
        parent.meeting.share(routine, b".")
    except BaseException:
        if team is not None:
            pool.give_back(team)
        raise
    return TEAM_INVALID if team is None else team


def _ranks(routine: str, team: Team) -> list[int]:
    """The ranks of the members in torch's default process group. Collective. Errors: ArgumentError, on all alike."""
    notes = team.meeting.share(routine, bootstrap.rank().to_bytes(8, "little", signed=True))
    ranks = [int.from_bytes(note, "little", signed=True) for note in notes]
    if -1 in ranks:
        got = f"none on {listed([pe for pe, rank in enumerate(ranks) if rank < 0])}"
        refuse(
            ArgumentError, routine, "torch.distributed", got, "torch.distributed.init_process_group() on all PEs first"
        )
    return ranks


def _row(pes: list[int]) -> range:
    """The range of these PEs, from the first on; one that no PE is in if their distances differ or one is no PE."""
    if not pes:
        return range(0)
    step = pes[1] - pes[0] if len(pes) > 1 else 1
    row = range(pes[0], pes[0] + len(pes) * step, step) if step else range(0)
    return row if list(row) == pes and min(pes) >= 0 else range(-1, 0)


def _config(routine: str, config: Any, options: dict[str, Any]) -> TeamConfig:
    """``config``, a TeamConfig, dict or None, updated with ``options``. Errors: ArgumentError."""
    if isinstance(config, TeamConfig):
        config = config._asdict()
    if not (config is None or isinstance(config, dict)):
        refuse(ArgumentError, routine, "config", type(config).__name__, "a TeamConfig, a dict or None")
    wishes = {name: integer_of(value) for name, value in {**(config or {}), **options}.items()}
    for name, value in wishes.items():
        if name not in TeamConfig._fields or not isinstance(value, (int, np.integer)) or value < 0:
            refuse(ArgumentError, routine, "config", f"{name}={value!r}", "num_contexts, an int not below 0")
    return TeamConfig(**wishes)


def member(routine: str, team: Team | None) -> Team:
    """``team``, or TEAM_WORLD for None, checked to include this PE. Errors: NotInitializedError, ArgumentError."""
    if team is None:
        team = TEAM_WORLD
    if not isinstance(team, Team):
        wants = "a Team, or None for TEAM_WORLD, as the last argument (in C it is the first)"
        refuse(ArgumentError, routine, "team", type(team).__name__, wants)
    if team.me < 0:
        refuse_team(routine, team)
    return team


def require_one_node(
    routine: str, team: Team, argument: str = "team", got: str = "", wants: str = "a team whose PEs are in one node"
) -> None:
    """Refuse, on all PEs of ``team``, what takes tiles to its members, if these are on several nodes.

    argument, got: what takes them, and what it is for the team; the team itself, unless given. Errors: UnreachableError.
    """
    if team.meeting.spans:
        refuse(UnreachableError, routine, argument, f"{got}{team!r}, which spans nodes", wants)


def refuse_team(routine: str, team: Team) -> NoReturn:
    """Refuse an object that is no team. Errors: NotInitializedError outside init and finalize, otherwise ArgumentError."""
    require_init(routine)
    got = f"a destroyed {team.name}" if team._was_one() else repr(team)
    refuse(ArgumentError, routine, "team", got, "a team this PE is in")
