"""The figures and tables of the two grid papers: the compared runs, and their published
results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.papers import files
from benchmarks.papers.data import PRESORTED, ROWS
from dask_simjoin.methods import Grid

GPU_JOIN, LOAD_IMBALANCE = "gpu_join", "load_imbalance"


@dataclass(frozen=True)
class Row:
    """One run: a set of points, a distance, and options; compared with its figure's
    first run of that set.

    Attributes
    ----------
    paper, figure : str
    data : str
        The name of a set: see `benchmarks.papers.data`.
    rows : int
        Points.
    eps : float
        A distance; negative: the one within which a point has about as many neighbors.
    setting : str
        Description of the options.
    method : Grid
    published : float or None
        Times as fast as the figure's first run.
    wee : float or None
        Published warp execution efficiency, of a hundred.
    """

    paper: str
    figure: str
    data: str
    rows: int
    eps: float
    setting: str
    method: Grid
    published: float | None = None
    wee: float | None = None


PLAIN = Grid.plain()
FOUR = {"Expo2D": 0.2, "Expo6D": 1.2, "Unif2D": 1.0, "Unif6D": 8.0}
"""The sets and largest distances of tables III to V in the second paper."""

PATTERNS = {  # seconds and efficiency of each set
    "full": ((55.5, 26.5), (42.9, 15.2), (5.7, 75.4), (3.3, 51.3)),
    "unicomp": ((60.9, 13.2), (31.6, 7.8), (4.5, 48.94), (2.1, 19.25)),
    "lid": ((40.4, 18.3), (25.5, 10.0), (4.6, 69.1), (2.4, 40.9)),
}
THREADS = {
    1: PATTERNS["full"],
    8: ((33.6, 40.8), (42.2, 39.27), (4.4, 80.3), (6.2, 60.9)),
}
ORDERS = {
    "given": PATTERNS["full"],
    "workload": ((48.7, 74.6), (19.1, 71.4), (5.9, 75.4), (3.5, 48.2)),
    "queue": ((35.6, 83.2), (13.1, 95.6), (5.6, 83.1), (3.0, 48.4)),
}
SWEEPS = {
    "Expo2D": (0.04, 0.08, 0.12, 0.16, 0.2),
    "Expo6D": (0.3, 0.525, 0.75, 0.975, 1.2),
    "Unif2D": (0.2, 0.4, 0.6, 0.8, 1.0),
    "Unif6D": (2.0, 3.5, 5.0, 6.5, 8.0),
}
BALANCED = {
    "Expo2D": 0.2,
    "Expo3D": 0.3,
    "Expo4D": 0.6,
    "Expo5D": 0.9,
    "Expo6D": 1.2,
    "Unif2D": 1.0,
    "Unif3D": 2.0,
    "Unif4D": 4.0,
    "Unif5D": 6.0,
    "Unif6D": 8.0,
}
"""Figure 13: the largest distances.  The distances of 3 to 5 dimensions are our own."""

FIFTHS = {
    data: SWEEPS.get(data, tuple(round(eps * fifth / 5, 4) for fifth in range(1, 6)))
    for data, eps in BALANCED.items()
}
"""Figure 13: all distances."""

MASKED = "with masks"
"""End of the setting of rows whose number of dimensions is chosen by the cost model
that knows of masks.
"""

PRESORT = {"Expo2D": 0.04, "Expo6D": 0.3, "Unif2D": 1.0, "Unif6D": 8.0}
"""Sets and distances of the sort into unit-wide bins, which changes nothing of points
in [0, 1].
"""

# eps; seconds and efficiency: plain, queue and lid, and both with eight threads
SKIES = {
    "SW2DA": (1.2, (15.1, 55.2), (13.0, 89.1), (12.5, 80.7)),
    "SW2DB": (0.4, (13.8, 54.2), (13.0, 83.0), (12.6, 79.7)),
    "SW3DA": (2.4, (56.8, 33.7), (25.2, 93.4), (21.6, 83.2)),
    "SW3DB": (0.8, (14.9, 40.8), (12.1, 87.1), (11.7, 82.5)),
    "Gaia": (0.04, (37.1, 64.1), (27.1, 80.3), (26.7, 78.3)),
}
"""Table VI: the second paper's real data."""

TABLE_VI = ("plain", "queue, lid", "balanced")

FIG5 = {
    "ColorHist": (0.05, 0.1, 0.2, 0.3, 0.4, 0.5),
    "LayoutHist": (0.05, 0.1, 0.2, 0.3, 0.4, 0.5),
    "CoocTexture": (0.05, 0.1, 0.15, 0.2),
}
"""Figure 5 of the first paper; the smallest and largest distances are published."""

FIG8 = {
    "mixed18": ("SuSy", (0.01, 0.015, 0.02)),
    "mixed90": ("Songs", (0.005, 0.0075, 0.01)),
}
"""Stand-in -> the real data of figures 6 and 8, and distances for figure 8.

The smallest and the largest distance are published.
"""

SYNTHETIC = {
    "Syn16D": (0.03, 0.04, 0.05),
    "Syn32D": (0.08, 0.09, 0.1),
    "Syn64D": (0.16, 0.17, 0.18),
}
FEWER = 500_000
"""Points of the first paper's sets: two million of 16 dimensions take half a minute a
run.
"""


def _against(
    table: dict[object, tuple[tuple[float, float], ...]],
    setting: object,
    k: int,
    first: object,
) -> tuple[float | None, float | None]:
    if setting not in table:
        return None, None
    return table[first][k][0] / table[setting][k][0], table[setting][k][1]


