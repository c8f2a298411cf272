"""Chunks of parcels have the rows that their regions need, and values come back to the
rows' partitions.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import SourceChangedError
from dask_simjoin.metrics.norms import box_gap
from dask_simjoin.planning.spatial_chunks import ClusterChunks
from dask_simjoin.tasks import by_worker
from dask_simjoin.tasks.by_worker import own_positions, rows_of_group, values_by_group
from tests.support.cluster_chunks import parts_of, planned_chunks, sent_chunks
from tests.support.points import frame_of

EPS, GROUPS = 0.01, [[0, 2, 5], [1, 3, 4]]


@pytest.fixture(params=[1, 1 << 19])
def made(request, monkeypatch):
    """Partitions, and the parcels and chunks made of them. One is empty, and one has
    missing values.
    """
    monkeypatch.setattr(by_worker, "BATCH", request.param)
    x = np.random.default_rng(3).uniform(size=(3000, 2))
    x[700:705] = np.nan
    parts = parts_of(frame_of(x), (400, 400, 1100, 1900, 2950))
    spec, plan = planned_chunks(parts, EPS, 4, "60 kB", dropna=True)
    assert isinstance(plan.chunks, ClusterChunks) and len(plan.chunks) > 3
    return x, parts, plan, *sent_chunks(parts, GROUPS, spec, plan)


def test_rows_of_chunks(made):
    """Each row is in one region, and in the halos of all regions within twice the
    distance.
    """
    x, _, plan, _, chunks = made
    regions, near = plan.chunks.regions, EPS * EPS
    homes = np.zeros(len(x), int)
    for c, chunk in enumerate(chunks):
        position, own = chunk["position"], chunk["own"]
        assert (np.diff(position[:own]) > 0).all() and (
            np.diff(position[own:]) > 0
        ).all()
        homes[position[:own]] += 1
        gap = box_gap(2, x, x, regions.lower[c], regions.upper[c])
        halo = np.setdiff1d(np.flatnonzero(gap <= 4 * near), position[:own])
        assert (
            position[own:].tolist() == halo.tolist()
        )  # no row is so close to the limit that rounding counts
        far, shared = position[chunk["far"]], position[chunk["shared"]]
        assert far.tolist() == halo[gap[halo] > near].tolist()
        assert set(halo) - set(far) <= set(shared)
        for other in set(range(len(chunks))) - {c}:
            gap = box_gap(2, x, x, regions.lower[other], regions.upper[other])
            assert set(np.flatnonzero(gap <= near)) & set(position[:own]) <= set(shared)
    assert homes.tolist() == np.isfinite(x[:, 0]).astype(int).tolist()


def test_positions_are_sent_in_four_bytes_if_all_rows_have_such():
    x = np.random.default_rng(3).uniform(size=(3000, 2))
    parts = parts_of(frame_of(x), (400, 400, 1100, 1900, 2950))
    spec, plan = planned_chunks(parts, EPS, 4, "60 kB")
    far = 1 << 32
    moved = replace(plan.chunks, offsets=plan.chunks.offsets + far)
    for chunks, kind in ((plan.chunks, np.uint32), (moved, np.int64)):
        first = int(chunks.offsets[0])
        sent, made = sent_chunks(parts, GROUPS, spec, replace(plan, chunks=chunks))
        for parcels in sent:
            assert {parcel["position"].dtype for parcel in parcels} == {np.dtype(kind)}
        found = [chunk["position"][: chunk["own"]] for chunk in made]
        assert {position.dtype for position in found} == {np.dtype(np.int64)}
        rows = np.sort(np.concatenate(found)) - first
        assert rows.tolist() == list(range(len(x)))


def test_ids_that_are_positions_are_not_sent():
    """Whatever the ids of the rows that another worker sends."""
    x = np.random.default_rng(3).uniform(size=(3000, 2))
    for first, sent_by_other in ((2000, False), (9000, True), (None, True)):
        frame = frame_of(x)
        ids = np.arange(3000) if first is None else pd.RangeIndex(3000)
        parts = parts_of(frame.set_axis(ids), (1000, 2000))
        if first is not None:
            parts[2].index = pd.RangeIndex(first, first + 1000)
        spec, plan = planned_chunks(parts, EPS, 4, "60 kB")
        sent, chunks = sent_chunks(parts, [[0, 1], [2]], spec, plan, with_ids=True)
        assert all(("ids" in parcel) == (first is None) for parcel in sent[0])
        assert all(("ids" in parcel) == sent_by_other for parcel in sent[1])
        want = np.concatenate([part.index for part in parts])
        for chunk in chunks:
            assert chunk["ids"].tolist() == want[chunk["position"]].tolist()
            assert chunk["ids"].dtype == chunk["id_keys"].dtype == np.int64
            order = chunk["order"][: len(chunk["ids"])]
            assert chunk["id_keys"].tolist() == chunk["ids"][order].tolist()


@pytest.mark.parametrize("large", [0, 1 << 40])
def test_values_come_back_to_their_partitions(made, large):
    _, parts, plan, sent, chunks = made
    offsets, meta = (
        plan.chunks.offsets,
        pd.Series([], dtype=np.int64, name="label", index=parts[0].index[:0]),
    )
    split = [
        values_by_group(
            chunk, chunk["position"][: chunk["own"]] * 7 - 1 + large, offsets, GROUPS
        )
        for chunk in chunks
    ]
    assert {some.dtype for part in split for some in part} == {
        np.dtype(np.int64 if large else np.int32)
    }
    found = {}
    for g, numbers in enumerate(GROUPS):
        labels = [parts[n].index for n in numbers]
        rows = rows_of_group(
            numbers,
            meta,
            offsets,
            2,
            labels,
            own_positions(sent[g]),
            *(part[g] for part in split),
        )
        found |= dict(zip(numbers, rows, strict=True))
    found = pd.concat([found[n] for n in range(len(parts))])
    frame = pd.concat(parts).dropna()
    want = pd.Series(frame.index.to_numpy() * 7 - 1 + large, frame.index, name="label")
    pd.testing.assert_series_equal(found, want)


def test_labels_of_other_rows_are_refused(made):
    _, parts, plan, sent, chunks = made
    split = [
        values_by_group(
            chunk, chunk["position"][: chunk["own"]], plan.chunks.offsets, GROUPS
        )
        for chunk in chunks
    ]
    labels = [parts[n].index for n in (0, 3, 5)]
    with pytest.raises(SourceChangedError, match="Partition 2"):
        rows_of_group(
            GROUPS[0],
            parts[0]["c0"].iloc[:0],
            plan.chunks.offsets,
            1,
            labels,
            own_positions(sent[0]),
            *(part[0] for part in split),
        )
