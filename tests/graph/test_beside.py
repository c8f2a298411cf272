"""Values of rows beside the rows they are of, whatever Dask makes of the frame before
and after.
"""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cluster import cluster_optics_dbscan
from dask_simjoin.graph.aligned import Beside
from tests.support import profiles
from tests.support.profiles import every_nth, in_turns

ROWS, ON = 48, ["x", "y"]
OTHER = pd.DataFrame({"x": [0.0, 3.0, 5.0], "y": [1.0, 3.0, 2.0]})
RIGHT = pd.DataFrame({"k": [0, 1, 2, 4, 2], "z": [1.0, 2.0, 3.0, 4.0, 5.0]})

VALUES = {
    "counts": lambda frame: frame.simjoin.neighbor_counts(1.0, on=ON),
    "spatial": lambda f: f.simjoin.neighbor_counts(
        1.0, on=ON, partitioning="spatial", blocksize="9 kB"
    ),
    "dbscan": lambda frame: frame.simjoin.dbscan(1.0, 4, on=ON) + 2,
    "k": lambda frame: frame.simjoin.k_distances(2, on=ON),
    "optics": lambda frame: (
        cluster_optics_dbscan(frame.simjoin.optics(1.0, 4, on=ON), 1.0) + 2
    ),
}
USES = {
    f"filter by {name}": lambda frame, of=of: frame[of(frame) > 1]
    for name, of in VALUES.items()
} | {
    "two conditions": lambda frame: frame[
        (VALUES["counts"](frame) > 1) & (frame.k < 4)
    ],
    "the mean": lambda frame: (lambda values: frame[values >= values.mean()])(
        VALUES["counts"](frame)
    ),
    "assigned": lambda frame: frame.assign(v=VALUES["dbscan"](frame)),
    "assigned, then filter": lambda frame: chosen(
        frame.assign(v=VALUES["dbscan"](frame)), "v", 1
    ),
    "leftsemi": lambda frame: frame.simjoin.join(OTHER, 1.5, on=ON, how="leftsemi"),
    "leftanti": lambda frame: frame.simjoin.join(OTHER, 1.5, on=ON, how="leftanti"),
}


def chosen(frame, column, above):
    return frame[frame[column] > above]


def with_right(frame):
    right = (
        RIGHT
        if isinstance(frame, pd.DataFrame)
        else dd.from_pandas(RIGHT, npartitions=2)
    )
    return frame.merge(right, on="k")


BEFORE = {
    "filter": lambda frame: frame[frame.ok],
    "range": lambda frame: frame[frame.k < 3],
    "projection": lambda frame: frame[frame.ok][["x", "y", "k", "name"]],
    "reset_index": lambda frame: frame[frame.ok].reset_index(drop=True),
    "assign": lambda frame: frame[frame.ok].assign(x=lambda part: part.x.abs()),
    "fillna": lambda frame: chosen(frame.fillna(0), "ok", 0.5),
    "repartition": lambda frame: frame[frame.ok].repartition(npartitions=2),
    "persist": lambda frame: frame[frame.ok].persist(),
}
MOVED = {
    "set_index": lambda frame: (
        frame[frame.ok].assign(key=lambda part: part.k).set_index("key")
    ),
    "sort_values": lambda frame: frame[frame.ok].sort_values("w"),
    "merge": lambda frame: with_right(frame[frame.ok]),
    "merge, then filter": lambda frame: chosen(with_right(frame), "z", 1),
}
AFTER = {
    "itself": lambda frame: frame,
    "filter": lambda frame: frame[frame.k < 3],
    "series": lambda frame: frame["name"],
    "len": lambda frame: pd.Series([len(frame)]),
    "sum": lambda frame: pd.Series([float(dask.compute(frame.x.sum())[0])]),
    "groupby": lambda frame: frame.groupby("name").size().reset_index(),
    "map_partitions": lambda frame: (
        frame.map_partitions(lambda part: part) if lazy(frame) else frame
    ),
    "head": lambda frame: (
        frame.head(ROWS, npartitions=-1) if lazy(frame) else frame.head(ROWS)
    ),
    "repartition": lambda frame: (
        frame.repartition(npartitions=2) if lazy(frame) else frame
    ),
    "persist": lambda frame: frame.persist() if lazy(frame) else frame,
    "sort_values": lambda frame: frame.sort_values("y"),
    "merge": with_right,
    "drop": lambda frame: frame.drop(columns=["y"]),
}
BY_PARTITION = {
    "partitions": lambda frame: (
        dd.concat([frame.partitions[n] for n in range(frame.npartitions)])
        if lazy(frame)
        else frame
    ),
    "set_index": lambda frame: frame.set_index("x", drop=False),
}


