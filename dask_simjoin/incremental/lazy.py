"""Lazy frames of pairs of rows of an index."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dask_simjoin.expressions.dask_private import new_collection
from dask_simjoin.expressions.examples import pairs_example
from dask_simjoin.incremental.blocks import Blocks
from dask_simjoin.incremental.graph import Pairs, Rows
from dask_simjoin.incremental.rows import read_part
from dask_simjoin.incremental.types import SEQ, Snapshot
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.spec import JoinSpec


def example_of_rows(rows: Snapshot) -> Frame:
    """Return an empty frame like those of its rows."""
    return read_part(rows.part(np.zeros(0, np.int64)))


def spec_of(rows: Snapshot, eps: float | None, distance: bool, numbered: bool = False) -> JoinSpec:
    """Make what a join of rows of an index is asked for; `numbered`: it names them by their numbers alone."""
    spec = replace(rows.options.spec(rows.library, eps), return_distance=distance)
    return replace(spec, id=SEQ, keep=(), names=()) if numbered else spec


def example_of_pairs(rows: Snapshot, spec: JoinSpec) -> Frame:
    """Return an empty frame like those of its pairs."""
    example = example_of_rows(rows)
    return pairs_example(example, example, spec)


def lazy_pairs(blocks: Blocks, rows: Snapshot) -> Frame:
    """Make a lazy frame of the pairs of some blocks; `rows`: any of the index."""
    return new_collection(Pairs(Rows(blocks), blocks, example_of_pairs(rows, blocks.spec)))
