"""Look at rows that are to come into an index, in one pass: they are written in another, by `writing`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.expressions.dask_private import Expr
from dask_simjoin.expressions.planner import check_ids, passed_over
from dask_simjoin.expressions.source import FrozenSource, MapPartition, Shared, freeze, gather, map_frozen
from dask_simjoin.expressions.source import optimise_in_place as optimised
from dask_simjoin.incremental.keys import Finder
from dask_simjoin.incremental.schema import (
    arrow_of,
    check_types,
    ids_as_read,
    schema_of,
    schema_without_rows,
    with_ids,
)
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.budget import make_budget
from dask_simjoin.planning.resources import resources
from dask_simjoin.planning.statistics.partition import points
from dask_simjoin.planning.table import TableSummary, summarise_table
from dask_simjoin.tasks.chunks import Fingerprint, check_source

FILE_ROWS = 1 << 20
"""Rows of a file, at most about: frames of more are cut into regions first."""


@dataclass(frozen=True, eq=False)
class Incoming:
    """Rows of a lazy frame that were looked at, and found to be fit for an index.

    Attributes
    ----------
    source : FrozenSource
    table : TableSummary
    id : str or None
    columns : list of str
        Of row files.
    file_rows : int
        Rows of a file, at most about.
    """

    source: FrozenSource
    table: TableSummary
    id: str | None
    columns: list[str]
    file_rows: int

    @property
    def each(self) -> list[Fingerprint]:
        """What the tasks that read partitions again know of them."""
        return list(enumerate(self.table.sources))


@dataclass(frozen=True, eq=False)
class Asked:
    """What rows are asked for: as `Incoming` has it."""

    spec: JoinSpec
    id: str | None
    columns: list[str]


def look_at(frame: Frame, spec: JoinSpec, id: str | None, columns: list[str]) -> Incoming:
    """Pass over a lazy frame; refuse coordinates that are none, and ids that repeat."""
    source = freeze(frame, spec.columns)
    known = passed_over(source, spec, True)
    table = summarise_table(known.summaries, spec)
    chunk = make_budget(spec.blocksize, spec.settings, resources(spec.library)).chunk
    check_ids(source, spec, known, chunk)
    return Incoming(source, table, id, columns, max(1, min(FILE_ROWS, int(chunk // table.row_bytes))))


def schema_for(incoming: Incoming) -> pa.Schema:
    """Tell the schema of row files of these rows, by the first of them; of none, by the example."""
    rows = source_rows(incoming)
    filled = [n for n, some in enumerate(rows) if some]
    if not filled:
        example = incoming.source.inner._meta.iloc[:0]
        return schema_without_rows(with_ids(example, incoming.id, incoming.columns))
    asked = map_frozen("simjoin_schema", _schema, incoming.source, incoming.id, incoming.columns)
    return _gathered(asked, filled[:1])[0]


def _gathered(expr: Expr, which: Iterable[int] | None = None) -> list[Any]:
    """Compute what is asked of partitions, of all or of some."""
    keys = expr.__dask_keys__()
    wanted = keys if which is None else [keys[n] for n in which]
    return gather(dict(expr.__dask_graph__()), list(wanted))


def _schema(frame: Frame, id: str | None, columns: list[str]) -> pa.Schema:
    return schema_of(with_ids(frame, id, columns))


def known_rows(incoming: Incoming, finder: Finder, schema: pa.Schema) -> pd.DataFrame:
    """Find those of the rows whose ids the index has: `id`, and where they are, as `Finder.find` says.

    Refuses columns of other types than the index has.
    """
    asked = Asked(incoming.table.spec, incoming.id, incoming.columns)
    shared = Shared("simjoin_finder", finder)
    each, source = incoming.each, incoming.source.inner
    expr = MapPartition(source, "simjoin_known", _known_rows, (asked, schema), each, None, shared)
    found = _gathered(optimised(expr))
    some = [one for one in found if len(one)] or found[:1]  # ids of no rows may be of any dtype
    return pd.concat(some, ignore_index=True)


def _known_rows(frame: Frame, known: Fingerprint, finder: Finder, asked: Asked,
                schema: pa.Schema) -> pd.DataFrame:  # fmt: skip
    spec = asked.spec
    where = f"of partition {known[0]}"
    if len(frame):  # else its dtypes say nothing: pandas makes int64 labels of an empty column of int32
        first = with_ids(frame.iloc[:1], asked.id, asked.columns)
        check_types(arrow_of(first).schema, schema, where)
    ids = host_ids(_taking_part(frame, known, spec), spec)
    found = finder.find(ids_as_read(ids, schema, finder.row_id, where))
    found["id"] = ids.take(found.pop("row").to_numpy()).to_numpy()
    return found


def coordinates_of(incoming: Incoming) -> np.ndarray:
    """The coordinates (n, columns) of all of the rows, as given, on the host."""
    spec, each = incoming.table.spec, incoming.each
    return np.concatenate(
        _gathered(map_frozen("simjoin_coordinates", _coordinates, incoming.source, spec, each=each))
    )


def _coordinates(frame: Frame, known: Fingerprint, spec: JoinSpec) -> np.ndarray:
    rows = _taking_part(frame, known, spec)
    return to_host(frames_for(rows).coordinates(rows, spec.on))


def host_ids(frame: Frame, spec: JoinSpec) -> pd.Index:
    """The ids of rows, on the host."""
    ids = row_ids(frame, spec.id, spec.id_dtype)
    return ids.to_pandas() if hasattr(ids, "to_pandas") else ids


def _taking_part(frame: Frame, known: Fingerprint, spec: JoinSpec) -> Frame:
    """The rows that `dropna` leaves; refuses a partition that is not like it was."""
    check_source(known[0], len(frame), known[1][0])
    if not spec.dropna:
        return frame
    kept = points(frame, spec)[1]
    return frame if kept is None else frame[kept]


def source_rows(incoming: Incoming) -> list[int]:
    """How many rows each partition has, with those that `dropna` leaves out."""
    return [summary.source_rows for summary in incoming.table.summaries]
