"""The chunks of lazy joins: where their rows come from, and their copies."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.graph.chunks import (
    BothChunks,
    GatheredChunks,
    IndexedPartitions,
    ReadChunks,
    Unpacked,
    WholePartitions,
)
from dask_simjoin.graph.row_cache import ROWS
from dask_simjoin.graph.source import FrozenSource


def frame(rows=400, partitions=4, big=False):
    x = np.random.default_rng(7).random((rows, 2))
    plain = pd.DataFrame(x, columns=["x", "y"])
    lazy = dd.from_pandas(plain, npartitions=partitions, sort=False)
    # the result of a function is not a frame that tasks read by themselves
    return lazy.map_partitions(lambda part: part) if big else lazy


def chunks_of(pairs):
    """Return the expression with the chunks of a lazy join."""
    return pairs.expr._chunks()


@pytest.mark.parametrize(
    ("lazy", "options", "kind"),
    [
        (frame(), {"partitioning": "entity"}, WholePartitions),
        (frame(big=True), {"partitioning": "entity"}, ReadChunks),
        (
            frame(partitions=2, big=True),
            {"partitioning": "entity", "blocksize": "2 kB"},
            GatheredChunks,
        ),
        (frame(), {"partitioning": "spatial", "blocksize": "2 kB"}, Unpacked),
    ],
)
def test_where_rows_of_chunks_come_from(lazy, options, kind):
    pairs = lazy.simjoin.self_join(0.05, **options)
    chunks = chunks_of(pairs)
    assert type(chunks) is kind
    layer = chunks._layer()
    keys = {(chunks._name, c) for c in range(chunks.npartitions)}
    assert keys <= layer.keys()
    assert {chunks.chunk_ref(c).key for c in range(chunks.npartitions)} == keys


def test_rows_that_are_not_kept_are_indexed_by_partition(monkeypatch):
    monkeypatch.setattr(ROWS, "most", 0)
    pairs = frame(big=True).simjoin.self_join(
        0.04, partitioning="entity", blocksize="4 kB"
    )
    chunks = chunks_of(pairs)
    assert type(chunks) is IndexedPartitions
    assert {(chunks._name, c) for c in range(4)} <= chunks._layer().keys()


def test_chunks_of_two_tables_are_numbered_one_after_the_other():
    pairs = frame().simjoin.join(frame(300, 3), 0.05, partitioning="entity")
    both = chunks_of(pairs)
    assert type(both) is BothChunks
    first = both.left.npartitions
    refs = [both.chunk_ref(c).key for c in range(both.npartitions)]
    assert refs[:first] == [both.left.key(c) for c in range(first)]
    assert refs[first:] == [both.right.key(c) for c in range(both.right.npartitions)]


def test_parts_of_the_work_use_copies_in_turn():
    source = FrozenSource(frame(big=True).expr)
    pieces = [[(0, 0, 100)], [(1, 0, 100)]]
    chunks = GatheredChunks(source, pieces, None, 1, copies=3)
    own = [chunks.chunk_ref(1, part) for part in range(4)]
    first = [ref.args[0].args[0].key for ref in own]
    assert len(set(first[:3])) == 3 and first[3] == first[0] == (chunks._name, 1)
    # each part waits for all copies
    layer = chunks._layer()
    ends = [key for key in layer if key[0].startswith("simjoin_copied-")]
    assert len(ends) == 6 and set(first) <= layer.keys()
