"""The plan of a join: which chunks meet, and how all of them are indexed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.tokenize import normalize_token

from dask_simjoin.errors import CoordinateError, PartitionSizeError
from dask_simjoin.index.layout import Layout, make_layout
from dask_simjoin.metrics import METRICS
from dask_simjoin.partition import Moments, PartitionSummary, box_digest, merge_moments
from dask_simjoin.spec import JoinSpec

MOST_ROWS = 2**31 - 2**10
"""Rows of a chunk: positions are int32, and arrays are padded."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What was decided before any block pair is joined.

    Attributes
    ----------
    layout : Layout
        How chunks are indexed.
    sources : tuple of (int, str)
        Of each partition of the source: its rows, and a digest of its box.
    blocks : array (block pairs, 2), int32
        Chunks i <= j whose boxes are within eps of each other.
    """

    layout: Layout
    sources: tuple[tuple[int, str], ...]
    blocks: np.ndarray

    def __len__(self) -> int:
        return len(self.blocks)

    def expected(self, block: int) -> tuple[Any, Any]:
        """What both partitions of one block pair must still be like."""
        i, j = self.blocks[block].tolist()
        return self.sources[i], self.sources[j]

    def __repr__(self) -> str:
        chunks, rows = len(self.sources), sum(rows for rows, _ in self.sources)
        return f"<{self.layout.method}: {rows:,} rows, {chunks} chunks, {len(self):,} block pairs>"

    def __dask_tokenize__(self) -> Any:
        content = (repr(self.layout), self.sources, self.blocks)
        return normalize_token((type(self).__qualname__, *content))


def make_plan(summaries: list[PartitionSummary], spec: JoinSpec) -> Plan:
    """Plan a join of partitions with these summaries; refuses coordinates that are no numbers."""
    check_coordinates(summaries, spec)
    check_sizes(summaries)
    moments = [summary.moments for summary in summaries]
    every = merge_moments(moments)
    if every.rows:
        bounds = every.lower, every.upper, every.mean, every.variance
    else:
        bounds = (np.zeros(len(spec.on)),) * 4
    layout = make_layout(spec.method, *bounds, spec.threshold)
    sources = tuple((s.source_rows, box_digest(s.moments.lower, s.moments.upper)) for s in summaries)
    return Plan(layout, sources, _near_blocks(moments, spec))


def _near_blocks(moments: list[Moments], spec: JoinSpec) -> np.ndarray:
    """Pairs i <= j of the partitions that have points and whose boxes are within eps."""
    filled = np.array([n for n, m in enumerate(moments) if m.rows], np.int32)
    blocks = [np.zeros((0, 2), np.int32)]
    if len(filled):
        lower = np.stack([moments[n].lower for n in filled])
        upper = np.stack([moments[n].upper for n in filled])
        gap_to = METRICS[spec.metric].box_gap
    for i, first in enumerate(filled):
        near = filled[i:][gap_to(lower[i], upper[i], lower[i:], upper[i:]) <= spec.threshold]
        blocks.append(np.stack([np.full_like(near, first), near], axis=1))
    return np.concatenate(blocks)


def check_sizes(summaries: list[PartitionSummary]) -> None:
    """Refuse partitions whose rows int32 cannot number."""
    for number, summary in enumerate(summaries):
        if summary.moments.rows > MOST_ROWS:
            raise PartitionSizeError(
                f"Partition {number} has {summary.moments.rows:,} rows, and at most {MOST_ROWS:,} can be "
                "indexed at once; split it, for example with ddf.repartition(partition_size='256MB')."
            )


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
