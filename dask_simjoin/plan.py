"""The plan of a join: which chunks meet, and how all of them are indexed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.tokenize import normalize_token

from dask_simjoin.errors import CoordinateError
from dask_simjoin.index.layout import Layout, make_layout
from dask_simjoin.metrics import METRICS
from dask_simjoin.partition import PartitionSummary, merge_moments
from dask_simjoin.spec import JoinSpec


@dataclass(frozen=True, eq=False)
class Plan:
    """What was decided before any block pair is joined.

    Attributes
    ----------
    layout : Layout
        How chunks are indexed.
    source_rows : tuple of int
        Rows of each partition of the source.
    blocks : array (block pairs, 2), int32
        Chunks i <= j whose boxes are within eps of each other.
    """

    layout: Layout
    source_rows: tuple[int, ...]
    blocks: np.ndarray

    def __len__(self) -> int:
        return len(self.blocks)

    def rows_of(self, block: int) -> tuple[int, int]:
        """How many rows the partitions of one block pair must have."""
        i, j = self.blocks[block].tolist()
        return self.source_rows[i], self.source_rows[j]

    def __repr__(self) -> str:
        chunks, rows = len(self.source_rows), sum(self.source_rows)
        return f"<{self.layout.method}: {rows:,} rows, {chunks} chunks, {len(self):,} block pairs>"

    def __dask_tokenize__(self) -> Any:
        content = (repr(self.layout), self.source_rows, self.blocks)
        return normalize_token((type(self).__qualname__, *content))


def make_plan(summaries: list[PartitionSummary], spec: JoinSpec) -> Plan:
    """Plan a join of partitions with these summaries; refuses coordinates that are no numbers."""
    check_coordinates(summaries, spec)
    moments = [summary.moments for summary in summaries]
    every = merge_moments(moments)
    if every.rows:
        bounds = every.lower, every.upper, every.mean, every.variance
    else:
        bounds = (np.zeros(len(spec.on)),) * 4
    layout = make_layout(spec.method, *bounds, spec.threshold)
    filled = np.array([n for n, m in enumerate(moments) if m.rows], np.int64)
    if not len(filled):
        blocks = np.zeros((0, 2), np.int32)
    else:
        lower = np.stack([moments[n].lower for n in filled])
        upper = np.stack([moments[n].upper for n in filled])
        first, second = np.triu_indices(len(filled))
        gap = METRICS[spec.metric].box_gap(lower[first], upper[first], lower[second], upper[second])
        near = gap <= spec.threshold
        blocks = np.stack([filled[first[near]], filled[second[near]]], axis=1).astype(np.int32)
    return Plan(layout, tuple(summary.source_rows for summary in summaries), blocks)


def check_coordinates(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    """Refuse NaN, infinite and missing values, and integers that float64 cannot hold."""
    problems = []
    for name in spec.on:
        found = [(n, s.bad[name]) for n, s in enumerate(summaries) if name in s.bad]
        if found:
            missing, infinite = (sum(bad[k] for _, bad in found) for k in (0, 1))
            kinds = [f"{missing} missing or NaN"] if missing else []
            kinds += [f"{infinite} infinite"] if infinite else []
            problems.append(f"{name!r} has {' and '.join(kinds)} (first in partition {found[0][0]})")
    if problems:
        raise CoordinateError(
            f"Coordinates must be finite numbers: column {'; column '.join(problems)}. "
            "Use dropna=True to leave those rows out, or fill them first."
        )
    for name in spec.on:
        for number, summary in enumerate(summaries):
            if name in summary.inexact:
                raise CoordinateError(
                    f"Column {name!r} holds the integer {summary.inexact[name]} (partition "
                    f"{number}), beyond 2**53, where float64 does not hold every integer. Subtract an "
                    "offset first, or convert it with .astype('float64') if rounding is fine."
                )
