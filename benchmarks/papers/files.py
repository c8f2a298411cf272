"""The papers' real data sets, from your own files, in place of the synthetic data that stand in for them.

Points are rows of numbers: ``.npy``, ``.parquet``, or text with commas, semicolons or spaces.  The text may
begin with a line of names.  Sets are lines of whole numbers, one set per line, as in the collections of Mann,
Augsten and Bouros (2016).
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.papers.sets_told import SHAPES

STANDS_IN = {
    "SuSy": "skew18", "Songs": "skew90", "SW2D": "mixture2D", "SW3D": "mixture3D", "Gaia": "mixture2D",
    "Corel": "colours",
}  # fmt: skip
"""Names of real points -> the synthetic ones that stand in for them."""

NAMES = (*STANDS_IN, *SHAPES)

FILES: dict[str, tuple[str, Path]] = {}
"""Synthetic points, or a collection of sets -> the real name and the file that takes its place."""


def use(text: str) -> None:
    """Take a file for a data set; `text`: NAME=PATH."""
    name, equals, path = text.partition("=")
    if not equals or name not in NAMES:
        raise ValueError(f"{text!r} must be NAME=PATH, with a name among {', '.join(NAMES)}")
    if not Path(path).is_file():
        raise ValueError(f"{path!r} is not a file")
    FILES[STANDS_IN.get(name, name)] = name, Path(path)


def named(data: str) -> str:
    """Return the name of a data set in results: a file's, or that of synthetic data."""
    return f"{FILES[data][0]} (file)" if data in FILES else data


def points_of_file(data: str, rows: int | None = None) -> np.ndarray:
    """Return the first points (rows, d) of the file for a data set, float64."""
    path = FILES[data][1]
    if path.suffix == ".npy":
        found = np.load(path, mmap_mode="r")[:rows]
    elif path.suffix == ".parquet":
        found = pd.read_parquet(path).select_dtypes("number").to_numpy()[:rows]
    else:
        found = _read_text(path, rows)
    x = np.asarray(found, np.float64)
    return x[np.isfinite(x).all(axis=1)]


def _read_text(path: Path, rows: int | None) -> np.ndarray:
    with path.open() as file:
        first = file.readline()
    head = None if _numbers(first) else 0
    table = pd.read_csv(path, sep=r"[,;\s]+", engine="python", header=head, nrows=rows)
    return table.select_dtypes("number").to_numpy()


def _numbers(line: str) -> bool:
    try:
        return bool([float(word) for word in re.split(r"[,;\s]+", line.strip())])
    except ValueError:
        return False


def sets_of_file(data: str, rows: int | None = None) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the rows and tokens of the entries of a collection's file, and the number of distinct tokens."""
    with FILES[data][1].open() as file:
        lines = [line for _, line in zip(range(rows), file, strict=False)] if rows else file.readlines()
    sizes = [len(line.split()) for line in lines]
    values = np.loadtxt(io.StringIO(" ".join(lines).replace("\n", " ")), np.int64, ndmin=1)
    tokens = np.unique(values, return_inverse=True)[1]
    return np.repeat(np.arange(len(lines)), sizes), tokens, int(tokens.max()) + 1
