"""Rows reach the same chunks, in the same order, as parcels and as frames that Dask
shuffles.
"""

import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401
from dask_simjoin.graph.chunks import Unpacked
from dask_simjoin.graph.shuffle import cut_rows
from dask_simjoin.planning.outputs import PAIRS
from dask_simjoin.planning.partition import RIGHT, summarise
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.request.requests import JoinRequest, SelfJoinRequest
from dask_simjoin.tasks.chunks import as_planned
from dask_simjoin.tasks.shuffle import CELL, cell_chunk, pack, send, send_piece, unpack
from tests.support.points import frame_of
from tests.support.profiles import pairwise


def frames(seed, sizes, text, kind):
    random = np.random.default_rng(seed)
    made = []
    for number, rows in enumerate(sizes):
        frame = frame_of(random.normal(size=(rows, 2)).astype(kind)[:, :2])
        frame["when"] = pd.to_datetime("2020-01-01") + pd.to_timedelta(
            random.integers(0, 99, rows), "D"
        )
        frame["far"] = random.uniform(0, 0.3, rows)
        frame.index = (
            [f"{number}-{k}" for k in range(rows)]
            if text
            else random.permutation(rows) + 1000 * number
        )
        made.append(frame)
    return made


def test_partitions_are_cut_into_pieces_of_about_equally_many_rows():
    assert cut_rows([10, 0, 3], 4) == (
        (0, 0, 3),
        (0, 3, 6),
        (0, 6, 10),
        (1, 0, 0),
        (2, 0, 3),
    )
    assert cut_rows([10, 3], 10) == ((0, 0, 10), (1, 0, 3))


def same_side(one, other):
    assert one.keys() == other.keys()
    for name in one:
        a, b = one[name], other[name]
        if name in ("kept", "example"):
            pd.testing.assert_frame_equal(a, b)
        elif isinstance(a, pd.Index):
            assert a.tolist() == b.tolist()
        elif name != "halo":
            np.testing.assert_array_equal(a, b)


def moved(parts, own, plan, number, first=0):
    """The chunks of one table by both ways, and in how many of them there is a halo."""
    chunks, halos = plan.chunks.sides[number], 0
    spec = own.with_dims(plan.tables.dims)
    known = list(enumerate(plan.tables.sources[number]))
    parcels = [
        pack(part, some, chunks, spec, True)
        for part, some in zip(parts, known, strict=True)
    ]
    sent = [
        send(part, some, chunks, spec, True)
        for part, some in zip(parts, known, strict=True)
    ]
    shuffled = pd.concat(sent).sample(frac=1, random_state=0)
    assert sum(len(parcel["position"]) for parcel in parcels) == len(shuffled)
    for part, some, whole in zip(parts, known, sent, strict=True):
        assert as_planned(part, some, spec) is part
        own = [(some[0], start, stop) for _, start, stop in cut_rows([len(part)], 25)]
        pieces = [send_piece(part, piece, chunks, spec, True) for piece in own]
        assert max(map(len, (part.iloc[start:stop] for _, start, stop in own))) <= 25
        order = [CELL, "position"]
        pd.testing.assert_frame_equal(
            pd.concat(pieces).sort_values(order).reset_index(drop=True),
            whole.sort_values(order).reset_index(drop=True),
        )
    for c in range(len(chunks)):
        rows = shuffled[shuffled[CELL] == c].reset_index(drop=True)
        by_frame = cell_chunk(rows, parts[0].iloc[:0], spec, plan.layout, True)
        by_parcel = unpack(c, parts[0].iloc[:0], spec, plan.layout, *parcels)
        same_side(by_parcel, by_frame)
        same_side(by_parcel["halo"], by_frame["halo"])
        assert (np.diff(by_parcel["position"]) > 0).all()
        halos += len(by_parcel["halo"]["ids"]) > 0
    return halos


@pairwise(
    kind=[np.float64, np.float32],
    text=[False, True],
    dropna=[False, True],
    blocksize=["2 kB", "600 B"],
)
def test_parcels_are_what_frames_are(kind, text, dropna, blocksize):
    parts = frames(1, [40, 0, 130, 1, 60], text, kind)
    if dropna:
        parts[2].iloc[3, 0] = np.nan
    asked = SelfJoinRequest(
        eps=0.2,
        on=["c0", "c1"],
        keep="when",
        dropna=dropna,
        partitioning="spatial",
        blocksize=blocksize,
    )
    spec = asked.spec(parts[0].iloc[:0])
    plan = make_plan(
        join_statistics(
            [[summarise(p, n, spec, True, 5) for n, p in enumerate(parts)]], spec
        ),
        PAIRS,
    )
    assert len(plan.chunks) > 3
    assert moved(parts, spec, plan, 0) > 1


def test_parcels_of_two_tables_with_radii():
    parts, others = frames(1, [80, 70], False, float), frames(2, [50, 90], True, float)
    asked = JoinRequest(
        other=others[0].iloc[:0],
        eps="far",
        on=["c0", "c1"],
        partitioning="spatial",
        blocksize="2 kB",
    )
    spec = asked.spec(parts[0].iloc[:0], others[0].iloc[:0])
    tables = [
        [summarise(part, first + n, own, True, 2) for n, part in enumerate(some)]
        for first, own, some in ((0, spec, parts), (RIGHT, spec.other, others))
    ]
    plan = make_plan(join_statistics(tables, spec), PAIRS)
    assert plan.chunks.sides[1].everywhere
    assert moved(parts, spec, plan, 0) == moved(others, spec.other, plan, 1) == 0


def test_nothing_is_shuffled_in_memory_that_tasks_share(monkeypatch):
    whole = pd.concat(frames(3, [300], False, float))
    lazy = dd.from_pandas(whole, npartitions=4, sort=False)
    options = {"on": ["c0", "c1"], "partitioning": "spatial", "blocksize": "2 kB"}

    def inside(pairs):
        found = list(pairs.optimize(fuse=False).expr.walk())
        return any(isinstance(node, Unpacked) for node in found)

    pairs = lazy.simjoin.self_join(0.1, **options)
    assert inside(pairs)
    want = whole.simjoin.self_join(0.1, on=["c0", "c1"])
    monkeypatch.setattr("dask_simjoin.graph.chunks.BATCH", 3)
    shuffled = lazy.simjoin.self_join(0.1 + 1e-12, **options)
    assert not inside(shuffled)
    for some in (pairs, shuffled):
        found = some.compute(scheduler="sync")
        assert len(found) == len(want) > 100
        assert set(map(tuple, found.values.tolist())) == set(
            map(tuple, want.values.tolist())
        )
