"""Keep lazy values aligned with the rows that they belong to.

Dask may optimize parts of a graph again, for example to find the quantiles of a
`set_index`. It may then merge other partitions of a reader than before. So values are
computed together with their frame, and take over its partitions and labels.

After a shuffle, the order of a partition's rows may differ between runs. Dask may
combine the values from one run with the rows from another run. So values come with
fingerprints of their rows. These fingerprints are used to put the values in the order
of the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar, TypedDict

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.ids import joined
from dask_simjoin.graph.base import (
    FilteredRows,
    LabelledExpr,
    RowValues,
    Steps,
    aliases,
    check_guarded,
    picked,
)
from dask_simjoin.graph.dask_private import (
    Blockwise,
    CumulativeAggregations,
    Expr,
    Partitions,
    PartitionsFiltered,
    Projection,
    Repartition,
    Task,
    TaskRef,
)
from dask_simjoin.graph.lazy_join import DISTANCES, JoinTasks
from dask_simjoin.graph.source import (
    FrozenSource,
    MapPartition,
    may_merge,
    may_move,
    optimise_in_place,
)
from dask_simjoin.metrics.norms import Frame, Ids, Series
from dask_simjoin.planning.plan import Plan
from dask_simjoin.request.spec import JoinSpec, RowSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import (
    PREDECESSOR,
    Groups,
    fingerprints,
    relabelled,
    values_beside,
)
from dask_simjoin.tasks.left_out import Fill


class Fingerprints(PartitionsFiltered, LabelledExpr):
    """The fingerprints of the rows that the values were computed for, in the order of
    the values.
    """

    _label = "simjoin_fingerprints"
    _parameters = ["frozen", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> Any:
        return self.operand("frozen").inner.divisions

    def _layer(self) -> dict[Any, Any]:
        prints = self.operand("frozen").inner
        keys = prints.__dask_keys__()
        return dict(prints.__dask_graph__()) | aliases(
            self._name, [keys[n] for n in self._partitions]
        )


class NextToFrame(RowValues, Blockwise):
    """Base class of values that take the partitions and the labels of their frame.
    Operands: `frame`, `values`.
    """

    @functools.cached_property
    def _meta(self) -> Any:
        return self.operand("values")._meta

    def _divisions(self) -> Any:
        return self.frame.divisions

    def _broadcast_dep(self, dep: Expr) -> bool:
        return False

    @property
    def _projection_columns(self) -> list[Any]:
        return list(self.frame.columns)


class Beside(NextToFrame):
    """Give values the partitions and the labels of their frame. `fill`: see
    `relabelled`.
    """

    _parameters = ["frame", "values", "spec", "fill"]
    _defaults = {"fill": None}
    operation = staticmethod(relabelled)

    def _lower(self) -> Expr | None:
        values, partitions = self.operand("values"), self.frame.npartitions
        if values.npartitions == partitions:
            return None
        return Beside(
            self.frame,
            Repartition(values, new_partitions=partitions),
            self.operand("spec"),
            self.operand("fill"),
        )

    @property
    def of_filtered(self) -> bool:
        found = self.operand("values").walk()
        return any(isinstance(node, RowValues) and node.of_filtered for node in found)

    def simplify_once(self, dependents: Any, simplified: Any) -> Expr:
        """If nothing else reads the frame, simplify to the values alone, so that the
        frame is not read for its labels. This needs a value for each row.
        """
        if self.operand("fill") is not None:
            found: Expr = super().simplify_once(dependents, simplified)
            return found
        below = {node._name for node in self.frame.walk()}
        readers = (reader() for name in below for reader in dependents[name])
        if all(
            reader is None or reader._name in below or isinstance(reader, Beside)
            for reader in readers
        ):
            values: Expr = self.operand("values").simplify_once(dependents, simplified)
            return values
        simple: Expr = super().simplify_once(dependents, simplified)
        return simple


class Reconciled(NextToFrame):
    """Put values in the order of their frame's rows, which may differ in each run.

    `then`: fingerprints of the rows that the values were computed for, in the order of
    the values. `fill`: see `relabelled`.
    """

    _parameters = ["frame", "values", "then", "groups", "spec", "fill"]
    _defaults = {"fill": None}
    operation = staticmethod(values_beside)

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        numbered = PREDECESSOR in getattr(self._meta, "columns", ())
        if (
            not numbered
            or not isinstance(parent, Projection)
            or PREDECESSOR in parent.columns
        ):
            return None
        # the dropped column has row numbers, which would be wrong in another order; the
        # other values may be reordered
        chosen = Projection(self.operand("values"), parent.operand("columns"))
        return Reconciled(self.frame, chosen, *self.operands[2:])


Pieces = tuple[tuple[tuple[int, int, int], ...], ...]


class Aligned(LabelledExpr, RowValues, CumulativeAggregations):
    """Lazy values, one for each row of `frame`, in the partitions of `frame`. The join
    is not planned yet.

    Like a cumulative sum, each value depends on all rows. So this class derives from
    Dask's class for cumulative sums: then Dask knows that frame and values are aligned,
    and does not shuffle.

    Planning uses the frame as Dask has optimized it. Dask leaves out files that a
    filter excludes, and it merges partitions if few columns are read. So the values
    read all columns of `frame`: then both have the same partitions.

    `source`: the frame before Dask optimized it. `chosen`: numbers of the partitions to
    compute; None: all.
    """

    _defaults = {"chosen": None}
    # values of the rows that `dropna` leaves out
    _fill: ClassVar[Fill] = 0

    def _values(self) -> Expr:
        raise NotImplementedError

    def _divisions(self) -> Any:
        return self.frame.divisions

    @functools.cached_property
    def _source(self) -> FrozenSource:
        """The source that the join is planned for: the frame as Dask has optimized it."""
        source: FrozenSource = self.operand("source")
        return source.in_step(
            self.frame if self.operand("chosen") is None else source.given
        )

    @property
    def _spec(self) -> RowSpec | None:
        return self.operand("spec") if "spec" in self._parameters else None

    @property
    def _needed_fill(self) -> Fill | None:
        """The values of the rows that `dropna` leaves out; None if there are no such
        rows.
        """
        spec = self._spec
        if not isinstance(spec, JoinSpec) or not spec.coordinates.dropna:
            return None
        plan: Plan = self.plan
        return self._fill if plan.tables.left_out[0].rows else None

    @property
    def _groups(self) -> Groups:
        """The columns that the values depend on, in tuples of columns that are read
        together.
        """
        spec = self._spec
        if spec is None:
            return (tuple(self.frame.columns),)
        read = spec.read_together if isinstance(spec, JoinSpec) else (spec.on,)
        return read if spec.radius is None else (*read, (spec.radius,))

    @property
    def of_filtered(self) -> bool:
        source: FrozenSource = self.operand("source")
        return source.is_filtered

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        if not isinstance(parent, Partitions):
            return None
        numbers, chosen = list(parent.partitions), self.operand("chosen")
        if chosen is not None:
            chosen = [chosen[n] for n in numbers]
        others = self.operands[1:-1]
        return type(self)(
            Partitions(self.frame, numbers),
            *others,
            numbers if chosen is None else chosen,
        )

    def _substitute(self, old: Any, new: Any, _seen: Any) -> Expr:
        # Dask calls this to move a filter below the frame; refuse, because the rows
        # there have no values
        if isinstance(old, Expr) and any(new is below for below in old.dependencies()):
            return self
        made: Expr = super()._substitute(old, new, _seen)
        return made

    @property
    def _projection_columns(self) -> list[Any]:
        # read all columns, because with fewer columns Dask would merge other partitions
        # than in `frame`
        return list(self.frame.columns)

    def _lower(self) -> Expr:
        check_guarded()
        values, fill = self._values(), self._needed_fill
        chosen = self.operand("chosen")
        same = self.frame.npartitions == values.npartitions
        if same and may_move(self.frame):
            source, groups, spec = self._source, self._groups, self._spec
            prints = MapPartition(
                source.inner, "simjoin_fingerprint", fingerprints, (groups, spec)
            )
            then = Fingerprints(FrozenSource(optimise_in_place(prints)), chosen)
            return Reconciled(self.frame, values, then, groups, spec, fill)
        if self.of_filtered:
            values = FilteredRows(values)
        if chosen is None and not may_merge(self.frame) and fill is None:
            return values
        return Beside(self.frame, values, self._spec, fill)


Held = Sequence[tuple[int, int, int]]
"""For one partition: where its rows are in chunks, as spans of pieces (chunk, first
piece, last piece + 1).
"""


def pieces_by_partition(
    pieces: Pieces, chosen: list[int]
) -> dict[int, list[tuple[int, int, int]]]:
    """Return `Held` for each chosen partition."""
    found: dict[int, list[tuple[int, int, int]]] = {n: [] for n in chosen}
    for c, chunk in enumerate(pieces):
        for k, (n, _, _) in enumerate(chunk):
            if n in found:
                found[n].append((c, k, k + 1))
    return found


def found_task(
    names: str, found: str, held: Held, meta: Frame | Series
) -> tuple[Any, ...]:
    """Return the function and the arguments of a task that makes one partition of
    values.

    `names`: name of the expression that makes the `RowNames` of each chunk. `found`:
    name of the expression that makes the values of each chunk.
    """
    refs = [TaskRef((each, c)) for each in (names, found) for c, _, _ in held]
    return aligned, meta, [(start, stop) for _, start, stop in held], *refs


def add_counts(
    layer: dict[Any, Any],
    token: str,
    chunks: Expr,
    plan: Plan,
    spec: JoinSpec,
    wanted: set[int],
    enough: int | None = None,
    tasks: JoinTasks = DISTANCES,
) -> dict[int, Any]:
    """For some chunks, add tasks that count the neighbors of each row. Return the key
    of each chunk's counts.

    `wanted`: numbers of these chunks. `enough`: once a count reaches this number, it
    need not be exact.
    """
    steps = Steps("simjoin_count", token)
    parts: dict[int, list[Task]] = {c: [] for c in wanted}
    for b, i, j, part in plan.work.pieces():
        if i not in parts and j not in parts:
            continue
        block_pair = tasks.block_pair(chunks, i, j, spec, plan.layout, part)
        piece = steps.add("block", (b, part[0]), tasks.count, block_pair, enough)
        for c, side in ((i, 0), (j, 1))[: 1 + (i != j)]:
            if c in parts:
                parts[c].append(picked(piece, side))
    totals = {
        c: steps.merged("sum", added, own, place=(c,)) for c, own in parts.items()
    }
    layer.update(steps.layer)
    return {c: total.key for c, total in totals.items()}


def added(*counts: Any) -> Any:
    """Return the sum of counts."""
    return sum(counts)


def add_partitions(
    layer: dict[Any, Any],
    name: str,
    chunks: Expr,
    pieces: Pieces,
    values: dict[int, Any],
    chosen: list[int],
    meta: Frame | Series,
) -> None:
    """Add tasks that make the chosen partitions of the result from the values of the
    chunks.
    """
    held, names = (
        pieces_by_partition(pieces, chosen),
        f"simjoin_row_names-{name.rpartition('-')[2]}",
    )
    for place, n in enumerate(chosen):
        key, found = (name, place), held[n]
        for c, _, _ in found:
            layer[(names, c)] = Task((names, c), row_names, chunks.chunk_ref(c))
        refs = [TaskRef((names, c)) for c, _, _ in found] + [
            TaskRef(values[c]) for c, _, _ in found
        ]
        layer[key] = Task(
            key, aligned, meta, [(start, stop) for _, start, stop in found], *refs
        )


class RowNames(TypedDict):
    """The fields of a `Chunk` that identify its rows."""

    ids: Ids
    ends: np.ndarray
    example: Frame


def row_names(chunk: Chunk) -> RowNames:
    """Return only the fields that identify the rows: other workers need these, and they
    are smaller than the chunk.
    """
    return RowNames(ids=chunk["ids"], ends=chunk["ends"], example=chunk["example"])


def aligned(
    meta: Frame | Series, which: list[tuple[int, int]], *names_and_values: Any
) -> Frame | Series:
    """Concatenate the values of one partition, which are taken from several chunks.

    `which`: for each chunk, the pieces to take (first, last + 1). `names_and_values`:
    first the `RowNames` of all these chunks, then their values.
    """
    half = len(names_and_values) // 2
    chunks: tuple[RowNames, ...] = names_and_values[:half]
    if not chunks:
        return meta
    frames = frames_for(chunks[0]["example"])
    values, ids, xp = [], [], frames.xp
    none = xp.zeros((0, *meta.shape[1:]), np.int64)
    for (first, last), chunk, total in zip(
        which, chunks, names_and_values[half:], strict=True
    ):
        start = int(chunk["ends"][first - 1]) if first else 0
        stop = int(chunk["ends"][last - 1])
        ids.append(chunk["ids"][start:stop])
        # the chunk is in no block pair, so one number stands for all its rows
        if isinstance(total, int):
            total = xp.full((int(chunk["ends"][-1]), *meta.shape[1:]), total, np.int64)
        values.append(xp.asarray(total[start:stop]) if stop > start else none)
    return frames.rows(xp.concatenate(values), joined(ids), meta)
