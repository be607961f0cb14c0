"""The plans that are kept for later calls, and which of them go when there are too many."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from pyshmem.host.teams import Team


class Kept(OrderedDict[tuple[Any, ...], Any]):
    """Plans by what they depend on, those used last at the end. A plan has a ``team``, which may have ended."""

    def __init__(self, most: int, close: Callable[[Any], None]) -> None:
        """most: of one team.  close: frees a plan's memory, collectively over its team."""
        super().__init__()
        self.most, self.close = most, close

    def live(self, key: tuple[Any, ...]) -> Any:
        """Return the plan of this key, or None if there is none or its team has ended."""
        found = self.get(key)
        if found is None or not found.team:
            return None
        if len(self) > 1:
            self.move_to_end(key)
        return found

    def make_room(self, team: Team) -> None:
        """Close the plans of teams that have ended, and the oldest ones of ``team`` if it has as many as there may be.

        Collective over the team, whose members use its plans in one order. Those of other teams stay, as not all members of
        these are here to close them.
        """
        ended = [key for key, plan in self.items() if not plan.team]
        own = [key for key, plan in self.items() if plan.team is team]
        for key in ended + own[: max(len(own) + 1 - self.most, 0)]:
            self.close(self.pop(key))

    def close_all(self) -> None:
        """Collective over all PEs, which have made the same plans."""
        while self:
            self.close(self.popitem(last=False)[1])
