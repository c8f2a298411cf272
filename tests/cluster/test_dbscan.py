"""Labels of DBSCAN, equal to scikit-learn's, and connected components."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_simjoin
from dask_simjoin.cluster import DBSCAN
from dask_simjoin.cluster.algorithms.dbscan import border_labels, labels_by_place, labels_of_rows
from dask_simjoin.cluster.algorithms.edges import components_by_place, cores_by_place, counts_by_place
from dask_simjoin.engine import threads
from dask_simjoin.engine.cpu import tiles
from dask_simjoin.errors import ColumnError, OptionError, UnsupportedFrameError
from dask_simjoin.planning import budget, costs, resources
from dask_simjoin.tasks.chunks import make_chunk
from dask_simjoin.tasks.matches import BlockPair
from tests.support.density import SETS, labels_of_neighbours
from tests.support.frames import planned, split
from tests.support.oracle import brute_force, squared_distances
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
    """The same by the definition of this package, for numbers that scikit-learn computes otherwise."""
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
    core = cores_by_place(min_samples, *(counts_by_place(one, min_samples)[0] for one in some))
    within = [components_by_place(one, core) for one in some]
    with pytest.MonkeyPatch.context() as fine:
        fine.setattr(threads, "LEAST", 1)
        for number in (1, 3):
            labels = labels_by_place(chunk, number, core, *within)
            found = labels_of_rows(chunk, number, labels, *(border_labels(one, [labels])[0] for one in some))
            assert found.tolist() == by_definition(case.x, case.eps, min_samples)


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
    labels = labels_by_place(chunk, 1, core, *(components_by_place(one, core) for one in parts))
    found = labels_of_rows(chunk, 1, labels, *(border_labels(one, [labels])[0] for one in parts))
    assert found.tolist() == frame.simjoin.dbscan(0.4, 3).tolist() and len(asked) == 1


@in_turns(1, name=list(SETS), partitions=chosen([7, 1, 40], [7, 1]), partitioning=["entity", "spatial"])
def test_equal_to_scikit_learn(name, partitions, partitioning):
    x, eps, min_samples = SETS[name]
    x = np.random.default_rng(1).permutation(x)
    frame = frame_of(x)
    frame.index = frame.index + 100
    want = labels_of(x, eps, min_samples)
    assert frame.simjoin.dbscan(eps, min_samples=min_samples).tolist() == want
    ddf = dd.from_pandas(frame, npartitions=partitions)
    how = {"partitioning": partitioning, "blocksize": f"{max(1, len(x) // 12) * 64} B"}
    labels = ddf.simjoin.dbscan(eps, min_samples, **how)
    found = labels.compute()
    assert found.index.tolist() == frame.index.tolist() and found.name == "label"
    assert found.dtype == np.int64 and found.tolist() == want
    # aligned with the frame: assigned without a shuffle
    assert ddf.assign(label=labels).label.compute().tolist() == want
    assert labels.npartitions == ddf.npartitions
    last = labels.partitions[labels.npartitions - 1].compute()
    assert last.tolist() == want[len(want) - len(last) :]


def test_on_a_cluster(client, monkeypatch):
    x, eps, min_samples = SETS["moons"]
    ddf = dd.from_pandas(frame_of(x), npartitions=6)
    with monkeypatch.context() as fine:  # workers that share one chunk's places
        fine.setattr(costs, "LEAST_CLUSTER_PIECE", 0.0)
        fine.setattr(costs, "ROW_OF_PIECE", 0.0)
        fine.setattr(costs, "LEAST_ROWS", 1)
        alone = ddf.simjoin.dbscan(eps, min_samples, partitioning="entity")
        assert len(alone.expr.plan.chunks) == 1 < alone.expr.plan.parts.max()
        assert alone.compute().tolist() == labels_of(x, eps, min_samples)
    for partitioning in ("entity", "spatial"):
        how = {"partitioning": partitioning, "blocksize": "12 kB"}
        labels = ddf.simjoin.dbscan(eps, min_samples, **how).compute()
        assert labels.tolist() == labels_of(x, eps, min_samples)


@in_turns(1, partitioning=["entity", "spatial"], shape=["lattice", "lines"])
def test_clusters_that_only_other_chunks_connect(partitioning, shape):
    """Hardly two rows of a chunk are near each other, and their places are in another order."""
    random = np.random.default_rng(3)
    if shape == "lattice":
        x = np.stack(np.meshgrid(np.arange(40.0), np.arange(30.0)), axis=-1).reshape(-1, 2)
        x = x[random.random(len(x)) < 0.75]
        eps, min_samples = 1.0, 4
    else:  # of which each has one cluster, and each chunk some rows
        line = random.uniform(0, 60, 1500)
        x, eps, min_samples = np.stack([line, 5.0 * random.integers(0, 4, 1500)], axis=1), 1.0, 3
    x = random.permutation(x)
    frame, want = frame_of(x), labels_of(x, eps, min_samples)
    assert max(want) > 2 and -1 in labels_of(x, 0.5, min_samples)
    ddf = dd.from_pandas(frame, npartitions=24)
    for rows in (40, 200):
        how = {"partitioning": partitioning, "blocksize": rows * 64}
        lazy = ddf.simjoin.dbscan(eps, min_samples, **how)
        assert len(lazy.expr.plan.chunks) > 4
        assert lazy.compute().tolist() == want


@pytest.mark.parametrize("partitioning", ["entity", "spatial"])
def test_parts_of_block_pairs_give_the_same_labels(partitioning, monkeypatch):
    x, eps, min_samples = SETS["moons"]
    x = np.random.default_rng(5).permutation(x)
    monkeypatch.setattr(costs, "LEAST_PIECE", 0.0)
    monkeypatch.setattr(costs, "LEAST_ROW_PIECE", 0.0)
    monkeypatch.setattr(costs, "ROW_OF_PIECE", 0.0)
    monkeypatch.setattr(costs, "LEAST_ROWS", 1)
    ddf = dd.from_pandas(frame_of(x), npartitions=8)
    with dask.config.set(scheduler="threads", num_workers=4):
        labels = ddf.simjoin.dbscan(
            eps, min_samples, partitioning=partitioning, blocksize=f"{len(x) // 3 * 64} B"
        )
        plan = labels.expr.plan
        assert len(plan.chunks) > 1 and plan.parts.max() > 1
        assert labels.compute().tolist() == labels_of(x, eps, min_samples)


@pytest.mark.parametrize("min_samples", [2, 256, 257, 1200, 1201])
def test_counts_of_several_chunks_are_added_up(min_samples):
    """Each is cut to the numbers of its type, and so many rows are near that sums are not."""
    x = np.zeros((2400, 2))
    x[::2] += 5.0  # in each of four chunks 300
    ddf = dd.from_pandas(frame_of(x), npartitions=4)
    labels = ddf.simjoin.dbscan(1.0, min_samples, partitioning="entity", blocksize=600 * 64)
    assert len(labels.expr.plan.chunks) == 4
    assert labels.compute().tolist() == by_definition(x, 1.0, min_samples)


def test_one_chunk_where_the_memory_of_this_process_has_room_for_it(monkeypatch):
    """Several take longer, and as much memory: threads share it, and all of them are kept."""
    monkeypatch.setattr(resources, "MEMORY_LIMIT", 10_000_000)
    monkeypatch.setattr(budget, "LOCAL_CHUNK", 64_000)
    frame = frame_of(np.random.default_rng(0).uniform(size=(20_000, 2)))
    with dask.config.set(scheduler="threads", num_workers=2):
        labels = dd.from_pandas(frame, npartitions=4).simjoin.dbscan(0.005, 4)
        plan = labels.expr.plan
        assert len(plan.chunks) == 1 and plan.budget.chunk == 2_000_000 < 2 * plan.rows * plan.row_bytes
        assert labels.compute().tolist() == labels_of(frame.to_numpy(), 0.005, 4)
        twice = dd.from_pandas(pd.concat([frame, frame + 2], ignore_index=True), npartitions=4)
        plan = twice.simjoin.dbscan(0.005, 4).expr.plan
        assert len(plan.chunks) > 1 and plan.budget.chunk < 1_000_000
        plan = twice.simjoin.count_pairs(0.005).expr.plan  # which is compared as fast in several
        assert len(plan.chunks) > 1


@pytest.mark.parametrize("frames", ["labels", "assigned"])
def test_partitions_of_labels_are_fused_with_what_follows(frames):
    """Many are made of one chunk, and a task of a cluster takes longer than most of them."""
    x, eps, min_samples = SETS["moons"]
    frame = frame_of(x)
    ddf = dd.from_pandas(frame, npartitions=12)
    labels = ddf.simjoin.dbscan(eps, min_samples)
    lazy = labels + 1 if frames == "labels" else ddf.assign(label=labels)
    lazy = lazy.optimize()
    keys = [str(key) for key in lazy.__dask_graph__()]
    assert sum("simjoin_dbscan_rows" in key for key in keys) == 12  # none besides what they are fused into
    assert not any("simjoin_dbscan_rows" in key and "add" not in key and "assign" not in key for key in keys)
    found = lazy.compute() - 1 if frames == "labels" else lazy.compute().label
    assert found.tolist() == labels_of(x, eps, min_samples)
    some = labels.partitions[[3, 7]].optimize().compute()
    assert some.tolist() == labels.compute()[some.index].tolist() and len(some) == len(x) // 6


def test_rows_left_out_have_no_label():
    frame = frame_of(SETS["moons"][0])
    frame.loc[::9, "c0"] = np.nan
    kept = frame.dropna()
    want = labels_of(kept.to_numpy(), 0.1, 5)
    ddf = dd.from_pandas(frame, npartitions=5)
    for one in (frame, ddf):
        labels = one.simjoin.dbscan(0.1, 5, dropna=True)
        labels = labels if one is frame else labels.compute()
        assert labels.tolist() == want and labels.index.tolist() == kept.index.tolist()


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "5", None])
def test_bad_min_samples(value):
    with pytest.raises(OptionError, match=r"min_samples=.* is not allowed; use a whole number >= 1"):
        frame_of(np.zeros((3, 2))).simjoin.dbscan(1.0, value)


# --- connected components -------------------------------------------------------------------------


def components(pairs):
    """Groups of ids by the definition: in the order of their smallest ids."""
    groups = []
    for a, b in pairs:
        touched = [g for g in groups if a in g or b in g]
        groups = [g for g in groups if g not in touched] + [set().union({a, b}, *touched)]
    groups.sort(key=min)
    return {name: k for k, group in enumerate(groups) for name in group}


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=40), st.integers(1, 5), st.booleans()
)
def test_connected_components(pairs, partitions, text):
    names = [(f"id {a:02}", f"id {b:02}") if text else (a, b) for a, b in pairs]
    frame = pd.DataFrame(names, columns=["left", "right"]).astype("str" if text else "int64")
    want = components(names)
    size = -(-len(frame) // partitions)
    ddf = split(frame, [min(len(frame), size * k) for k in range(1, partitions)])
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        lazy = dask_simjoin.connected_components(ddf).compute()
    for found in (dask_simjoin.connected_components(frame), lazy):
        assert dict(zip(found.id.tolist(), found.component.tolist(), strict=True)) == want
        assert found.component.dtype == np.int64 and found.id.is_monotonic_increasing


@pytest.mark.parametrize(
    ("left", "right"),
    [("int64", "uint64"), ("UInt64", "int64[pyarrow]"), ("uint64", "int64[pyarrow]"), ("category", "int64"),
     (pd.ArrowDtype(pa.dictionary(pa.int8(), pa.int64())),) * 2],
)  # fmt: skip
def test_ids_of_both_sides_are_of_other_dtypes(left, right):
    """Numbers above 2**53 are not all floats, which pandas makes of signed and unsigned ones."""
    a = 2**53
    sides = {"left": ([a, a + 3, 1], left), "right": ([a + 1, a + 2, a + 1], right)}
    frame = pd.DataFrame(
        {name: pd.Series(ids, dtype=object).astype(kind) for name, (ids, kind) in sides.items()}
    )
    for pairs in (frame, dd.from_pandas(frame, npartitions=3)):
        groups = dask_simjoin.connected_components(pairs)
        groups = groups if pairs is frame else groups.compute()
        assert groups.id.tolist() == [1, a, a + 1, a + 2, a + 3]
        assert groups.component.tolist() == [0, 0, 0, 1, 1]


def test_components_of_a_join_are_clusters_of_one_neighbour():
    x = np.random.default_rng(0).uniform(size=(900, 2))
    ddf = dd.from_pandas(frame_of(x), npartitions=4)
    groups = dask_simjoin.connected_components(ddf.simjoin.self_join(0.02)).compute()
    labels = ddf.simjoin.dbscan(0.02, 2).compute()
    assert groups.id.tolist() == labels.index[labels >= 0].tolist()
    assert groups.component.tolist() == labels[labels >= 0].tolist()
    assert len(groups) == len({i for pair in brute_force(x, 0.02) for i in pair})


def test_frames_that_are_no_pairs():
    with pytest.raises(ColumnError, match="no column 'left'"):
        dask_simjoin.connected_components(pd.DataFrame({"right": [1]}))
    with pytest.raises(UnsupportedFrameError):
        dask_simjoin.connected_components([(1, 2)])


# --- the estimator --------------------------------------------------------------------------------


def test_estimator():
    x, eps, min_samples = SETS["moons"]
    want = labels_of(x, eps, min_samples)
    tool = DBSCAN(eps, min_samples=min_samples)
    assert isinstance(tool.fit_predict(x), np.ndarray)
    assert tool.fit_predict(x).tolist() == want and tool.n_features_in_ == 2
    lazy = tool.fit_predict(da.from_array(x, chunks=(500, 1)))
    assert isinstance(lazy, da.Array) and lazy.shape == (len(x),)
    assert lazy.compute().tolist() == want
    frame = frame_of(x).assign(other=1.0)
    assert tool.set_params(on=["c0", "c1"]).fit(frame).labels_.tolist() == want
    labels = tool.fit(dd.from_pandas(frame, npartitions=3)).labels_
    assert labels.compute().tolist() == want


def test_parameters():
    tool = DBSCAN(2.0).set_params(min_samples=7, blocksize="1 MiB")
    assert tool.get_params()["min_samples"] == 7 and tool.get_params()["eps"] == 2.0
    with pytest.raises(ValueError, match=r"(no|Invalid) parameter 'samples'"):
        tool.set_params(samples=3)
    with pytest.raises(OptionError, match="min_samples=0"):
        DBSCAN(1.0, min_samples=0).fit(np.zeros((3, 2)))
