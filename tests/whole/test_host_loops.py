"""Nested loops on CPUs, of table 5.2 of the thesis: their pairs are those of brute
force.
"""

import json

import numpy as np
import pytest

from benchmarks.papers import host_loops
from tests.support.oracle import brute_force, squared_distances
from tests.support.profiles import in_turns
from tests.whole.test_benchmarks import run


def pairs_of(x, eps, threads):
    """The pairs, each once; a count gives the sizes of the arrays."""
    columns = np.ascontiguousarray(x.T)
    sizes = [number for number, *_ in host_loops.self_join(columns, eps, [0] * threads)]
    parts = host_loops.self_join(columns, eps, sizes)
    assert [number for number, *_ in parts] == sizes
    found = [
        pair
        for _, *sides in parts
        for pair in zip(*(side.tolist() for side in sides), strict=True)
    ]
    assert len(set(found)) == len(found) and all(left < right for left, right in found)
    return set(found)


@in_turns(1, threads=[1, 2, 3], dims=[1, 3, 8])
def test_pairs_are_those_of_brute_force(dims, threads):
    rng = np.random.default_rng(dims)
    for rows in (1, 2, host_loops.GROUP + 1, host_loops.BLOCK + 100):
        x = (rng.normal(size=(rows, dims)) + 100).astype(np.float32)
        x[rows // 2 : rows // 2 + rows // 4] = x[: rows // 4]  # duplicates
        for eps in (0.0, 0.1, 0.3 * dims):
            assert pairs_of(x, eps, threads) == brute_force(x, eps)


@pytest.mark.parametrize("eps", [1.0, 2**0.5, 3**0.5, 0.3, 1e-30])
def test_ties_are_decided_as_the_package_decides(eps):
    """Of rows on a lattice many distances are eps, but for rounding; tiny squares
    underflow in float32.
    """
    x = np.random.default_rng(0).integers(0, 5, (400, 3)) * min(eps, 1.0)
    x = x.astype(np.float32)
    for one in (
        eps,
        float(np.float32(eps)),
        np.nextafter(eps, 0),
        np.nextafter(eps, 2),
    ):
        assert pairs_of(x, one, 1) == pairs_of(x, one, 2) == brute_force(x, one)
    assert brute_force(x, float(np.float32(eps)))


def test_totals_near_the_threshold_are_rounded_as_the_package_rounds():
    """Each eps is the distance of a pair; a fused multiply-add would round some totals
    differently.
    """
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(60, 8)) * 10.0 ** rng.integers(-3, 1, (60, 8))).astype(
        np.float32
    )
    for eps in np.sqrt(squared_distances(x, x)[:20][:, 20:].ravel()):
        assert pairs_of(x, float(eps), 1) == brute_force(x, float(eps))


def test_the_table_is_measured_without_a_gpu(tmp_path, monkeypatch, capsys):
    output = tmp_path / "found.json"
    words = [
        "--paper",
        "kmeans",
        "--model",
        "--quick",
        "--figure",
        "T5.2",
        "--output",
        output,
    ]
    assert not run(monkeypatch, "benchmarks", "papers", *words)
    (row,) = json.loads(output.read_text())["runs"]
    ways = ["CPU-NLJ", "OMP-CPU-NLJ"][: row["threads"]]
    assert list(row["seconds"]) == list(row["ratios"]) == ways
    assert all(
        one["seconds"] > 0 and len(one["runs"]) == 1 for one in row["seconds"].values()
    )
    assert "CPU-NLJ" in capsys.readouterr().out and row["pairs"] > 0


def test_several_cores_and_a_gpu_are_compared_with_one_core(monkeypatch):
    """Here pandas stands for cuDF."""
    on_cpu = host_loops.lists.frame_of
    monkeypatch.setattr(
        host_loops.lists, "frame_of", lambda *given: on_cpu(*given[:4], "cpu", 0)
    )
    monkeypatch.setattr(host_loops.os, "sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr(host_loops, "LARGEST", 1000)
    for rows, ways in ((900, ["CPU-NLJ", "OMP-CPU-NLJ"]), (1100, ["OMP-CPU-NLJ"])):
        row = host_loops.result(rows, host_loops.PUBLISHED[500_000], "gpu", 2)
        assert row["threads"] == 3 and list(row["seconds"]) == [
            *ways,
            "GPU-NLJ",
            "GPU-INLJ",
        ]
        assert list(row["ratios"]) == (list(row["seconds"]) if rows == 900 else [])
        line = host_loops.line(row)
        assert "OMP-CPU-NLJ on 3 threads" in line and "(published 13.87x)" in line
