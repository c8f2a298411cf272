"""
Near-duplicates by embeddings
=============================

Find rows of a table with almost the same meaning, by their embeddings.

The program reads a Parquet file or folder, with a column of embeddings (lists of
numbers) and one of texts. It counts the pairs within several cosine distances. At the
smallest of them, it keeps one row per group. It shows the closest pairs whose texts
differ by more than case. Without a path, it makes a small table with changed copies of
rows.

::

    python examples/near_duplicates.py
    python examples/near_duplicates.py texts.parquet --embedding embedding --text title --eps 0.02 0.05
    python examples/near_duplicates.py texts.parquet --backend cudf      # on a GPU: see docs/install.md

The cosine distance is one minus the cosine of the angle: 0 for equal directions, 1 for
right angles.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dask_simjoin  # noqa: F401  (gives Dask DataFrames the accessor .simjoin)

ROWS, COPIES, NUMBERS = 4000, 400, 64
"""Rows, copies and numbers per embedding of the table that is made here."""


def write_table(path: Path, embedding: str, text: str) -> None:
    """Write embeddings and texts. The last rows are copies of others, with small and
    large changes.
    """
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, NUMBERS))
    copied = random.choice(ROWS - COPIES, COPIES)
    change = random.uniform(0.05, 0.8, (COPIES, 1))
    x[-COPIES:] = x[copied] + change * random.normal(size=(COPIES, NUMBERS))
    texts = [f"text {k}" for k in range(ROWS - COPIES)]
    texts += [
        f"text {k}, {100 * by:.0f} % changed"
        for k, by in zip(copied, change[:, 0], strict=True)
    ]
    flat = pa.array(x.astype(np.float32).ravel())
    table = {embedding: pa.FixedSizeListArray.from_arrays(flat, NUMBERS), text: texts}
    pq.write_table(pa.table(table), path, row_group_size=1000)


def host(result: Any) -> Any:
    """Return a cuDF result as a pandas result; return others as they are."""
    return result.to_pandas() if hasattr(result, "to_pandas") else result


def short(text: Any, most: int = 54) -> str:
    """Return a text on one line, cut to at most `most` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}\u2026"


def read(path: Path, columns: list[str], backend: str) -> Any:
    """Return a Parquet table as a Dask DataFrame."""
    if backend == "pandas":
        return dd.read_parquet(path, columns=columns)
    import cudf
    import dask_cudf

    # dask_cudf's own reader takes no lists of fixed size (26.10)
    return dask_cudf.from_cudf(cudf.read_parquet(path, columns=columns), npartitions=4)


def report(path: Path, options: argparse.Namespace) -> None:
    """Count pairs and groups, and print the closest pairs."""
    start = time.perf_counter()
    text, eps = options.text, sorted(options.eps)
    texts = read(path, [text, options.embedding], options.backend)
    # index labels of several files repeat, so ids are added
    texts = texts.simjoin.with_row_id()
    # rows without an embedding, or with zeros only, have no direction
    how = {"on": options.embedding, "metric": "cosine", "id": "row_id", "dropna": True}

    # counting builds no pairs
    counts = [texts.simjoin.count_pairs(far, **how) for far in eps]
    rows, *counts = dask.compute(texts.shape[0], *counts)
    print(f"{int(rows):>10,}  rows")
    for far, count in zip(eps, counts, strict=True):
        print(f"{int(count):>10,}  pairs within {far:g}")

    # with min_samples=1 clusters are the groups that pairs connect, and every row with a
    # direction is in one
    texts = texts.assign(group=texts.simjoin.dbscan(eps[0], min_samples=1, **how))
    texts = texts[texts["group"] >= 0]
    sizes = host(texts["group"].value_counts().compute())
    more = sizes[sizes > 1]
    most = max(more, default=0)
    print(
        f"{len(more):>10,}  groups of {more.sum():,} rows within {eps[0]:g}, at most "
        f"{most:,} in one"
    )
    once = texts.drop_duplicates("group")
    print(f"{len(once):>10,}  rows remain if one of each group is kept")
    print(f"{time.perf_counter() - start:>10.1f}  seconds")

    pairs = texts.simjoin.self_join(eps[0], keep=text, return_distance=True, **how)
    left, right = f"{text}_left", f"{text}_right"
    other = pairs[pairs[left].str.lower() != pairs[right].str.lower()].drop_duplicates(
        [left, right]
    )
    closest = host(other.nsmallest(options.show, "distance").compute())
    print("\nThe closest pairs whose texts differ:")
    for distance, a, b in zip(
        closest["distance"], closest[left], closest[right], strict=True
    ):
        print(f"  {distance:.5f}  {short(a):54}  {short(b)}")


def main() -> None:
    """Read the options, and make a table if there is none."""
    parser = argparse.ArgumentParser(
        description="Near-duplicates in a table of embeddings."
    )
    parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        help="parquet (default: a table that is made here)",
    )
    parser.add_argument(
        "--embedding", default="embedding", help="column of lists (default embedding)"
    )
    parser.add_argument("--text", default="text", help="column to show (default text)")
    parser.add_argument(
        "--eps",
        type=float,
        nargs="+",
        default=[0.05, 0.1, 0.2],
        help="cosine distances",
    )
    parser.add_argument(
        "--show", type=int, default=8, help="number of pairs to print (default 8)"
    )
    parser.add_argument("--backend", choices=["pandas", "cudf"], default="pandas")
    options = parser.parse_args()
    with (
        dask.config.set({"dataframe.backend": options.backend}),
        tempfile.TemporaryDirectory() as folder,
    ):
        path = options.path
        if path is None:
            path = Path(folder) / "texts.parquet"
            write_table(path, options.embedding, options.text)
        elif not path.exists():
            parser.error(f"no such file: {path}")
        report(path, options)


# %%
# Output
# ------

if __name__ == "__main__":
    main()

# sphinx_gallery_thumbnail_path = 'images/thumbnails/near_duplicates.png'