def lazy(frame):
    return not isinstance(frame, (pd.DataFrame, pd.Series))


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """One frame: in memory with known divisions, with repeating labels, and in files by
    either reader.
    """
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(3)
    frame = pd.DataFrame({name: rng.integers(0, 9, ROWS) * 1.0 for name in ON})
    frame = frame.assign(
        ok=rng.random(ROWS) < 0.7, k=rng.integers(0, 5, ROWS), w=rng.normal(size=ROWS)
    )
    frame["name"] = [f"n{number}" for number in range(ROWS)]
    for kind in ("restarting", "divided"):
        (folder / kind).mkdir()
    for n in range(4):
        part = frame[12 * n : 12 * n + 12]
        part.reset_index(drop=True).to_parquet(
            folder / "restarting" / f"part{n}.parquet"
        )
        part.set_axis(pd.Index(list(part.index), name="row")).to_parquet(
            folder / "divided" / f"part{n}.parquet"
        )
    repeating = frame.set_axis(rng.integers(0, 6, ROWS))
    return {
        "known": dd.from_pandas(frame, npartitions=4),
        "repeating": dd.from_pandas(repeating, npartitions=4, sort=False),
    } | {
        f"{reader}{kind}": dd.read_parquet(
            folder / (kind.strip(", ") or "restarting"),
            filesystem=reader,
            calculate_divisions=bool(kind),
        )
        for reader in ("fsspec", "arrow")
        for kind in ("", ", divided")
    }


def rows(made):
    """Rows in an order of their own, without labels, which Dask and pandas make
    otherwise.
    """
    made = made.compute() if lazy(made) else made
    made = made.to_frame("name") if made.ndim == 1 else made
    columns = sorted(map(str, made.columns))
    made = made.rename(columns=str)[columns].reset_index(drop=True).astype(object)
    return made.sort_values(columns, ignore_index=True).map(
        lambda v: round(float(v), 9) if is_number(v) else v
    )


def is_number(value):
    return not isinstance(value, str)


FILES = ["fsspec", "arrow", "fsspec, divided", "arrow, divided"]

# has Dask merge partitions of small files by the columns that are read, as it does with
# large ones
BY_SIZE = {"dataframe.parquet.minimum-partition-size": 1}


def check(frame, use, after):
    with dask.config.set(
        {"scheduler": "sync", "dataframe.shuffle.method": "tasks"} | BY_SIZE
    ):
        whole = frame.compute().reset_index(drop=True)
        got, want = (
            rows(AFTER_ALL[after](USES[use](frame))),
            rows(AFTER_ALL[after](USES[use](whole))),
        )
    assert got.to_dict("list") == want.to_dict("list")


AFTER_ALL = AFTER | BY_PARTITION


@profiles.in_turns(1, after=list(AFTER_ALL), before=every_nth(4, [*BEFORE, *MOVED]))
def test_filters_by_counts(sources, before, after):
    check((BEFORE | MOVED)[before](sources["repeating"]), "filter by counts", after)


@profiles.in_turns(
    1,
    source=FILES,
    before=["filter", "range", "reset_index", "repartition"],
    after=every_nth(4, AFTER),
)
def test_filters_of_files_by_counts(sources, source, before, after):
    check(BEFORE[before](sources[source]), "filter by counts", after)


@profiles.in_turns(
    1,
    after=["len", "series", "map_partitions"],
    place=[("repeating", "filter"), ("known", "set_index")],
    use=every_nth(4, USES),
)
def test_every_verb_and_use(sources, use, place, after):
    source, before = place
    check((BEFORE | MOVED)[before](sources[source]), use, after)


