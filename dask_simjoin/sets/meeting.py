"""Bring two chunks of sets together: what every task that compares them is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dask_simjoin.engine.base import frames_of_library, set_joiner_of_library
from dask_simjoin.metrics.types import Array, ArrayModule
from dask_simjoin.sets.algorithms.joiner import SetJoiner
from dask_simjoin.sets.chunks import SetChunk
from dask_simjoin.sets.methods import SetMethod
from dask_simjoin.sets.spec import SetSpec
from dask_simjoin.sets.types import SetBlock


class Comparison(NamedTuple):
    """Say which sets are compared: some of the first chunk's with some of the second's, or with each other.

    Attributes
    ----------
    left, right : SetBlock
        `right` None: each pair within `left` once.
    left_first, right_first : int
        The positions of their first sets in the chunks.
    """

    left: SetBlock
    right: SetBlock | None
    left_first: int
    right_first: int


class SetMeeting(NamedTuple):
    """Say which two chunks are compared, and by what.

    Attributes
    ----------
    q, d : SetChunk
        The first and the second chunk, or twice the same.
    same : bool
        Whether they are one chunk, in which each pair is found once.
    spec : SetSpec
    method : str or SetMethod
    part : tuple of int
        Which part of the work this is, and of how many.
    library : str or None
        Whose arrays these are, if it is another than the frames'.
    """

    q: SetChunk
    d: SetChunk
    same: bool
    spec: SetSpec
    method: str | SetMethod
    part: tuple[int, int] = (0, 1)
    library: str | None = None

    @property
    def _library(self) -> str:
        return self.spec.library if self.library is None else self.library

    @property
    def joiner(self) -> SetJoiner:
        """Choose what joins blocks of this library."""
        joiner: SetJoiner = set_joiner_of_library(self._library)
        return joiner

    @property
    def xp(self) -> ArrayModule:
        """Tell the module of the chunks' arrays."""
        return frames_of_library(self._library).xp

    @property
    def first(self) -> bool:
        """Tell whether this is the first part of the work: what is done once is done with it."""
        return not self.part[0]

    @property
    def range(self) -> tuple[int, int]:
        """Tell which sets of the second chunk are this part of the work, by their tokens."""
        (number, parts), sets = self.part, len(self.d["weights"])
        if parts == 1:
            return 0, sets
        offsets = self.d["offsets"]
        total = int(offsets[-1])
        wanted = self.xp.asarray([total * number // parts, total * (number + 1) // parts])
        start, stop = self.xp.searchsorted(offsets, wanted).tolist()
        return start, sets if number == parts - 1 else stop

    def comparisons(self, start: int, stop: int) -> Iterator[Comparison]:
        """Go through what sets start ... stop-1 of the second chunk are compared with."""
        some = part_of(self.d, start, stop)
        if not self.same:
            yield Comparison(part_of(self.q, 0, len(self.q["weights"])), some, 0, start)
            return
        if start:
            yield Comparison(part_of(self.d, 0, start), some, 0, start)
        yield Comparison(some, None, start, start)


def part_of(block: SetBlock, start: int, stop: int) -> SetBlock:
    """Take sets start ... stop-1 of a block."""
    offsets: Array = block["offsets"][start : stop + 1]
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return SetBlock(
        offsets=offsets - first if first else offsets,
        tokens=block["tokens"][first:last],
        universe=block["universe"],
        weights=block["weights"][start:stop],
    )
