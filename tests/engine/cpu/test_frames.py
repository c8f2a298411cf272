"""Coordinates of frames of pandas: where they lie, if nothing is to be converted, and
never written to.
"""

import itertools
import time

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401  (verbs of frames)
from dask_simjoin.engine import process
from dask_simjoin.engine.cpu import frames
from dask_simjoin.engine.cpu.frames import FRAMES
from tests.support.profiles import every_nth, in_turns

X = np.random.default_rng(0).uniform(50, 60, (800, 5))

ON = tuple("abcde")


def whole():
    return pd.DataFrame({name: X[:, k].copy() for k, name in enumerate(ON)})


def of_rows():
    """The numbers of a row side by side."""
    return pd.DataFrame(X.copy(), columns=list(ON))


def for_reading():
    x = np.asfortranarray(X)
    x.flags.writeable = False
    return pd.DataFrame(x, columns=list(ON), copy=False)


FRAMES_OF = {
    "whole": whole,
    "rows": of_rows,
    "read only": for_reading,
    "more columns": lambda: whole().assign(text="a"),
    "other order": lambda: whole()[list("edcba")],
    "float32": lambda: whole().astype({"b": "float32"}),
    "integers": lambda: whole().round().astype({"b": "int64"}),
    "missing": lambda: whole().astype({"c": "Float64"}),
    "blocks": lambda: whole()[["a", "b"]].assign(c=X[:, 2], d=X[:, 3], e=X[:, 4]),
    "part": lambda: whole().iloc[100:600],
    "every other": lambda: whole().iloc[::2],
    "narrow": lambda: whole().astype("float32"),
    "narrow part": lambda: whole().astype("float32").iloc[100:600].assign(id=1),
    "whole numbers": lambda: whole().round().astype("int64"),
    "empty": lambda: whole().iloc[:0],
}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("kind", FRAMES_OF)
def test_coordinates_are_those_of_the_columns(kind, together, monkeypatch):
    monkeypatch.setattr(frames, "FEW", len(ON) + (not together))
    frame = FRAMES_OF[kind]()
    x = FRAMES.coordinates(frame, ON)
    assert x.dtype == np.float64 and x.flags.f_contiguous and x.flags.writeable
    assert np.array_equal(
        x, np.column_stack([frame[name].to_numpy(np.float64) for name in ON])
    )


def test_nothing_is_copied_where_nothing_is_converted():
    frame = whole()
    assert np.shares_memory(FRAMES.coordinates(frame, ON), frame.to_numpy())
    assert not np.shares_memory(FRAMES.coordinates(frame, ON[:4]), frame.to_numpy())
    other = for_reading()
    assert not np.shares_memory(FRAMES.coordinates(other, ON), other.to_numpy())


@in_turns(
    1,
    kind=["whole", "rows", "more columns"],
    metric=["euclidean", "manhattan", "cosine", "haversine"],
)
def test_verbs_leave_frames_as_they_are(kind, metric):
    frame = FRAMES_OF[kind]()
    options = {
        "on": list(ON[:2]) if metric == "haversine" else list(ON),
        "metric": metric,
    }
    if metric == "haversine":
        frame = frame[list(ON[:2])]
    before, eps = frame.copy(), {"cosine": 1e-3, "haversine": 1e5}.get(metric, 2.0)
    assert len(
        frame.simjoin.self_join(eps, return_distance=True, dropna=True, **options)
    )
    for verb in ("count_pairs", "neighbor_counts", "dbscan", "neighbor_graph"):
        getattr(frame.simjoin, verb)(eps, **options)
    frame.simjoin.join(frame, eps, **options)
    frame.simjoin.knn_join(k=3, **options)
    frame.simjoin.k_distances(3, **options)
    pd.testing.assert_frame_equal(frame, before)


RNG = np.random.default_rng(1)
KINDS = [
    lambda n: RNG.normal(size=n),
    lambda n: RNG.integers(-9, 9, n).astype("i2"),
    lambda n: np.arange(n) % 2 == 0,
    lambda n: pd.date_range("2020", periods=n, unit="us"),
    lambda n: pd.date_range("2020", periods=n, tz="Europe/Paris"),
    lambda n: pd.Series([f"a{k}" for k in range(n)], dtype=object),
    lambda n: pd.Series([f"a{k}" for k in range(n)]),
    lambda n: pd.Categorical([k % 3 for k in range(n)]),
    lambda n: pd.array([None, *range(n - 1)], dtype="Int64"),
]
LAYOUTS = {
    "one kind": [0] * 150,
    "runs of kinds": sorted([*range(len(KINDS))] * 70),
    "kinds in turns": [*range(len(KINDS))] * 20,
}


def many_columns(layout, rows=40):
    columns = {("c", k): KINDS[kind](rows) for k, kind in enumerate(LAYOUTS[layout])}
    made = pd.concat([pd.Series(column) for column in columns.values()], axis=1)
    made.columns = pd.Index(list(columns), tupleize_cols=False)
    return made


