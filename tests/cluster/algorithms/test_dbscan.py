"""Labels of DBSCAN, equal to scikit-learn's, and connected components."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster.algorithms import edges
from dask_simjoin.cluster.algorithms.dbscan import (
    border_labels,
    labels_by_place,
    labels_of_rows,
)
from dask_simjoin.cluster.algorithms.edges import (
    components_by_place,
    cores_by_place,
    counts_by_place,
)
from dask_simjoin.engine import process
from dask_simjoin.engine.cpu import tiles
from dask_simjoin.errors import OptionError
from dask_simjoin.tasks.chunks import make_chunk
from dask_simjoin.tasks.matches import BlockPair
from tests.support.density import SETS, labels_of_neighbours
from tests.support.frames import planned, split
from tests.support.oracle import squared_distances, totals
from tests.support.points import cases, frame_of
from tests.support.profiles import chosen, examples, in_turns

sklearn_cluster = pytest.importorskip("sklearn.cluster")
datasets = pytest.importorskip("sklearn.datasets")


def labels_of(x, eps, min_samples):
    """What scikit-learn says."""
    if not len(x):
        return []
    tool = sklearn_cluster.DBSCAN(eps=eps, min_samples=min_samples, algorithm="kd_tree")
    return tool.fit(x.astype(np.float64)).labels_.tolist()


def by_definition(x, eps, min_samples):
    """The same by the definition of this package, for numbers that scikit-learn
    computes otherwise.
    """
    return labels_of_neighbours(squared_distances(x, x) <= eps * eps, min_samples)


@settings(max_examples=examples(150))
@given(
    cases(max_dims=9, max_points=60),
    st.integers(1, 8),
    st.sampled_from([4, 20, 1000]),
    st.sampled_from(["entity", "spatial", "auto"]),
)
def test_any_points(case, min_samples, rows, partitioning):
    frame = frame_of(case.x)
    want = by_definition(case.x, case.eps, min_samples)
    assert frame.simjoin.dbscan(case.eps, min_samples).tolist() == want
    blocksize = rows * (8 * case.x.shape[1] + 48)
    how = {"partitioning": partitioning, "blocksize": blocksize}
    labels = split(frame, case.cuts).simjoin.dbscan(case.eps, min_samples, **how)
    with dask.config.set(scheduler="sync"):
        assert labels.compute().tolist() == want


@settings(max_examples=examples(100))
@given(cases(max_dims=9, max_points=150), st.integers(1, 8), st.integers(1, 5))
def test_parts_of_one_chunk_give_its_labels(case, min_samples, parts):
    """Whatever part of the work finds a neighbour, and however few rows are core rows."""
    spec, layout, source = planned(frame_of(case.x), case.eps)
    chunk = make_chunk(frame_of(case.x), (0, source), spec, layout)
    whole = BlockPair(chunk, chunk, True, spec, layout)
    some = [whole._replace(part=(k, parts)) for k in range(parts)]
    core = cores_by_place(
        min_samples, *(counts_by_place(one, min_samples)[0] for one in some)
    )
    within = [components_by_place(one, core) for one in some]
    with pytest.MonkeyPatch.context() as fine:
        fine.setattr(process, "MIN_PART", 1)
        for number in (1, 3):
            labels = labels_by_place(chunk, number, core, *within)
            found = labels_of_rows(
                chunk,
                number,
                labels,
                *(border_labels(one, [labels])[0] for one in some),
            )
            assert found.tolist() == by_definition(case.x, case.eps, min_samples)


@settings(max_examples=examples(60))
@given(
    cases(max_dims=16, max_points=400),
    st.one_of(st.integers(1, 8), st.integers(9, 1000)),
    st.sampled_from(["euclidean", "manhattan"]),
    st.sampled_from(["auto", "tiles"]),
)
def test_threads_of_a_plain_frame_give_its_labels(case, min_samples, metric, method):
    """Threads find what one finds, also among groups; rows of one group alone are near
    each other.
    """
    frame = frame_of(case.x)
    groups = np.arange(len(frame)) % 3 if len(frame) % 2 else np.zeros(len(frame), int)
    near = totals(case.x, case.x, metric) <= (
        case.eps if metric == "manhattan" else case.eps * case.eps
    )
    want = labels_of_neighbours(
        near & (groups[:, None] == groups[None, :]), min_samples
    )
    how = {"metric": metric, "method": method}
    on = list(frame.columns)
    with pytest.MonkeyPatch.context() as fine, dask.config.set(num_workers=3):
        fine.setattr(edges, "MIN_PLACES", 1)
        found = frame.assign(group=groups).simjoin.dbscan(
            case.eps, min_samples, on=on, by="group", **how
        )
        assert found.tolist() == want
        if not groups.any():
            assert frame.simjoin.dbscan(case.eps, min_samples, **how).tolist() == want


def test_parts_of_the_work_are_cut_once(monkeypatch):
    """What tells where to cut takes as long as a part of it, in many dimensions."""
    frame = frame_of(np.random.default_rng(0).uniform(size=(500, 7)))
    spec, layout, source = planned(frame, 0.4)
    assert layout.method == "tiles"
    chunk = make_chunk(frame, (0, source), spec, layout)
    parts = [BlockPair(chunk, chunk, True, spec, layout, (k, 4)) for k in range(4)]
    asked, work = [], tiles.work
    monkeypatch.setattr(tiles, "work", lambda *given: asked.append(1) or work(*given))
    core = cores_by_place(3, *(counts_by_place(one, 3)[0] for one in parts))
    labels = labels_by_place(
        chunk, 1, core, *(components_by_place(one, core) for one in parts)
    )
    found = labels_of_rows(
        chunk, 1, labels, *(border_labels(one, [labels])[0] for one in parts)
    )
    assert found.tolist() == frame.simjoin.dbscan(0.4, 3).tolist() and len(asked) == 1


@in_turns(
    1,
    name=chosen(list(SETS), ["blobs", "lattice, borders", list(SETS)[-1]]),
    partitions=chosen([7, 1, 40], [7, 1]),
    partitioning=["entity", "spatial"],
)
def test_equal_to_scikit_learn(name, partitions, partitioning):
    x, eps, min_samples = SETS[name]
    x = np.random.default_rng(1).permutation(x)
    frame = frame_of(x)
    frame.index = frame.index + 100
    want = labels_of(x, eps, min_samples)
    assert frame.simjoin.dbscan(eps, min_samples=min_samples).tolist() == want
    ddf = dd.from_pandas(frame, npartitions=partitions)
    how = {
        "partitioning": partitioning,
        "blocksize": max(1, len(x) // 12) * (8 * x.shape[1] + 48),
    }
    labels = ddf.simjoin.dbscan(eps, min_samples, **how)
    found = labels.compute()
    assert found.index.tolist() == frame.index.tolist() and found.name == "label"
    assert found.dtype == np.int64 and found.tolist() == want
    # aligned with the frame: assigned without a shuffle
    assert ddf.assign(label=labels).label.compute().tolist() == want
    assert labels.npartitions == ddf.npartitions
    last = labels.partitions[labels.npartitions - 1].compute()
    assert last.tolist() == want[len(want) - len(last) :]


def test_rows_left_out_are_noise():
    frame = frame_of(SETS["moons"][0])
    frame.loc[::9, "c0"] = np.nan
    kept = frame.dropna()
    want = pd.Series(-1, frame.index, name="label")
    want[kept.index] = labels_of(kept.to_numpy(), 0.1, 5)
    ddf = dd.from_pandas(frame, npartitions=5)
    for one in (frame, ddf):
        labels = one.simjoin.dbscan(0.1, 5, dropna=True)
        labels = labels if one is frame else labels.compute()
        pd.testing.assert_series_equal(labels, want)


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "5", None])
def test_bad_min_samples(value):
    with pytest.raises(
        OptionError, match=r"min_samples=.* is not allowed; use a whole number >= 1"
    ):
        frame_of(np.zeros((3, 2))).simjoin.dbscan(1.0, value)


# --- connected components
# -------------------------------------------------------------------------


# --- the estimator
# --------------------------------------------------------------------------------
