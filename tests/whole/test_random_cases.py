"""Random histories of frames, verbs and partitionings; see `tests.checks.random_cases`
for many more of them."""

import ast

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")

from tests.checks.random_cases import run
from tests.support.frames import split
from tests.support.paths import ROOT
from tests.support.profiles import every_nth, in_turns
from tests.support.random_after import RESULTS, compared

SEED = 11


@pytest.mark.parametrize(
    "case",
    [*range(5), *(pytest.param(k, marks=pytest.mark.slow) for k in range(5, 60))],
)
def test_random_case(case):
    outcome, what = run(SEED, case)
    assert outcome != "failed", (
        f"python -m tests.checks.random_cases --seed {SEED} --case {case}\n{what}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "case"), [(21, 3344), (3, 363)])
def test_groups_stay_beside_rows_of_which_dask_filters_some(seed, case):
    """Dask moves a filter below a repartition for the rows, but not for their groups."""
    assert run(seed, case)[0] == "compared"


@pytest.mark.slow
def test_most_cases_are_compared_and_come_out_alike_again():
    outcomes = [run(SEED, case) for case in range(3)]
    assert outcomes == [run(SEED, case) for case in range(3)]
    assert sum(outcome == "compared" for outcome, _ in outcomes) >= 2


def test_digests_of_shuffled_frames_are_equal_in_each_run():
    digests = set()
    for _ in range(2):
        RESULTS.take()
        # frames merged, persisted and merged again
        assert run(1, 696, "tasks")[0] == "compared"
        digests.add(RESULTS.take())
    assert len(digests) == 1 and digests != {RESULTS.take()}


def imports_of(module):
    """Names of the modules that a module of the tests imports, and those that these
    import.
    """
    found, left = set(), [module]
    while left:
        path = ROOT / (left.pop().replace(".", "/") + ".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = (
                    [node.module]
                    if isinstance(node, ast.ImportFrom)
                    else [a.name for a in node.names]
                )
                left += [
                    name
                    for name in names
                    if name.startswith("tests.") and name not in found
                ]
                found.update(names)
    return found


def test_random_cases_know_public_modules_only():
    public = {
        "dask_simjoin",
        "dask_simjoin.cluster",
        "dask_simjoin.errors",
        "dask_simjoin.metrics",
    }
    imported = {
        name
        for name in imports_of("tests.checks.random_cases")
        if name.startswith("dask_simjoin")
    }
    assert imported <= public


@pytest.mark.parametrize(
    "changed", [{"left": [0, 2]}, {"right": [1, 1]}, {"distance": [0.5, 1.0]}]
)
def test_differences_are_found(changed):
    pairs = pd.DataFrame(
        {"left": [0, 1], "right": [1, 2], "distance": [0.5, np.nextafter(1.0, 2)]}
    )
    compared(pairs, pairs.iloc[::-1], near=False, index=False)
    for other in (
        pairs.assign(**changed),
        pairs.iloc[:1],
        pairs[["right", "left", "distance"]],
    ):
        with pytest.raises(AssertionError):
            compared(pairs, other, near=False, index=False)


# --- what users' frames are called, and named by
# -----------------------------------------------------

POINTS = pd.DataFrame(
    np.random.default_rng(0).integers(0, 6, (30, 2)) * 1.0, columns=["x", "y"]
)
SPATIAL = {"partitioning": "spatial", "blocksize": 700}
IDS = {
    "categories": pd.Categorical(
        [f"c{k}" for k in range(30)], [f"c{k}" for k in range(30)][::-1]
    ),
    "ordered categories": pd.Categorical(range(30), range(29, -1, -1), ordered=True),
    "zoned times": pd.date_range("2020", periods=30, tz="Asia/Tokyo"),
    "seconds": pd.date_range("2020", periods=30).astype("datetime64[s]"),
    "durations": pd.to_timedelta(np.arange(30), unit="h"),
    "periods": pd.period_range("2020", periods=30, freq="D"),
    "intervals": pd.interval_range(0, 30),
    "nullable": pd.array(range(30), dtype="Int64"),
    "Arrow's strings": pd.array([f"a{k}" for k in range(30)], dtype="string[pyarrow]"),
    "Arrow's times": pd.array(
        pd.date_range("2020", periods=30), dtype="timestamp[ns][pyarrow]"
    ),
    "large": np.arange(30, dtype="uint64") + np.uint64(2**63),
    "float32": np.arange(30, dtype="float32"),
    "complex": np.arange(30) * 1j,
}


@in_turns(1, kind=every_nth(4, IDS), place=["column", "index"])
def test_ids_of_any_kind(kind, place):
    frame = POINTS.assign(name=IDS[kind])
    frame, how = (
        (frame, {"id": "name"}) if place == "column" else (frame.set_index("name"), {})
    )
    own, names = (
        how | {"on": ["x", "y"]},
        frame["name"].tolist() if how else frame.index.tolist(),
    )
    ddf = split(frame, [11, 11, 20])
    pairs = ddf.simjoin.self_join(1.0, **own, **SPATIAL)
    found, want = pairs.compute(), POINTS.simjoin.self_join(1.0)
    assert set(zip(found["left"], found["right"], strict=True)) == {
        (names[i], names[j]) for i, j in zip(want["left"], want["right"], strict=True)
    }
    assert found.dtypes.tolist() == pairs.dtypes.tolist() and len(found) == len(want)
    assert found["left"].dtype == (frame["name"].dtype if how else frame.index.dtype)
    counts = ddf.simjoin.neighbor_counts(1.0, on=["x", "y"], **SPATIAL).compute()
    assert counts.tolist() == POINTS.simjoin.neighbor_counts(1.0).tolist()
    assert counts.index.equals(frame.index)


@pytest.mark.parametrize(
    "name",
    every_nth(
        4, ["left", "distance", "neighbors", "index", "_partitions", 0, ("a", 1), 2.5]
    ),
)
def test_columns_of_any_name(name):
    """Also that of the index."""
    frame = POINTS.rename(columns={"x": name})
    frame.index.name = name
    ddf = dd.from_pandas(frame, npartitions=3)
    pairs = len(POINTS.simjoin.self_join(1.0))
    options = {"on": [name, "y"], **SPATIAL}
    for verb, *of in (("neighbor_counts", 1.0), ("dbscan", 1.0, 3), ("k_distances", 3)):
        want = getattr(POINTS.simjoin, verb)(*of)
        found = getattr(ddf.simjoin, verb)(*of, **options).compute()
        assert found.tolist() == want.tolist() and found.index.name == name
    assert len(ddf.simjoin.self_join(1.0, **options)) == pairs
    assert len(ddf.simjoin.knn_join(ddf, 1, **options)) == 30
    assert len(ddf.simjoin.join(ddf, 1.0, how="left", **options)) == 2 * pairs + 30


@pytest.mark.parametrize("name", [("a", 1), "x"])
def test_rows_are_numbered_beside_a_column_of_any_name(name):
    """Dask loses a column that is read alone and named by a tuple."""
    ddf = dd.from_pandas(
        POINTS.rename(columns={"x": name}), npartitions=3
    ).simjoin.with_row_id()
    assert ddf.head(7, npartitions=-1)["row_id"].tolist() == list(range(7))
    assert (
        ddf[ddf["y"] > 2][["row_id"]].compute()["row_id"].tolist()
        == np.flatnonzero(POINTS.y > 2).tolist()
    )