@in_turns(
    1, layout=list(LAYOUTS), places=[np.zeros(0, np.int32), np.array([3, 0, 3, 39])]
)
def test_many_columns_are_taken_like_single_ones(layout, places):
    frame = many_columns(layout)
    names = {f"{name[1]}_left": name for name in frame.columns[::-1]}
    names["again"] = frame.columns[5]
    made = FRAMES.result(FRAMES.columns_at(frame, names, places), len(places))
    single = {
        called: FRAMES.values(frame, name, places) for called, name in names.items()
    }
    index = pd.RangeIndex(len(places))
    wanted = pd.concat(
        [
            pd.Series(values, index, frame[names[called]].dtype, called)
            for called, values in single.items()
        ],
        axis=1,
    )
    pd.testing.assert_frame_equal(made, wanted)


@pytest.mark.parametrize(
    ("layout", "pairs"),
    every_nth(
        2, [("one kind", "unique"), ("one kind", "both"), ("kinds in turns", "both")]
    ),
)
def test_many_kept_columns(layout, pairs):
    kept = many_columns(layout)
    kept.columns = [f"k{n}" for n in range(kept.shape[1])]
    frame = pd.concat(
        [pd.DataFrame(RNG.random((40, 2)), columns=["x", "y"]), kept], axis=1
    )
    options = {"on": ["x", "y"], "pairs": pairs}
    found = frame.simjoin.self_join(0.3, keep=list(kept), **options)
    wanted = frame.simjoin.self_join(0.3, **options)
    for side in ("left", "right"):
        rows = kept.loc[wanted[side]].reset_index(drop=True).add_suffix(f"_{side}")
        wanted = pd.concat([wanted, rows], axis=1)
    pd.testing.assert_frame_equal(found, wanted)
    lazy = dd.from_pandas(frame, npartitions=3).simjoin.self_join(
        0.3, keep=list(kept), **options
    )
    some = lazy.compute()
    assert some.dtypes.equals(lazy.dtypes)
    some = some.sort_values(["left", "right"], ignore_index=True).astype(found.dtypes)
    wanted = wanted.sort_values(["left", "right"], ignore_index=True)
    pd.testing.assert_frame_equal(some, wanted)


def test_nearest_rows_with_many_kept_columns():
    kept = many_columns("kinds in turns")
    kept.columns = [f"k{n}" for n in range(kept.shape[1])]
    frame = pd.concat([pd.DataFrame({"x": RNG.random(40)}), kept], axis=1)
    found = frame.simjoin.knn_join(k=2, on="x", keep=list(kept))
    for side in ("left", "right"):
        rows = kept.loc[found[side]].reset_index(drop=True).add_suffix(f"_{side}")
        pd.testing.assert_frame_equal(found[rows.columns], rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", every_nth(2, ["self_join", "left join", "knn_join", "sets"])
)
def test_many_kept_columns_are_fast(verb):
    """One by one, or comparing all pairs of columns, these verbs took 2 to 10 seconds."""
    frame = pd.DataFrame(
        RNG.random((40, 5_000)), columns=[f"c{k}" for k in range(5_000)]
    )
    frame["t"] = [f"a{k % 9} b" for k in range(40)]
    keep, near = list(frame)[:-1], {"on": ["c0", "c1"]}
    calls = {
        "self_join": lambda keep: frame.simjoin.self_join(0.1, keep=keep, **near),
        "left join": lambda keep: frame.simjoin.join(
            frame, 0.1, how="left", keep=keep, **near
        ),
        "knn_join": lambda keep: frame.simjoin.knn_join(k=2, keep=keep, **near),
        "sets": lambda keep: frame.simjoin.set_self_join(
            "t", 1.0, tokenizer="words", keep=keep
        ),
    }
    calls[verb](keep[:2])
    begin = time.process_time()
    found = calls[verb](keep)
    assert time.process_time() - begin < 1.5
    assert found.shape[1] >= 2 * len(keep)


def parts_of_several_dtypes():
    rows = pd.DataFrame(
        {
            "left": np.arange(900),
            "far": np.linspace(0, 1, 900),
            "near": np.arange(900) % 7 == 0,
            "day": pd.date_range("2020", periods=900),
            "small": np.arange(900, dtype=np.int16),
        }
    )
    cuts = [0, 1, 300, 300, 899, 900]
    return [rows[a:b].reset_index(drop=True) for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_frames_are_stacked_as_by_pandas(threads, monkeypatch):
    monkeypatch.setattr(process, "MIN_PART", 50)
    parts = parts_of_several_dtypes()
    found = frames.stacked_by_threads(parts, threads)
    pd.testing.assert_frame_equal(found, pd.concat(parts), check_freq=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part.assign(left=part.left.astype(object)),
        lambda part: part.assign(left=part.left.astype("Int64")),
        lambda part: part.assign(left=part.left.astype(np.int32)),
        lambda part: part.rename(columns={"far": "away"}),
        lambda part: part[["far", "left", "near", "day", "small"]],
        lambda part: part.set_axis(part.index + 1),
        lambda part: part.set_axis(part.index.astype(str)),
        lambda part: part.rename_axis("row"),
    ],
)
@pytest.mark.parametrize("place", [0, 4])
def test_frames_that_differ_are_left_to_pandas(change, place):
    parts = parts_of_several_dtypes()
    parts[place] = change(parts[place])
    assert frames.stacked_by_threads(parts, 2) is None
