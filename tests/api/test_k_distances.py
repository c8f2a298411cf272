"""Distances to the k-th neighbor with conditions, against all pairs of rows."""

import math

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.errors import OptionError
from tests.support.profiles import every_nth

BOX = 6.0


def differences(x: np.ndarray, boxed: bool) -> np.ndarray:
    """Return the differences of all pairs of rows (n, n, d)."""
    apart = np.abs(x[:, None] - x[None])
    return np.minimum(apart, BOX - apart) if boxed else apart


def distances(x: np.ndarray, metric: str, boxed: bool) -> np.ndarray:
    apart = differences(x, boxed)
    if metric == "canberra":
        sums = np.abs(x)[:, None] + np.abs(x)[None]
        parts = np.divide(apart, sums, out=np.zeros_like(apart), where=sums > 0)
        return parts.sum(2)
    if metric == "manhattan":
        return apart.sum(2)
    return apart.max(2) if metric == "chebyshev" else np.sqrt((apart**2).sum(2))


class Case:
    """A table, options, and the distances that all pairs give."""

    def __init__(self, seed: int) -> None:
        r = self.r = np.random.default_rng(seed)
        n, dims = int(r.integers(1, 50)), int(r.integers(1, 4))
        on = list("xyz")[:dims]
        frame = pd.DataFrame(r.integers(0, 6, (n, dims)).astype(float), columns=on)
        frame["t"], frame["u"] = r.integers(0, 10, n), r.integers(0, 3, n)
        frame["g"] = r.choice(np.array(["a", "b", None], object), n, p=[0.5, 0.4, 0.1])
        if seed % 4 == 0:
            frame.loc[r.random(n) < 0.2, "x"] = math.nan
        self.frame, self.k = frame, int(r.integers(1, 5))
        metric = str(r.choice(["euclidean", "manhattan", "chebyshev", "canberra"]))
        most = float(r.choice([1.0, 2.0])) if r.random() < 0.6 else None
        options: dict = {"on": on, "metric": metric, "max_distance": most}
        if r.random() < 0.6:
            options["within"] = {"t": 2 if r.random() < 0.5 else (-3, 1)}
        if r.random() < 0.4:
            options["different"] = "u"
        if most is not None and r.random() < 0.5:
            options["by"] = "g"
        if metric != "canberra" and r.random() < 0.3:
            options["box"] = BOX
        self.options = options
        self.want = self._wanted(frame[on].to_numpy())

    def _wanted(self, x: np.ndarray) -> np.ndarray:
        options, frame, n = self.options, self.frame, len(x)
        away = distances(x, options["metric"], "box" in options)
        near, lost = ~np.eye(n, dtype=bool), np.isnan(x).any(axis=1)
        if "within" in options:
            t, rule = frame["t"].to_numpy(), options["within"]["t"]
            low, high = rule if isinstance(rule, tuple) else (-rule, rule)
            near &= (t[None] - t[:, None] >= low) & (t[None] - t[:, None] <= high)
        if "different" in options:
            near &= frame["u"].to_numpy()[None] != frame["u"].to_numpy()[:, None]
        if "by" in options:
            g = frame["g"].to_numpy()
            near &= g[None] == g[:, None]
            lost = lost | frame["g"].isna().to_numpy()
        if options["max_distance"] is not None:
            near &= away <= options["max_distance"]
        near &= ~lost[None]
        away = np.sort(np.where(near, away, math.inf), axis=1)
        found = away[:, self.k - 1] if n >= self.k else np.full(n, math.inf)
        return np.where(lost, math.nan, found)


@pytest.mark.parametrize("seed", every_nth(4, range(120)))
def test_distances_are_those_of_all_pairs(seed):
    case = Case(seed)
    lazy = dd.from_pandas(case.frame, npartitions=min(3, len(case.frame)))
    how = {"dropna": True, **case.options}
    found = [
        case.frame.simjoin.k_distances(case.k, **how),
        case.frame.simjoin.k_distances(case.k, threads=2, **how),
    ]
    with dask.config.set(scheduler="sync"):
        for partitioning in ("auto", "spatial"):
            cut = {"blocksize": "2 KiB", "partitioning": partitioning}
            found.append(lazy.simjoin.k_distances(case.k, **cut, **how).compute())
    for one in found:
        np.testing.assert_allclose(one, case.want, rtol=1e-14)


def test_core_rows_of_clusters_in_groups_and_times():
    """A row is a core row of dbscan if its k-distance is at most eps."""
    r = np.random.default_rng(1)
    frame = pd.DataFrame(r.uniform(0, 3, (200, 2)), columns=["x", "y"])
    frame["t"], frame["g"] = r.integers(0, 20, 200), r.choice(["a", "b"], 200)
    how = {"on": ["x", "y"], "within": {"t": 4}, "by": "g"}
    found = frame.simjoin.k_distances(3, max_distance=1.0, **how)
    counts = frame.simjoin.neighbor_counts(0.4, **how)
    assert ((found <= 0.4) == (counts >= 3)).all() and (found <= 0.4).any()
    assert dask_simjoin.cluster.k_distance_knee(found).eps <= 1.0


def test_groups_need_a_largest_distance():
    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "g": ["a", "a", "b"]})
    with pytest.raises(OptionError, match="by= needs a largest distance here"):
        frame.simjoin.k_distances(1, on="x", by="g")
    found = frame.simjoin.k_distances(1, on="x", by="g", max_distance=5)
    assert found.tolist() == [1.0, 1.0, math.inf]
