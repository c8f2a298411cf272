"""Parts of the rows of an index that tasks compare, which lie in files, in memory, or in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from distributed import Future

from dask_simjoin.expressions.dask_private import Task, TaskRef
from dask_simjoin.expressions.source import gather, itself
from dask_simjoin.incremental.loaded import Loaded, joined_rows, load, moved
from dask_simjoin.incremental.slabs import Chosen, Slab, rows_taken
from dask_simjoin.incremental.types import Part, Snapshot
from dask_simjoin.options.spec import JoinSpec


@dataclass(frozen=True, eq=False)
class SlabRef:
    """Row groups of a file that are held in memory.

    Attributes
    ----------
    key : str
        The task that made them.
    file : str
    groups : (int, int)
        The number of the first one, and that behind the last one.
    start, rows : int
        The place of the first row in the file; how many there are.
    value : Future or Slab
        Where a cluster holds it, or itself.
    """

    key: str
    file: str
    groups: tuple[int, int]
    start: int
    rows: int
    value: Any

    @property
    def is_lost(self) -> bool:
        """Whether the cluster that held it has it no more, and will not make it again."""
        return isinstance(self.value, Future) and self.value.status in ("cancelled", "lost", "error")

    @property
    def ref(self) -> TaskRef:
        """Refer to it, as a task's argument."""
        return TaskRef(self.key)

    def in_graph(self) -> Any:
        """What a graph has under its key."""
        return self.value if isinstance(self.value, Future) else Task(self.key, itself, self.value)


@dataclass(frozen=True, eq=False)
class HeldPart:
    """Rows of slabs, and maybe of files besides.

    Attributes
    ----------
    slabs : tuple of SlabRef
    chosen : tuple of Chosen
        Which rows of each of them count.
    rest : Part or None
    """

    slabs: tuple[SlabRef, ...]
    chosen: tuple[Chosen, ...]
    rest: Part | None = None


@dataclass(frozen=True, eq=False)
class Held:
    """What of an index is held in memory.

    Attributes
    ----------
    slabs : mapping of str to tuple of SlabRef
        Of each file that is held, by its name: all of its row groups.
    keys : mapping of str to Table
        Files of the keys of ids, by their names; where there is no cluster.
    """

    slabs: Mapping[str, tuple[SlabRef, ...]] = field(default_factory=dict)
    keys: Mapping[str, pa.Table] = field(default_factory=dict)

    def among(self, rows: Snapshot, groups: np.ndarray) -> tuple[list[SlabRef], np.ndarray]:
        """Tell which slabs some row groups of a snapshot are in, and which of those (g,) are in any."""
        found: list[SlabRef] = []
        file, number = rows.groups.file[groups], rows.groups.group[groups]
        there = np.zeros(len(groups), bool)
        for one in np.unique(file).tolist():
            for slab in self.slabs.get(rows.files[one], ()):
                own = (file == one) & (number >= slab.groups[0]) & (number < slab.groups[1])
                if own.any():
                    found.append(slab)
                    there |= own
        return found, there

    def part(self, rows: Snapshot, groups: np.ndarray) -> Part | HeldPart:
        """Make a part of some row groups of a snapshot, and no others, from memory where they are there."""
        slabs, there = self.among(rows, groups)
        if not slabs:
            return rows.part(groups)
        rest = rows.part(groups[~there]) if not there.all() else None
        return HeldPart(tuple(slabs), tuple(_only(rows, groups, slab) for slab in slabs), rest)


class Beside(NamedTuple):
    """Rows that stayed and were read with those that went, and which row groups they are in."""

    rows: Loaded
    groups: np.ndarray


NOTHING = Held()


def whole_slab(rows: Snapshot, slab: SlabRef) -> Chosen:
    """Tell which rows of a slab are those of a snapshot."""
    return Chosen(_places(rows, slab), rows.named, rows.versions)


def _only(rows: Snapshot, groups: np.ndarray, slab: SlabRef) -> Chosen:
    """Tell the same of some row groups, as the rows' own places."""
    told = rows.groups[groups]
    own = told[told.file == rows.files.index(slab.file)]
    own = own[(own.group >= slab.groups[0]) & (own.group < slab.groups[1])]
    within = np.zeros(slab.rows, bool)
    for start, number in zip((own.start - slab.start).tolist(), own.rows.tolist(), strict=True):
        within[start : start + number] = True
    places = _places(rows, slab)
    if rows.named:
        return Chosen(places[within[places]], True, rows.versions)
    within[places] = False
    return Chosen(np.flatnonzero(within), True, rows.versions)


def _places(rows: Snapshot, slab: SlabRef) -> np.ndarray:
    """Return those places that a snapshot tells of which are in a slab, from its first row on."""
    places = rows.places.get(rows.files.index(slab.file), np.zeros(0, np.int64))
    first, behind = np.searchsorted(places, [slab.start, slab.start + slab.rows])
    return places[first:behind] - slab.start


def load_held(rest: Part | None, chosen: tuple[Chosen, ...], spec: JoinSpec, *slabs: Slab) -> Loaded:
    """Take the rows of slabs that count, and read what lies in files besides."""
    found = rows_taken(chosen, spec, *slabs)
    return joined_rows(found if rest is None else [*found, load(rest, spec)])


def load_moved(spec: JoinSpec, cut: Sequence[int], marked: bool, rest: Part | None,
               chosen: tuple[Chosen, ...], *slabs: Slab) -> Loaded:  # fmt: skip
    """Take rows that came or went, and put them in order: see `moved`."""
    return moved(load_held(rest, chosen, spec, *slabs), cut, spec, marked)


def loaded(part: Part | HeldPart | Loaded, spec: JoinSpec) -> Loaded:
    """Give the rows of a part to this process."""
    if isinstance(part, Part):
        return load(part, spec)
    if not isinstance(part, HeldPart):
        return part
    if not any(isinstance(slab.value, Future) for slab in part.slabs):
        return load_held(part.rest, part.chosen, spec, *(slab.value for slab in part.slabs))
    graph: dict[Any, Any] = {slab.key: slab.in_graph() for slab in part.slabs}
    keys = []
    for slab, chosen in zip(part.slabs, part.chosen, strict=True):  # each where its slab is
        key = f"simjoin_taken-{slab.key}"
        graph[key] = Task(key, load_held, None, (chosen,), spec, slab.ref)
        keys.append(key)
    found: Sequence[Loaded] = gather(graph, keys)
    return joined_rows([*found, *([] if part.rest is None else [load(part.rest, spec)])])