def load_imbalance() -> Iterator[Row]:
    """Return the rows of the second paper."""
    for k, (data, eps) in enumerate(FOUR.items()):
        for pattern in PATTERNS:
            told = _against(dict(PATTERNS), pattern, k, "full")
            yield Row(
                LOAD_IMBALANCE,
                "tab3",
                data,
                ROWS,
                eps,
                pattern,
                replace(PLAIN, pattern=pattern),
                *told,
            )
    for k, (data, eps) in enumerate(FOUR.items()):
        for t in (1, 2, 4, 8, 16, 32):
            told = _against(dict(THREADS), t, k, 1)
            yield Row(
                LOAD_IMBALANCE,
                "tab4",
                data,
                ROWS,
                eps,
                f"{t} threads",
                replace(PLAIN, threads=t),
                *told,
            )
    for k, (data, eps) in enumerate(FOUR.items()):
        for order in ORDERS:
            told = _against(dict(ORDERS), order, k, "given")
            yield Row(
                LOAD_IMBALANCE,
                "tab5",
                data,
                ROWS,
                eps,
                order,
                replace(PLAIN, order=order),
                *told,
            )
    for data, distances in SWEEPS.items():
        for eps in distances:
            for setting, method in (
                ("full", PLAIN),
                ("unicomp", replace(PLAIN, pattern="unicomp")),
                ("lid", replace(PLAIN, pattern="lid")),
                ("8 threads", replace(PLAIN, threads=8)),
                ("workload", replace(PLAIN, order="workload")),
                ("queue", replace(PLAIN, order="queue")),
            ):
                yield Row(LOAD_IMBALANCE, "fig9-11", data, ROWS, eps, setting, method)
    for data, distances in FIFTHS.items():
        for eps in distances:
            for setting, method in (("plain", PLAIN), ("balanced", Grid.balanced())):
                yield Row(LOAD_IMBALANCE, "fig13", data, ROWS, eps, setting, method)
    yield from _skies()


def _skies() -> Iterator[Row]:
    """Yield table VI: the real data that there are files of, or else mixtures."""
    ways = (PLAIN, replace(PLAIN, order="queue", pattern="lid"), Grid.balanced())
    real = {name: told for name, told in SKIES.items() if files.is_file(name)}
    for data, (eps, *published) in real.items():
        for setting, method, (took, wee) in zip(TABLE_VI, ways, published, strict=True):
            row = Row(LOAD_IMBALANCE, "tab6", data, files.ALL, eps, setting, method)
            yield replace(row, published=published[0][0] / took, wee=wee)
    for data, eps in () if real else (("mixture2D", 0.05), ("mixture3D", 0.3)):
        for setting, method in zip(TABLE_VI, ways, strict=True):
            yield Row(LOAD_IMBALANCE, "tab6", data, ROWS, eps, setting, method)


def gpu_join() -> Iterator[Row]:
    """Return the rows of the first paper; for real data with a file, a row has all of
    the file's points.
    """
    some = Grid(
        indexed=6,
        reorder=False,
        sort=False,
        short_circuit=False,
        pattern="full",
        order="given",
        threads=1,
    )
    for name, distances in FIG5.items():
        for eps in distances if files.is_file(name) else ():
            yield Row(
                GPU_JOIN, "fig5", name + files.SCALED, files.ALL, eps, "k=6", some
            )
    places = {
        stand_in: (name + files.SCALED, files.ALL, distances)
        if files.is_file(name)
        else (stand_in, FEWER, (-1.0, -10.0, -100.0))
        for stand_in, (name, distances) in FIG8.items()
    }
    for data, rows, _ in places.values():
        for reorder in (False, True):
            for k in (*range(1, 9), "auto"):
                method = replace(Grid.gpu_join(k), reorder=reorder)
                setting = f"k={k}, {'reordered' if reorder else 'as given'}"
                yield Row(GPU_JOIN, "fig6", data, rows, -10.0, setting, method)
    for k in range(1, 11):
        yield Row(
            GPU_JOIN,
            "fig7",
            "Syn16D",
            FEWER,
            0.04,
            f"k={k}",
            replace(Grid.gpu_join(k), sort=False),
        )
    for data, rows, distances in places.values():
        for eps in distances:
            for setting, method in (
                ("none", some),
                ("reorder", replace(some, reorder=True)),
                ("reorder, sort", replace(some, reorder=True, sort=True)),
                (
                    "reorder, short circuit",
                    replace(some, reorder=True, short_circuit=True),
                ),
                ("all", Grid.gpu_join(6)),
            ):
                yield Row(GPU_JOIN, "fig8", data, rows, eps, setting, method)
    for data, distances in SYNTHETIC.items():
        for eps in distances:
            yield Row(GPU_JOIN, "fig9", data, FEWER, eps, "k=6", Grid.gpu_join())
            yield Row(
                GPU_JOIN, "fig9", data, FEWER, eps, "k=auto", Grid.gpu_join("auto")
            )
            yield Row(
                GPU_JOIN,
                "fig9",
                data,
                FEWER,
                eps,
                f"k=auto, {MASKED}",
                Grid.gpu_join("auto"),
            )
    for data, eps in PRESORT.items():
        for name, setting in ((data, "given"), (data + PRESORTED, "presorted")):
            yield Row(GPU_JOIN, "presort", name, ROWS, eps, setting, PLAIN)


ROWS_OF = {GPU_JOIN: gpu_join, LOAD_IMBALANCE: load_imbalance}
