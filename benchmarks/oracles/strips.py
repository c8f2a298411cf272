"""An independent join of points in the unit square that holds little of them in memory.

The rows are written to one file for each strip of x.  A strip is joined with itself and
with the points of the next one that are near enough by SciPy's kd-tree, at a slightly
larger distance, and each candidate is decided by the definition: ``dx*dx + dy*dy <=
eps*eps`` in float64.  Squares of more columns are added in their order before the
decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.spatial import cKDTree

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)

ROWS = 1_000_000
"""Target number of points of a strip."""

WIDER = 1 + 1e-9
"""A candidate may be farther away by this share; rounding moves a distance by a share
of 1e-15.
"""

POINT = [("x", "f8"), ("y", "f8"), ("position", "i8"), ("id", "i8")]
"""The fields of a point; ``more`` is an array of the other columns."""


def kind(more: int) -> np.dtype:
    """Return the type of points with this many other columns."""
    return np.dtype([*POINT, ("more", "f8", (more,))])


@dataclass(frozen=True)
class Digest:
    """The number of pairs, and a sum over all of them that does not depend on their
    order.
    """

    pairs: int = 0
    checksum: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(
            self.pairs + other.pairs, (self.checksum + other.checksum) % 2**64
        )


def _mix(z: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 (Steele, Lea & Flood 2014): one changed bit changes
    half of all.
    """
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def digest(left: np.ndarray, right: np.ndarray) -> Digest:
    """Sum up pairs of int64 ids; (a, b) and (b, a) count differently."""
    mixed = _mix(_mix(left.view(np.uint64)) + right.view(np.uint64))
    return Digest(len(left), int(mixed.sum(dtype=np.uint64)))


def digest_of_files(files: Iterable[Path]) -> Digest:
    """Sum up a written result with columns left and right, a part of a file at a time."""
    total = Digest()
    for file in files:
        with pq.ParquetFile(file) as reader:
            for batch in reader.iter_batches(
                columns=["left", "right"], batch_size=1 << 20
            ):
                total += digest(*(batch.column(k).to_numpy() for k in range(2)))
    return total


def independent_digest(
    files: Iterable[Path], eps: float, rows: int, folder: Path, more: Sequence[str] = ()
) -> Digest:
    """Sum up the pairs of the points in `files` (id, x, y and `more`), which are `rows`
    in all.
    """
    total = Digest()
    for points, i, j in pairs_by_strip(files, eps, rows, folder, more):
        swap = points["position"][j] < points["position"][i]
        left, right = np.where(swap, j, i), np.where(swap, i, j)
        total += digest(points["id"][left], points["id"][right])
    return total


Joined = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Points (see `kind`), and where among them the two rows of each pair are."""


def pairs_by_strip(
    files: Iterable[Path], eps: float, rows: int, folder: Path, more: Sequence[str] = ()
) -> Iterator[Joined]:
    """Yield the pairs of the points in `files` (id, x, y and `more`), `rows` in all,
    each once, by strips.

    The points of a strip come first, then the near points of the next strip.
    """
    # strips are at least twice eps wide, so a pair lies in one strip or in two
    # neighbors
    strips = max(1, min(rows // ROWS, int(0.5 / eps)))
    folder.mkdir()
    _split(files, strips, folder, more)
    here = _strip(folder, 0, len(more))
    for s in range(strips):
        after = _strip(folder, s + 1, len(more))
        if len(here):
            yield _joined(here, after, eps)
        here = after


def _split(
    files: Iterable[Path], strips: int, folder: Path, more: Sequence[str]
) -> None:
    first = 0
    for file in files:
        part = pq.read_table(file, columns=["id", "x", "y", *more])
        points = np.empty(len(part), kind(len(more)))
        for name in ("id", "x", "y"):
            points[name] = part[name].to_numpy()
        for k, name in enumerate(more):
            points["more"][:, k] = part[name].to_numpy()
        points["position"] = np.arange(first, first + len(part))
        first += len(part)
        # rounding a product is monotonic, so strips are intervals of x
        strip = np.minimum((points["x"] * strips).astype(np.int64), strips - 1)
        points = points[np.argsort(strip, kind="stable")]
        ends = np.cumsum(np.bincount(strip, minlength=strips))
        start = 0
        for s, end in enumerate(ends.tolist()):
            with _file(folder, s).open("ab") as out:
                points[start:end].tofile(out)
            start = end


def _file(folder: Path, strip: int) -> Path:
    return folder / f"{strip:06}.bin"


def _strip(folder: Path, strip: int, more: int) -> np.ndarray:
    file = _file(folder, strip)
    return np.fromfile(file, kind(more)) if file.exists() else np.empty(0, kind(more))


def _joined(own: np.ndarray, after: np.ndarray, eps: float) -> Joined:
    near = after[after["x"] <= own["x"].max() + eps * WIDER]
    points = np.concatenate([own, near])
    x, y = points["x"].copy(), points["y"].copy()
    tree = cKDTree(
        np.stack([x, y], axis=1), leafsize=16, balanced_tree=False, compact_nodes=False
    )
    i, j = tree.query_pairs(eps * WIDER, output_type="ndarray").T
    # drop pairs that lie in the next strip, which finds them itself
    kept = np.minimum(i, j) < len(own)
    i, j = i[kept], j[kept]
    dx, dy = x[i] - x[j], y[i] - y[j]
    total = dx * dx + dy * dy
    for k in range(points["more"].shape[1]):
        t = points["more"][i, k] - points["more"][j, k]
        total += t * t
    kept = total <= eps * eps
    return points, i[kept], j[kept]
