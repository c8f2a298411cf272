"""Keep what planning found out about frames that lie in memory, so that verbs after the first need no pass.

Only frames whose rows are held, by Dask or by a cluster, and columns of them: what is read or made anew
each time may be otherwise then.  What is kept goes when the frame goes.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from dask_simjoin.expressions.dask_private import Expr, FromPandas, Projection
from dask_simjoin.expressions.source import is_held
from dask_simjoin.options.spec import JoinSpec

MAX_BYTES = 1 << 26
"""Of all that is kept: what was not asked for the longest goes first."""


@dataclass(eq=False)
class Known:
    """What is known of a table: its partitions' summaries, and whether ids of several were compared."""

    summaries: list[Any]
    unique: bool = False

    @property
    def size(self) -> int:
        """Bytes that it takes, about: samples are most of it."""
        return sum(some.nbytes for some in self.summaries) + 1000 * len(self.summaries)


class KnownTables:
    """Hold what is known of tables, as long as their frames are held."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[Known, weakref.ref[Any]]] = OrderedDict()
        self._lock = threading.RLock()  # the collector may run callbacks of references while it is held

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forget all tables."""
        with self._lock:
            self._kept.clear()

    def find(self, frame: Expr, what: Hashable, make: Callable[[], list[Any]]) -> Known:
        """Return what is known of a frame in a certain respect; `make`: find it out."""
        held = _held(frame)
        if held is None:
            return Known(make())
        holder, name = held
        key = name, what
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        known = Known(make())
        with self._lock:
            self._kept[key] = known, weakref.ref(holder, lambda _: self._forget(key))
            total = sum(some.size for some, _ in self._kept.values())
            while total > self._most:
                total -= self._kept.popitem(last=False)[1][0].size
        return known

    def _forget(self, key: Hashable) -> None:
        if not sys.is_finalizing():
            with self._lock:
                self._kept.pop(key, None)


KNOWN = KnownTables()


def asked_of(spec: JoinSpec, with_ids: bool, first: int) -> Hashable:
    """Name all that summaries of a table depend on, besides its rows."""
    rows = spec.on, spec.lists, spec.metric, spec.p, spec.dropna
    return *rows, spec.id, str(spec.id_dtype), spec.radius, spec.keep, with_ids, first


def _held(frame: Expr) -> tuple[Any, Hashable] | None:
    """What holds the rows of columns of a frame in memory, and a name of the frame; None: nothing does."""
    while isinstance(frame, Projection):
        frame = frame.frame
    if isinstance(frame, FromPandas):
        # Dask may have moved a choice of columns into it, as another expression that soon goes
        return frame.operand("frame"), frame.substitute_parameters({"columns": None})._name
    if is_held(frame):
        return frame, frame._name
    return None
