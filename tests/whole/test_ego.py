"""Super-EGO, a baseline of the papers: its pairs are those of brute force, and of this
package.
"""

import json

import numpy as np
import pytest

from benchmarks.papers import ego, ego_rows
from dask_simjoin.metrics import make_metric
from tests.support.oracle import as_set, brute_force
from tests.support.points import frame_of
from tests.support.profiles import in_turns
from tests.whole.test_benchmarks import run


def pairs_of(x, eps, threads=1):
    """The pairs, each once; those who compare all pairs of rows find them."""
    left, right, compared = ego.self_join(x, eps, threads)
    found = set(zip(left.tolist(), right.tolist(), strict=True))
    assert len(found) == len(left) and (left < right).all()
    assert len(left) <= compared <= len(x) * (len(x) - 1) // 2
    return found


@in_turns(1, dims=[1, 2, 3, 6, 16, 64], threads=[1, 2])
def test_pairs_are_those_of_brute_force(dims, threads):
    rng = np.random.default_rng(dims)
    for rows in (0, 1, 2, ego.SHORT, ego.SHORT + 1, 300):
        x = rng.normal(size=(rows, dims)) * rng.uniform(0.01, 3, dims) + 1e3
        x[rows // 2 : rows // 2 + rows // 4] = x[: rows // 4]  # duplicates
        for eps in (0.0, 0.1, float(dims) ** 0.5, 1e4):
            assert pairs_of(x, eps, threads) == (brute_force(x, eps) if rows else set())


@pytest.mark.parametrize("eps", [1.0, 2**0.5, 3**0.5, 0.1 * 3, 1e-160, 1e-163])
def test_ties_are_decided_as_the_package_decides(eps):
    """Of rows on a lattice many distances are eps, but for rounding; tiny squares
    underflow.
    """
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, (400, 3)) * (
        eps / 3**0.5 if eps == 0.1 * 3 else min(eps, 1.0)
    )
    expected = brute_force(x, eps)
    assert pairs_of(x, eps) == expected == as_set(frame_of(x).simjoin.self_join(eps))
    assert expected


@pytest.mark.slow
def test_a_total_near_the_threshold_is_summed_in_the_order_of_the_columns():
    """Each of these totals is the threshold in one order of the columns, and not in
    another one.
    """
    rng = np.random.default_rng(5)
    near = 0
    for _ in range(100):
        x = np.zeros((2, 6))
        x[1] = rng.uniform(0.1, 1, 6) * 10.0 ** rng.integers(-3, 1, 6)
        orders = [sum(t * t for t in x[1][rng.permutation(6)]) for _ in range(10)]
        near += len(set(orders)) > 1
        for eps in np.sqrt(orders):
            for one in (eps, np.nextafter(eps, 0), np.nextafter(eps, 2)):
                assert pairs_of(x, float(one)) == brute_force(x, float(one))
    assert near > 50


@pytest.mark.parametrize("seed", range(3))
def test_cells_lose_nothing_far_from_the_origin(seed):
    """Rows one eps apart are never two cells apart, where coordinates have few digits
    left.
    """
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 40, (300, 2)).astype(float)
    for offset, eps in ((0.0, 0.1), (1e8, 0.1), (1e15, 1.0), (-1e6, 1e-3)):
        x = offset + steps * eps
        assert pairs_of(x, eps) == brute_force(x, eps)
    # cells would have numbers beyond 2**30
    x = np.concatenate([steps, [[1e300, 0], [1e300, 0.5]]])
    assert pairs_of(x, 1.0) == brute_force(x, 1.0)


def test_cells_are_wider_than_eps():
    """The difference is eps at most; cells of just that width would be two apart after
    rounding.
    """
    eps = 0.5983570298976998
    rows = np.repeat(
        [-20550.79835004296, 31925.711529015254, 31926.30988604515], 4 * ego.SHORT
    )[:, None]
    assert pairs_of(rows, eps) == brute_force(rows, eps)
    side = ego.reach(2, eps * eps)
    cells = np.floor((rows - rows[0]) / side)
    assert (
        cells[-1] - cells[4 * ego.SHORT] == 2 and rows[-1] - rows[4 * ego.SHORT] <= eps
    )


def test_buffers_are_filled_more_than_once(monkeypatch):
    monkeypatch.setattr(ego, "BUFFER", 300)
    x = np.random.default_rng(0).uniform(size=(500, 2))
    assert pairs_of(x, 0.3, threads=2) == brute_force(x, 0.3)


def test_the_order_of_dimensions_prunes():
    """A column that separates nothing comes last, and fewer pairs are compared than as
    given.
    """
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(2000, 4)) * [0.001, 0.001, 0.001, 100]
    eps = 0.5
    threshold = float(make_metric("euclidean").threshold(eps))
    points = ego.ordered(x, eps, threshold)
    assert points.columns[3] == 0 and points.last == 1
    assert ego.self_join(x, eps)[2] < 0.05 * 2000 * 2000 / 2
    cells = [tuple(one) for one in points.cells.tolist()]
    assert cells == sorted(cells)


def test_a_join_that_prunes_nothing_compares_every_pair_once():
    x = np.random.default_rng(0).uniform(size=(300, 8))
    assert ego.self_join(x, 1.0)[2] == 300 * 299 // 2


def test_it_runs_beside_the_package(tmp_path, monkeypatch, capsys):
    found = tmp_path / "found.json"
    arguments = ["--paper", "ego", "--rows", 400, "--repeat", 2, "--output", found]
    # of few dimensions and of many
    arguments += ["--figure", "fig13", "3a", "--data", "Expo2D", "planted"]
    assert not run(monkeypatch, "benchmarks", "papers", *arguments)
    rows = json.loads(found.read_text())["runs"]
    assert {(row["figure"], row["dims"]) for row in rows} == {("fig13", 2), ("3a", 16)}
    for row in rows:
        assert (
            row["rows"] == 400 and 0 < row["compared_ratio"] <= 1 and row["load"] >= 0
        )
        expected = {
            f"{name}, 1" for name in (ego_rows.EGO, ego_rows.AUTO, ego_rows.GRID)
        }
        assert expected <= set(row["seconds"])
        assert (f"{ego_rows.TREE}, 1" in row["seconds"]) == (
            row["dims"] <= ego_rows.TREE_DIMS
        )
        assert all(
            len(way["runs"]) == 2 and way["cpu"] > 0 for way in row["seconds"].values()
        )
    assert "Super-EGO, 1: " in capsys.readouterr().out
