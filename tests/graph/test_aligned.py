"""Values of rows beside a frame read from parquet, whose partitions Dask merges by what
is read of them.
"""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cluster import cluster_optics_dbscan
from tests.support.profiles import every_nth, in_turns

ON = ["x", "y"]

VERBS = {
    "counts": lambda frame: frame.simjoin.neighbor_counts(1.0, on=ON),
    "dbscan": lambda frame: frame.simjoin.dbscan(1.0, 6, on=ON),
    "spatial": lambda frame: frame.simjoin.dbscan(
        1.0, 6, on=ON, partitioning="spatial", blocksize="9 kB"
    ),
    "k": lambda frame: frame.simjoin.k_distances(3, on=ON),
    "optics": lambda frame: cluster_optics_dbscan(
        frame.simjoin.optics(1.0, 6, on=ON), 1.0
    ),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write(tmp_path_factory.mktemp("files"), 8, 2)


def write(folder, files, columns):
    """A frame in files by pandas, whose labels count on or restart, and by Dask."""
    rng = np.random.default_rng(files)
    rows = 20 * files
    frame = pd.DataFrame({name: rng.integers(0, 12, rows) * 1.0 for name in ON})
    frame = frame.assign(**{f"c{k}": rng.normal(size=rows) for k in range(columns)})
    for kind in ("counting", "restarting"):
        (folder / kind).mkdir()
        for n in range(files):
            part = frame.iloc[20 * n : 20 * (n + 1)]
            part = part if kind == "counting" else part.reset_index(drop=True)
            part.to_parquet(folder / kind / f"part{n:03}.parquet")
    dd.from_pandas(frame, npartitions=files).to_parquet(folder / "dask")
    return folder


@in_turns(
    1,
    kind=["counting", "restarting", "dask"],
    filesystem=["fsspec", "arrow"],
    verb=every_nth(4, VERBS),
)
def test_beside_a_frame_of_merged_partitions(written, kind, filesystem, verb):
    ddf = dd.read_parquet(written / kind, filesystem=filesystem)
    with dask.config.set(scheduler="sync"):
        frame = ddf.compute()  # in the order in which Dask finds the files
        want = VERBS[verb](frame.reset_index(drop=True)).to_numpy()
        lazy = VERBS[verb](ddf)
        assert lazy.compute().tolist() == want.tolist()
        for result in (
            ddf.assign(v=lazy),
            ddf.assign(v=lazy)[["x", "v"]],
            ddf[ON].assign(v=lazy),
        ):
            computed = result.compute()
            assert (
                computed.v.tolist() == want.tolist()
                and computed.x.tolist() == frame.x.tolist()
            )
        total = (lazy + ddf.x - ddf.y).compute()
        assert total.tolist() == (want + frame.x - frame.y).tolist()
        kept = ddf.assign(v=lazy)[lazy > 1][["y", "v"]].compute()
        assert (
            kept.v.tolist() == want[want > 1].tolist()
            and kept.y.tolist() == frame.y[want > 1].tolist()
        )
        assert ddf[lazy <= 1].c0.compute().tolist() == frame.c0[want <= 1].tolist()


@pytest.mark.slow
@in_turns(1, files=[10, 16, 25], columns=[2, 8, 30])
def test_other_numbers_of_files_and_columns(files, columns, tmp_path):
    """Dask merges partitions by both."""
    ddf = dd.read_parquet(write(tmp_path, files, columns) / "counting")
    with dask.config.set(scheduler="sync"):
        want = ddf.compute().simjoin.neighbor_counts(1.0, on=ON)
        lazy = ddf.simjoin.neighbor_counts(1.0, on=ON)
        assert ddf.assign(v=lazy)[["x", "v"]].compute().v.tolist() == want.tolist()
        assert ddf.assign(v=lazy).v.compute().tolist() == want.tolist()
        assert (lazy + ddf.c1).compute().index.tolist() == want.index.tolist()
