"""Bring two chunks together: what every task that compares chunks is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from dask_simjoin.engine.base import joiner_for
from dask_simjoin.engine.protocols import Joiner, Layout
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
    """

    q: Chunk
    d: Chunk
    same: bool
    spec: JoinSpec
    layout: Layout

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


def whole_meeting(chunk: Chunk, spec: JoinSpec, layout: Layout) -> Meeting:
    """Bring a chunk together with itself."""
    return Meeting(chunk, chunk, True, spec, layout)
