"""Bring two chunks together: what every task that compares chunks is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

import numpy as np

from dask_simjoin.engine.base import joiner_for
from dask_simjoin.engine.protocols import Joiner, Layout, Rows
from dask_simjoin.metrics.types import ArrayModule, Index
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk


class Meeting(NamedTuple):
    """Say which two chunks are compared, and by what.

    Attributes
    ----------
    q, d : Chunk
        The first and the second chunk, or twice the same; `d` may have a halo.
    same : bool
        Whether they are one chunk, in which each pair is found once.
    spec : JoinSpec
        What was asked for.
    layout : Layout
        How both are indexed.
    part : tuple of int
        Which part of the work this is, and of how many.
    """

    q: Chunk
    d: Chunk
    same: bool
    spec: JoinSpec
    layout: Layout
    part: tuple[int, int] = (0, 1)

    @property
    def rows(self) -> Rows | None:
        """Tell which places of the first chunk's index are this part of the work; None: all of them."""
        number, parts = self.part
        if parts == 1:
            return None
        work = self.joiner.work(*self.operands, same=self.same)
        cuts = equal_work(work, len(self.q["ids"]), self.layout.grain, parts)
        return cuts[number], cuts[number + 1]

    @property
    def first(self) -> bool:
        """Tell whether this is the first part of the work: what is done once is done with it."""
        return not self.part[0]

    @property
    def joiner(self) -> Joiner:
        """Choose what joins chunks of this library."""
        return joiner_for(self.q["example"])

    @property
    def xp(self) -> ArrayModule:
        """Tell the module of the chunks' arrays."""
        return self.joiner.xp

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """List each of the chunks once."""
        return (self.q,) if self.same else (self.q, self.d)

    @property
    def operands(self) -> tuple[Index, Index, Layout]:
        """List what a joiner compares: both indexes, and their layout."""
        return cast(Index, self.q), cast(Index, self.d), self.layout

    @property
    def order_unknown(self) -> bool:
        """Tell whether either row of a pair may come first in the frame."""
        return not self.same and "position" in self.q and self.spec.other is None

    def comparisons(self) -> Iterator[Meeting]:
        """Go through what is compared: both chunks, and the first one with the halo of the second."""
        yield self
        if "halo" in self.d and len(self.d["halo"]["ids"]):
            yield self._replace(d=self.d["halo"], same=False)


def equal_work(work: np.ndarray, places: int, grain: int, parts: int) -> list[int]:
    """Cut places into parts of about equal work, of which equal ranges of them do so much each.

    Parts begin at multiples of `grain`; some may be empty.
    """
    done = np.concatenate([[0.0], np.cumsum(work)])
    at = np.interp(np.linspace(0, done[-1], parts + 1), done, np.linspace(0, places, len(done)))
    cuts = [min(round(cut / grain) * grain, places) for cut in at.tolist()]
    return [0, *cuts[1:-1], places]


def whole_meeting(chunk: Chunk, spec: JoinSpec, layout: Layout) -> Meeting:
    """Bring a chunk together with itself."""
    return Meeting(chunk, chunk, True, spec, layout)