@profiles.in_turns(
    1, source=FILES, use=every_nth(5, USES), after=["series", "set_index"]
)
def test_every_verb_and_use_of_files(sources, use, source, after):
    check(BEFORE["range"](sources[source]), use, after)


# Dask itself cannot set the index of few partitions of what it reads fewer columns of
# for quantiles
@profiles.in_turns(
    1,
    lambda source, before, after: (before, after) != ("repartition", "set_index"),
    source=FILES,
    before=every_nth(4, BEFORE),
    after=list(BY_PARTITION),
)
def test_partitions_of_files(sources, source, before, after):
    """Readers number the rows of each file from 0, and otherwise where they filter or
    merge.
    """
    check(BEFORE[before](sources[source]), "filter by counts", after)


@in_turns(
    1,
    after=["series", "set_index"],
    source=[name for name in FILES if "divided" in name],
)
def test_rows_left_out_of_files(sources, source, after):
    def counted(frame):
        frame = frame.assign(x=frame.x.where(frame.x != 3))
        counts = frame.simjoin.neighbor_counts(1.0, on=ON, dropna=True)
        return frame.assign(v=counts if lazy(frame) else counts.reindex(frame.index))[
            ["name", "v", "x"]
        ]

    with dask.config.set({"scheduler": "sync"} | BY_SIZE):
        frame = sources[source]
        whole = frame.compute().reset_index(drop=True)
        got, want = (
            AFTER_ALL[after](chosen(counted(some), "v", 1)) for some in (frame, whole)
        )
        assert rows(got).to_dict("list") == rows(want).to_dict("list")


def test_values_alone_read_no_frame_beside_them(tmp_path):
    made = pd.DataFrame({name: np.arange(12.0) % 5 for name in ON})
    for n in range(3):
        made[4 * n : 4 * n + 4].to_parquet(tmp_path / f"part{n}.parquet")
    frame = dd.read_parquet(tmp_path)
    counts, distances = (
        frame.simjoin.neighbor_counts(1.0, on=ON),
        frame.simjoin.k_distances(2, on=ON),
    )

    def beside(made):
        return any(
            isinstance(node, Beside) for node in made.optimize(fuse=False).expr.walk()
        )

    assert (
        not beside(counts)
        and not beside(counts[counts > 1])
        and not beside(counts + distances)
    )
    assert beside(frame.assign(v=counts)) and beside(counts + frame.x)


LAZY = VALUES | {
    "order": lambda frame: frame.simjoin.optics(1.0, 4, on=ON),
    "self_join": lambda frame: frame.simjoin.self_join(1.0, on=ON, id="name"),
    "join": lambda frame: frame.simjoin.join(
        OTHER, 1.5, on=ON, left_id="name", right_id="x"
    ),
    "left join": lambda frame: frame.simjoin.join(
        OTHER, 1.5, on=ON, left_id="name", right_id="x", how="left"
    ),
    "leftsemi": lambda frame: frame.simjoin.join(OTHER, 1.5, on=ON, how="leftsemi"),
    "knn_join": lambda frame: frame.simjoin.knn_join(k=2, on=ON, id="name"),
}


@pytest.mark.parametrize("verb", every_nth(4, LAZY))
def test_functions_of_partitions(sources, verb):
    with dask.config.set(scheduler="sync"):
        made = LAZY[verb](sources["known"])
        assert made.map_partitions(lambda part: part).compute().equals(made.compute())


@pytest.mark.parametrize("before", every_nth(4, ["set_index", "merge"]))
def test_what_is_shuffled_is_shuffled_once(sources, before):
    """A second shuffle by disk or network might give rows of one label in another
    order.
    """
    graphs = []

    def get(graph, keys, **options):
        graphs.append(
            graph.__dask_graph__() if hasattr(graph, "__dask_graph__") else graph
        )
        return dask.get(graph, keys, **options)

    with dask.config.set({"scheduler": get, "dataframe.shuffle.method": "disk"}):
        frame = MOVED[before](sources["fsspec"])
        frame.assign(v=VALUES["counts"](frame)).compute()
        frame.compute()
    beside, alone = (
        {key[0] for key in graph if "diskshuffle" in key[0]}
        for graph in (graphs[-2], graphs[-1])
    )
    assert len(beside) == len(alone) > 0
