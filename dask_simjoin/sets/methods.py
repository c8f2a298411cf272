"""The methods by which pairs of sets are found: an entry each, whose fields are its options."""

from __future__ import annotations

from dataclasses import dataclass

from dask_simjoin.sets.verification import FILTERS, Filtered, OnGpu

AUTO = "auto"
"""The name that leaves the choice to the joiner, which knows the sets."""

SetMethod = OnGpu
"""A way to find pairs of sets; its docstring's first line is what docs say of it."""


@dataclass(frozen=True, kw_only=True)
class AllPairs(Filtered):
    """Look up the tokens of prefixes in an index, and verify all sets of admissible sizes that are met."""


@dataclass(frozen=True, kw_only=True)
class PPJoin(Filtered):
    """Look up prefixes in an index, and leave out sets that meet too late in them to match."""


@dataclass(frozen=True, kw_only=True)
class GroupJoin(Filtered):
    """Look up groups of sets that have one prefix as if they were one set, then pair their members.

    Parameters
    ----------
    members : {"gpu", "cpu"}
        Who pairs members where the CPU filters for a GPU.  "cpu": as in Bellas & Gounaris, whose GPU verifies
        the sets that stand for groups only.
    """

    members: str = "gpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("members", FILTERS)


@dataclass(frozen=True, kw_only=True)
class Bitmap(OnGpu):
    """Compare bitmaps of all pairs of sets of admissible sizes, then the tokens of those that are left."""


METHODS: dict[str, SetMethod] = {
    "allpairs": AllPairs(),
    "ppjoin": PPJoin(),
    "groupjoin": GroupJoin(),
    "bitmap": Bitmap(),
}
"""All methods by name."""

CHOICES = (AUTO, *METHODS)
"""What the option `method` may be."""


def options_of(asked: str | SetMethod) -> SetMethod | None:
    """Return the options of what was asked for, by name or as an object; None: "auto"."""
    if not isinstance(asked, str):
        return asked
    return None if asked == AUTO else METHODS[asked]
