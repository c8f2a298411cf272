"""Runs that stand for figures of LSS and of the k-means thesis, with the papers' rows,
and their points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.papers import files
from dask_simjoin.methods import KMeans, NestedLoop, ZOrder

PLANTED = 0.01
"""Rows that have a copy at a distance of up to twice eps: the papers' uniform rows have
next to no pairs.
"""

MILLION = 1_000_000
LISTS = (1, 3, 5, 9, 17, 33, "auto")
"""Numbers of lists; the numbers of the papers' heuristic are odd here."""


COREL = ("ColorHist", "ColorMoments", "CoocTexture", "LayoutHist")
"""Figure 4 and table I of LSS, if there are files; the paper's distances are in a plot
without numbers.
"""

CLUSTERS = {"clusters": 10, "100 clusters": 100}
"""Sets of points in clusters, and how many."""


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes
    ----------
    paper, figure, data, setting : str
    rows : int
        As many as the paper has; a tenth of them on a CPU, unless `same` says
        otherwise.
    dims : int
    eps : float
    method : Any
        A method with its options.
    published : float or None
        How many times as fast as the figure's first run of the same points and eps; of
        "recall" the recall.
    other : int
        Rows of a second table that the first one is joined with; 0: there is none.
    approximate : bool
    largest : int
        Rows beyond which it would take too long.
    same : bool
        Whether a CPU has all rows, as the figure is one of numbers of rows.
    """

    paper: str
    figure: str
    data: str
    rows: int
    dims: int
    eps: float
    setting: str
    method: Any
    published: float | None = None
    other: int = 0
    approximate: bool = False
    largest: int = 8 * MILLION
    same: bool = False


def points(data: str, rows: int, dims: int, eps: float, seed: int = 0) -> np.ndarray:
    """Return uniform rows, some with a near copy, ten clusters, or what stands in for
    colors of images.

    That is of heavy tails and few directions, as image features are; the thesis's file
    is not at hand.
    """
    if files.is_file(data):
        return files.points_of_file(data, rows)[:, :dims].astype(np.float32)
    rng = np.random.default_rng(seed)
    if data in CLUSTERS:
        number = CLUSTERS[data]
        centres = np.random.default_rng(0).uniform(0, 10, (number, dims))
        return (
            centres[rng.integers(number, size=rows)] + rng.normal(0, 0.3, (rows, dims))
        ).astype(np.float32)
    if data == "colours":
        mixed = rng.standard_t(4, (rows, dims)) @ np.random.default_rng(0).normal(
            0, 0.2, (dims, dims)
        )
        return mixed.astype(np.float32)
    if data == "sphere":
        x = rng.normal(size=(rows, dims))
        return (x / np.linalg.norm(x, axis=1)[:, None]).astype(np.float32)
    x = rng.uniform(size=(rows, dims)) * (10.0 if data == "uniform10" else 1.0)
    if data == "planted":
        few = int(rows * PLANTED)
        step = rng.normal(size=(few, dims))
        step *= (rng.uniform(0, 2 * eps, few) / np.linalg.norm(step, axis=1))[:, None]
        x[-few:] = x[:few] + step
    return x.astype(np.float32)


def lss() -> Iterator[Run]:
    """Figures 3 and 5 to 8 of LSS, and its self-join; uniform rows, mostly with planted
    pairs.
    """
    for data in ("planted", "uniform"):
        for rows in (4096, 65_536, 262_144, MILLION, 4 * MILLION):
            of = "lss", "3a", data, rows, 16, 0.1
            if data == "planted":
                yield Run(*of, "nested loop", NestedLoop(), largest=MILLION)
            yield Run(*of, "lists=auto", ZOrder())
        for eps in (0.01, 0.05, 0.1, 0.2, 0.35):
            of = "lss", "3b", data, 262_144, 16, eps
            if data == "planted":
                yield Run(*of, "nested loop", NestedLoop())
            yield Run(*of, "lists=auto", ZOrder())
    every = ZOrder(lists="d+1")
    # of the first one nothing but the building of lists is left
    for eps in (1e-6, 0.05, 0.1, 0.2, 0.3, 0.4):
        yield Run("lss", "5a", "uniform", 262_144, 16, eps, "lists=d+1", every)
    for dims in (2, 4, 8, 16, 32, 64, 128, 256):
        for eps in (1e-6, 0.1):
            yield Run("lss", "5b", "uniform", 65_536, dims, eps, "lists=d+1", every)
    for rows in (1000, 10_000, 100_000, MILLION):
        for side in ("left", "right"):
            method, setting = (
                ZOrder(lists="log", index=side),
                f"sorted: {side}, few left",
            )
            yield Run(
                "lss", "6", "uniform", rows, 16, 0.1, setting, method, other=MILLION
            )
    log, random = ZOrder(lists="log"), ZOrder(lists="d+1", shifts="random")
    for rows in (4096, 65_536, 262_144, MILLION):
        for setting, method in (("d+1", every), ("log", log), ("random", random)):
            yield Run("lss", "7a", "planted", rows, 16, 0.1, f"lists={setting}", method)
    for eps, published in (
        (0.01, 3.0),
        (0.05, None),
        (0.1, None),
        (0.2, None),
        (0.4, 0.5),
    ):
        of = "lss", "7b", "planted", 262_144, 16, eps
        yield Run(*of, "lists=d+1", every)
        yield Run(*of, "lists=log", log, published)
        yield Run(*of, "lists=random", random)
    for rows in (65_536, 262_144, MILLION):
        for number in LISTS[1:]:
            yield Run(
                "lss",
                "8ab",
                "planted",
                rows,
                16,
                0.1,
                f"lists={number}",
                ZOrder(lists=number),
            )
    for eps in (0.01, 0.05, 0.1, 0.2):
        for number in (1, 2, *LISTS[1:]):
            yield Run(
                "lss",
                "8c",
                "planted",
                65_536,
                16,
                eps,
                f"lists={number}",
                ZOrder(lists=number),
            )
    for dims in (16, 64, 256, 1024):
        for number in (3, 5, 6, *LISTS[3:5], "auto"):
            yield Run(
                "lss",
                "8d",
                "planted",
                131_072,
                dims,
                0.1,
                f"lists={number}",
                ZOrder(lists=number),
            )
    for name in COREL:
        for eps in (0.05, 0.1, 0.2) if files.is_file(name) else ():
            of = "lss", "4", name + files.SCALED, files.ALL, files.POINTS[name], eps
            yield Run(*of, "nested loop", NestedLoop())
            yield Run(*of, "lists=auto", ZOrder())
    for eps in (0.05, 0.1, 0.2, 0.4):
        for walk in ("full", "half"):
            method = ZOrder(lists=17, walk=walk)
            yield Run(
                "lss",
                "self",
                "uniform",
                65_536,
                16,
                eps,
                f"walk={walk}",
                method,
                same=True,
            )


def kmeans() -> Iterator[Run]:
    """Yield table 5.1 and figures 5.2 to 5.17 of the thesis, grouped by kind of run."""
    # GPU-INLJ and KMEANS-JOIN over GPU-NLJ: 5.2, 5.3, 5.6, 5.7 are of the same runs
    faster = {
        100_000: (3.02 / 1.82, 3.02),
        200_000: (4.61 / 3.07, 4.61),
        300_000: (4.96 / 3.22, 4.96),
        400_000: (6.21 / 3.98, 6.21),
        500_000: (7.37 / 4.69, 7.37),
    }
    loop = NestedLoop(schedule="triangle", block=32)
    thesis = KMeans(clusters=20, windows="thesis", inner="nested_loop")
    own = KMeans(clusters=20)
    for rows, (rotation, clusters) in faster.items():
        of = "kmeans", "T5.1", "clusters", rows, 8, 0.5
        yield Run(*of, "NLJ", loop)
        yield Run(*of, "INLJ", replace(loop, schedule="rotation"), rotation)
        yield Run(*of, "thesis windows", thesis, clusters)
        yield Run(*of, "one-sided windows", replace(thesis, windows="one-sided"))
        yield Run(*of, "one-sided, tiles", own)
    large = "kmeans", "larger", "clusters", 8 * MILLION, 8, 0.2
    yield Run(*large, "one-sided, tiles, k=20", own)
    yield Run(*large, "one-sided, tiles, k=256", replace(own, clusters=256))
    colours = (
        ("ColorMoments", files.ALL)
        if files.is_file("ColorMoments")
        else ("colours", 68_040)
    )
    sets = (
        ("5.8-10", "clusters", 100_000, 8),
        ("5.11-12", *colours, 9),
        ("5.13-14", "uniform10", 100_000, 8),
    )
    for figure, data, rows, dims in sets:
        for eps in (0.2, 0.4, 0.6, 0.8, 1.0):
            of = "kmeans", figure, data, rows, dims, eps
            yield Run(*of, "INLJ", NestedLoop(block=32))
            for windows in ("thesis", "two-sided", "one-sided"):
                yield Run(*of, windows, replace(thesis, windows=windows))
    for _, data, rows, dims in sets:
        for k in (5, 10, 20, 40, 64, 256, 1024):
            for windows in ("thesis", "one-sided"):
                if windows == "one-sided" or k <= 256:
                    method = replace(thesis, clusters=k, windows=windows)
                    yield Run(
                        "kmeans",
                        "5.9, 5.15",
                        data,
                        rows,
                        dims,
                        0.5,
                        f"{windows}, k={k}",
                        method,
                    )
    for data, rows, dims in (
        ("clusters", 200_000, 8),
        ("clusters", 500_000, 8),
        (*colours, 9),
    ):
        for k in (5, 10, 20, 40, 64):
            of = "kmeans", "5.16-17", data, rows, dims, 0.4, f"no copies, k={k}"
            yield Run(*of, replace(thesis, clusters=k), approximate=True)
    yield from clustered()


def clustered() -> Iterator[Run]:
    """Rows in clusters of 8 to 64 columns, where windows might be the fastest: no
    figure of the thesis.
    """
    for dims, eps in ((8, 0.5), (16, 0.8), (32, 1.6), (64, 2.6)):
        for rows in (100_000, MILLION):
            of = "kmeans", "8 to 64", "clusters", rows, dims, eps
            for k in (10, 20, "auto"):
                yield Run(*of, f"one-sided, tiles, k={k}", KMeans(clusters=k))
    for dims, eps in ((16, 0.8), (64, 2.6)):
        of = "kmeans", "100 clusters", "100 clusters", MILLION, dims, eps
        for k in (100, "auto"):
            yield Run(*of, f"one-sided, tiles, k={k}", KMeans(clusters=k))


RUNS = {"lss": lss, "kmeans": kmeans}
