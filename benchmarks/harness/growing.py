"""Rows of tables that grow: uniform, or directions around centers."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd

SEED = 54321
"""Seed of the centers of directions."""

SIDE = 100.0
"""Side of the square or cube that holds all rows."""


def rows(
    random: np.random.Generator, number: int, first: int, dims: int, part: float = 1.0
) -> pd.DataFrame:
    """Draw rows numbered from `first`, uniform in a part of the volume."""
    side = SIDE * part ** (1 / dims)
    low = random.uniform(0, SIDE - side, dims)
    x = low + random.uniform(0, side, (number, dims))
    return pd.DataFrame(
        {"key": np.arange(first, first + number)}
        | {f"x{k}": x[:, k] for k in range(dims)}
    )


def directions(
    random: np.random.Generator,
    number: int,
    first: int,
    dims: int,
    part: float,
    centres: int,
) -> pd.DataFrame:
    """Draw rows numbered from `first` whose lists are unit vectors around some of the
    `centres`.
    """
    middle = np.random.default_rng(SEED).normal(size=(centres, dims)).astype(np.float32)
    of = random.integers(0, max(1, round(centres * part)), number)
    x = middle[of] + random.normal(size=(number, dims)).astype(np.float32) * np.float32(
        0.3
    )
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return pd.DataFrame({"key": np.arange(first, first + number), "v": list(x)})


def eps_for(number: int, dims: int, neighbours: float) -> float:
    """Return the distance within which a row has about this many neighbors."""
    ball = math.pi ** (dims / 2) / math.gamma(dims / 2 + 1)
    return float(SIDE * (neighbours / (number * ball)) ** (1 / dims))


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def copied(folder: Path, to: Path) -> Path:
    """Copy an index by hard links to its files, which are never changed."""
    return Path(shutil.copytree(folder, to, copy_function=os.link))
