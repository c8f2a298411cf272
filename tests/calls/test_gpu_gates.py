"""Conditions on cuDF frames give the pairs that they give on pandas frames."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")
pytest.importorskip("dask_cudf")

from dask_simjoin.errors import ColumnError, OptionError
from tests.support.gpu_frames import computed, lay
from tests.support.gpu_programs import join_programs
from tests.support.oracle import as_set

pytestmark = pytest.mark.gpu

HOW = ["cudf", "dask-3"]
ON = {"on": ["x", "y"], "dropna": True}


def programs():
    return join_programs([3])


def table(n, seed, unit="ns", zone=None):
    """Return positions of ships, with times, prices and missing values."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.integers(0, 20, (n, 2)) / 4, columns=["x", "y"])
    since = pd.to_timedelta(rng.integers(0, 600, n), unit="s")
    when = pd.Series(pd.Timestamp("2024-02-29", tz=zone) + since)
    frame["t"] = when.dt.as_unit(unit)
    frame["age"] = pd.Series(since).dt.as_unit(unit)
    frame["price"] = rng.integers(0, 40, n) / 4
    frame["ship"] = [f"ship {k}" for k in rng.integers(0, 4, n)]
    frame["port"] = rng.integers(0, 3, n)
    frame.loc[::11, ["t", "age", "ship"]] = None
    frame.loc[5::13, "price"] = np.nan
    return frame


OPTIONS = [
    {"within": {"t": "1 min"}},
    {"within": {"t": ("-2 min", "0 s"), "price": "25 %"}},
    {"within": {"age": "90 s"}, "different": "ship"},
    {"within": {"price": 2}, "different": ["ship", "port"]},
    {"different": "port", "by": "ship"},
]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("options", OPTIONS)
def test_joins_and_counts(options, how):
    left, right = table(150, 1, "ns"), table(120, 2, "s")
    lazy, other = lay(left, how), lay(right, how)
    for verb in ("join", "neighbor_counts"):
        given = {"eps": 0.5, **ON, **options}
        want = getattr(left.simjoin, verb)(other=right, **given)
        found = computed(getattr(lazy.simjoin, verb)(other=other, **given))
        if verb == "join":
            assert as_set(found) == as_set(want) and len(found) == len(want) > 0
        else:
            assert found.tolist() == want.tolist()
    both = {"pairs": "both", **given}
    number = lazy.simjoin.count_pairs(**both)
    number = number.compute() if hasattr(number, "compute") else number
    assert int(number) == left.simjoin.count_pairs(**both)


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s"])
def test_times_with_a_zone(unit):
    frame = table(100, 3, unit, "Europe/Berlin")
    given = {"eps": 0.5, "within": {"t": "30 s"}, **ON}
    want = frame.simjoin.self_join(**given)
    found = computed(cudf.from_pandas(frame).simjoin.self_join(**given))
    assert as_set(found) == as_set(want) and len(want)


def test_a_distance_for_each_row():
    frame = table(100, 4)
    frame["r"] = np.arange(100) % 3 / 2
    given = {"eps": "r", "pairs": "both", "within": {"t": ("0 s", "5 min")}, **ON}
    want = frame.simjoin.self_join(**given)
    found = computed(cudf.from_pandas(frame).simjoin.self_join(**given))
    assert as_set(found) == as_set(want) and len(want)


def test_neighbor_graphs():
    frame = table(100, 6)
    given = {"within": {"t": "2 min"}, "different": "ship", **ON}
    want = frame.simjoin.neighbor_graph(0.5, **given)
    found = cudf.from_pandas(frame).simjoin.neighbor_graph(0.5, **given).get()
    assert want.nnz and (found != want).nnz == 0


def test_what_is_refused():
    frame = cudf.from_pandas(table(20, 5, "s"))
    frame["n"] = 2**53
    with pytest.raises(ColumnError, match="2\\*\\*53"):
        frame.simjoin.self_join(1, within={"n": 1}, **ON)
    other = cudf.from_pandas(table(20, 5, "ns"))
    frame["t"] = cudf.Series([2**40] * 20).astype("datetime64[s]")
    with pytest.raises(ColumnError, match="beyond the range"):
        frame.simjoin.join(other, 1, within={"t": "1 s"}, **ON)
    with pytest.raises(OptionError, match="frames of pandas"):
        frame.simjoin.knn_join(k=1, max_distance=1, within={"t": "1 s"}, **ON)
