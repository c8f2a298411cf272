"""Values beside frames that are shuffled, whose rows come in another order each time."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

from dask_simjoin.cluster import cluster_optics_dbscan
from dask_simjoin.cluster.algorithms.optics import COLUMNS
from dask_simjoin.tasks.counts import PREDECESSOR
from tests.support.profiles import chosen, every_nth, in_turns

ROWS, ON = 240, ["x", "y"]
RIGHT = pd.DataFrame({"k": [0, 1, 2, 4, 2], "z": [1.0, 2.0, 3.0, 4.0, 5.0]})


def lazy(frame):
    return not isinstance(frame, pd.DataFrame)


def merged(frame):
    if lazy(frame):
        return frame.merge(
            dd.from_pandas(RIGHT, npartitions=5), on="k", broadcast=False
        )
    return frame.merge(RIGHT, on="k")


MOVED = {
    "set_index": lambda frame: frame.assign(key=frame.k).set_index("key"),
    "merge": merged,
    "sort_values": lambda frame: frame.sort_values("k"),
    "drop_duplicates": lambda frame: frame.drop_duplicates(
        **({"split_out": 4} if lazy(frame) else {})
    ),
    "shuffle": lambda frame: frame.shuffle("k") if lazy(frame) else frame,
}
VALUES = {
    "counts": lambda frame: frame.simjoin.neighbor_counts(1.0, on=ON),
    "own": lambda frame: frame.simjoin.neighbor_counts("r", on=ON),
    "spatial": lambda f: f.simjoin.neighbor_counts(
        1.0, on=ON, partitioning="spatial", blocksize="9 kB"
    ),
    "dbscan": lambda frame: (frame.simjoin.dbscan(1.0, 6, on=ON) < 0).astype(int) * 9,
    "k": lambda frame: frame.simjoin.k_distances(2, on=ON) * 9,
    "core": lambda frame: (
        (frame.simjoin.optics(2.0, 3, on=ON).core_distance <= 1.0).astype(int) * 9
    ),
    "semi": lambda frame: frame.simjoin.join(
        RIGHT[["k", "z"]], 1.5, left_on=ON, right_on=["k", "z"], how="leftsemi"
    ),
}


def written(made, folder):
    made.to_parquet(folder)
    return dd.read_parquet(folder).compute()


WAYS = {
    "compute": lambda made, folder: made.compute(),
    "persist": lambda made, folder: made.persist().compute(),
    "head": lambda made, folder: made.head(10 * ROWS, npartitions=-1),
    "partitions": lambda made, folder: pd.concat(
        [made.partitions[n].compute() for n in range(made.npartitions)]
    ),
    "to_parquet": written,
}


@pytest.fixture(scope="module")
def frame():
    """A frame of repeating labels; few rows are near others, so that each is told from
    most.
    """
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({name: rng.integers(0, 15, ROWS) * 1.0 for name in ON})
    frame = frame.assign(
        k=rng.integers(0, 5, ROWS),
        r=rng.integers(0, 3, ROWS) * 1.0,
        name=np.arange(ROWS),
    )
    return frame.set_axis(rng.integers(0, 6, ROWS))


def kept(moved, verb):
    if verb == "semi":
        return VALUES[verb](moved)
    values = VALUES[verb](moved)
    return moved[values > 2]


def check(frame, moved, verb, way, folder):
    want = kept(MOVED[moved](frame).reset_index(drop=True), verb)
    made = kept(MOVED[moved](dd.from_pandas(frame, npartitions=6, sort=False)), verb)
    assert len(want) not in (0, len(MOVED[moved](frame)))
    if way == "len":
        assert len(made) == len(want)
        return
    got = WAYS[way](made, folder)
    columns = sorted(want.columns)
    pd.testing.assert_frame_equal(
        *(
            some[columns].sort_values(columns, ignore_index=True)
            for some in (got, want)
        ),
        check_dtype=False,
    )


@in_turns(1, moved=list(MOVED), way=[*WAYS, "len"])
def test_by_disk(frame, moved, way, tmp_path):
    with dask.config.set({"scheduler": "threads", "dataframe.shuffle.method": "disk"}):
        check(frame, moved, "counts", way, tmp_path)


@in_turns(1, verb=every_nth(5, VALUES), moved=["set_index", "merge"])
def test_every_verb_by_disk(frame, moved, verb, tmp_path):
    with dask.config.set({"scheduler": "threads", "dataframe.shuffle.method": "disk"}):
        check(frame, moved, verb, "head", tmp_path)


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=4, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


# Dask itself gives rows of all partitions for `frame.merge(...).partitions[0]` by
# "p2p", and fails for others
@pytest.mark.slow
@in_turns(
    1,
    lambda moved, way: (moved, way) != ("merge", "partitions"),
    moved=chosen(list(MOVED), ["merge", "shuffle"]),
    way=chosen([*WAYS, "len"], ["compute", "partitions"]),
)
def test_by_network(client, frame, moved, way, tmp_path):
    check(frame, moved, "counts", way, tmp_path)


ENDS = {
    "head": lambda made: made.head(7),
    "tail": lambda made: made.tail(7),
    "heads of all": lambda made: made.head(10 * ROWS, npartitions=-1),
    "of columns": lambda made: made[["name", "v"]].head(7, npartitions=-1),
    "of a sum": lambda made: (
        made.assign(v=made.v + made.x).head(7, npartitions=-1).eval("v = v - x")
    ),
}


# the first partition of what is merged has no rows
@in_turns(
    1,
    lambda moved, end: (moved, end) != ("merge", "head"),
    moved=["itself", *MOVED],
    end=every_nth(4, ENDS),
)
def test_first_and_last_rows(frame, moved, end):
    """Dask takes those of a sorted frame from the frame beneath, in another order."""
    values = frame.reset_index(drop=True).simjoin.neighbor_counts(1.0, on=ON)
    with dask.config.set({"scheduler": "threads", "dataframe.shuffle.method": "disk"}):
        lazy = dd.from_pandas(frame, npartitions=6, sort=False)
        lazy = lazy if moved == "itself" else MOVED[moved](lazy)
        if moved == "merge":  # has rows twice
            values = MOVED[moved](frame).reset_index(drop=True)
            values = values.simjoin.neighbor_counts(1.0, on=ON).set_axis(values.name)
            values = values[~values.index.duplicated()]
        got = ENDS[end](lazy.assign(v=lazy.simjoin.neighbor_counts(1.0, on=ON)))
    assert len(got) and got.v.tolist() == values[got.name].tolist()


def with_order(moved, options):
    order = moved.simjoin.optics(3.0, 4, on=ON, **options)
    columns = {name: order[name] for name in COLUMNS if name != PREDECESSOR}
    return moved.assign(**columns, near=cluster_optics_dbscan(order, 1.0))


def check_order(frame, moved, way, folder, options):
    """Each row has its own places and distances: ties may be in another order, core
    distances may not.
    """
    made = with_order(
        MOVED[moved](dd.from_pandas(frame, npartitions=6, sort=False)), options
    )
    got = WAYS[way](made, folder).reset_index(drop=True)
    whole = MOVED[moved](frame).reset_index(drop=True)
    core = whole.assign(
        core=whole.simjoin.optics(3.0, 4, on=ON, **options).core_distance
    )
    core = core.drop_duplicates(["name", "core"]).set_index("name").core
    assert len(got) == len(whole) and sorted(got.ordering) == list(range(len(got)))
    assert got.core_distance.tolist() == core[got.name].tolist()
    in_order = got.sort_values("ordering")
    assert in_order.reachability.iloc[0] == np.inf
    want = cluster_optics_dbscan(got[list(COLUMNS)[:3]].assign(predecessor=-1), 1.0)
    assert got.near.tolist() == want.tolist()


# of which each is a run
@in_turns(
    1, way=every_nth(4, [way for way in WAYS if way != "partitions"]), moved=list(MOVED)
)
def test_order_by_disk(frame, moved, way, tmp_path):
    with dask.config.set({"scheduler": "threads", "dataframe.shuffle.method": "disk"}):
        check_order(
            frame, moved, way, tmp_path, {"mode": "forest"} if moved == "merge" else {}
        )


@pytest.mark.slow
@pytest.mark.parametrize("moved", chosen(list(MOVED), ["merge"]))
def test_order_by_network(client, frame, moved, tmp_path):
    check_order(frame, moved, "persist", tmp_path, {})


@pytest.mark.parametrize("sort", every_nth(4, ["set_index", "sort_values"]))
def test_files_that_dask_leaves_unsorted(sort, tmp_path):
    """Where Dask merges files by the columns it reads, it may take them for sorted, as
    they are not.
    """
    rng = np.random.default_rng(11)
    frame = pd.DataFrame(
        {"a": rng.integers(0, 12, 60) * 1.0, "key": rng.permutation(60)}
    )
    frame = frame.assign(
        **{f"text{k}": [f"a text of row {k}, {n}" for n in range(60)] for k in range(7)}
    )
    dd.from_pandas(frame, npartitions=5, sort=False).to_parquet(tmp_path)
    moved = getattr(dd.read_parquet(tmp_path), sort)("key")
    with dask.config.set(scheduler="sync"):
        again = moved.simjoin.near_duplicated(1.0, on="a")
        kept = moved[~again].compute()["a"].to_numpy()
        counts = moved.assign(v=moved.simjoin.neighbor_counts(1.0, on="a")).compute()
    near = np.abs(kept[:, None] - frame["a"].to_numpy()) <= 1
    assert near.any(0).all()
    assert (np.abs(np.subtract.outer(kept, kept)) <= 1).sum() == len(kept)
    a = counts["a"].to_numpy()
    assert (
        counts["v"].tolist()
        == ((np.abs(np.subtract.outer(a, a)) <= 1).sum(1) - 1).tolist()
    )
