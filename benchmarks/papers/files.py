"""The papers' real data sets, from your own files, in place of the synthetic data that
stand in for them.

Points are rows of numbers: ``.npy``, ``.parquet``, or text with commas, semicolons or
spaces.  The text may begin with a line of names.  Sets are lines of whole numbers, one
set per line, as in the collections of Mann, Augsten and Bouros (2016).  Text may be
compressed (``.gz``).
"""

from __future__ import annotations

import functools
import gzip
import itertools
import re
from collections.abc import Collection
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.papers.sets_told import SHAPES

POINTS = {
    "SuSy": 18,
    "Songs": 90,
    "CoocTexture": 16,
    "ColorHist": 32,
    "LayoutHist": 32,
    "ColorMoments": 9,
    "SW2DA": 2,
    "SW2DB": 2,
    "SW3DA": 3,
    "SW3DB": 3,
    "Gaia": 2,
}
"""Names of real points -> their columns."""

USED_BY = {
    **dict.fromkeys(("SuSy", "Songs"), ("gpu_join", "ego")),
    **dict.fromkeys(
        ("CoocTexture", "ColorHist", "LayoutHist"), ("gpu_join", "lss", "ego")
    ),
    "ColorMoments": ("lss", "kmeans"),
    **dict.fromkeys(
        ("SW2DA", "SW2DB", "SW3DA", "SW3DB", "Gaia"), ("load_imbalance", "ego")
    ),
    **dict.fromkeys(SHAPES, ("sets",)),
}
"""Names of real data -> the papers whose figures take them."""

NAMES = tuple(USED_BY)

STAND_INS = (
    "skew18",
    "skew90",
    "mixed18",
    "mixed90",
    "mixture2D",
    "mixture3D",
    "colours",
    *SHAPES,
)
"""Synthetic points and sets that stand in for real ones."""

SCALED = " in [0, 1]"
"""End of the name of points whose columns are scaled to that, as for GPU-Join and LSS.
"""

ALL = 1 << 40
"""A number of rows that no file exceeds."""

AT_ONCE = 100_000
"""Lines of sets that are read together."""

FILES: dict[str, Path] = {}
"""Names of real data -> their files."""


class DataError(ValueError):
    """A file that does not have the data that its name stands for."""


class Sets(NamedTuple):
    """Sets: the row and the token of each entry, and the number of distinct tokens."""

    rows: np.ndarray
    tokens: np.ndarray
    universe: int


def use(text: str) -> None:
    """Assign a file to a data set; `text` is NAME=PATH."""
    name, equals, path = text.partition("=")
    if not equals or name not in NAMES:
        raise ValueError(
            f"{text!r} must be NAME=PATH, with a name among {', '.join(NAMES)}"
        )
    if not Path(path).is_file():
        raise ValueError(f"{path!r} is not a file")
    FILES[name] = Path(path)


def unused(papers: Collection[str]) -> str | None:
    """Return an error message if no figure of these papers takes some of the files."""
    for name in FILES:
        if not set(USED_BY[name]) & set(papers):
            given, users = ", ".join(papers), " or ".join(USED_BY[name])
            return f"{name}: no figure of {given} takes it; use --paper {users}"
    return None


def name_of(data: str) -> str:
    """Return the name of real data without its suffix for preprocessing."""
    return data.removesuffix(SCALED)


def is_file(data: str) -> bool:
    """Return whether the data are from a file."""
    return name_of(data) in FILES


def named(data: str) -> str:
    """Return the name of a data set for people: it says whether the data are a file's,
    or a stand-in.
    """
    return (
        f"{data} (file)"
        if is_file(data)
        else f"{data} (synthetic)"
        if data in STAND_INS
        else data
    )


def points_of_file(data: str, rows: int | None = None) -> np.ndarray:
    """Return the first points (rows, d) of the file for a data set, float64, scaled if
    its name says so.
    """
    x = _points(name_of(data))[:rows]
    if not data.endswith(SCALED):
        return x
    low, extent = x.min(axis=0), np.ptp(x, axis=0)
    return (x - low) / np.where(extent > 0, extent, 1)


@functools.lru_cache(maxsize=2)
def _points(name: str) -> np.ndarray:
    """Read all points of a file; rows with a missing value are left out."""
    path, dims = FILES[name], POINTS[name]
    try:
        x = _table(path)
    except (OSError, ValueError) as error:
        raise DataError(
            f"--file {name}={path} cannot be read as points: {error}"
        ) from error
    # the first column is a label or a number of the row
    if x.ndim == 2 and x.shape[1] == dims + 1:
        x = x[:, 1:]
    x = x[np.isfinite(x).all(axis=1)] if x.ndim == 2 else x
    if x.ndim != 2 or x.shape[1] != dims or len(x) == 0:
        raise DataError(
            f"--file {name}={path} has an array of shape {x.shape} of numbers; {name} "
            f"needs rows of {dims} "
            f"numbers, or of {dims + 1} if a label comes first"
        )
    return np.ascontiguousarray(x)


def _table(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.asarray(np.load(path, allow_pickle=False), np.float64)
    if path.suffix == ".parquet":
        table = pd.read_parquet(path)
    else:
        with _open(path) as file:
            first = file.readline()
        separator = next((sign for sign in ",;" if sign in first), r"\s+")
        table = pd.read_csv(path, sep=separator, header=None if _numbers(first) else 0)
    return table.select_dtypes("number").to_numpy(np.float64)


def _open(path: Path) -> IO[str]:
    return gzip.open(path, "rt") if path.suffix == ".gz" else path.open()


def _numbers(line: str) -> bool:
    try:
        return bool([float(word) for word in re.split(r"[,;\s]+", line.strip())])
    except ValueError:
        return False


def sets_of_file(data: str, rows: int | None = None) -> Sets:
    """Return the first sets of a collection's file; tokens are numbered anew."""
    sizes, values = [], [np.empty(0, np.int64)]
    try:
        with _open(FILES[data]) as file:
            lines = itertools.islice(file, rows)
            while some := [line.split() for line in itertools.islice(lines, AT_ONCE)]:
                sizes += [len(words) for words in some]
                values.append(
                    np.array(list(itertools.chain.from_iterable(some)), np.int64)
                )
    except (OSError, ValueError) as error:
        raise DataError(
            f"--file {data}={FILES[data]} cannot be read as sets: {error}; each line "
            "must be a set of whole "
            "numbers between spaces"
        ) from error
    universe, tokens = np.unique(np.concatenate(values), return_inverse=True)
    if len(universe) == 0:
        raise DataError(
            f"--file {data}={FILES[data]} has no sets; each line must be a set of "
            "whole numbers"
        )
    return Sets(np.repeat(np.arange(len(sizes)), sizes), tokens, len(universe))
