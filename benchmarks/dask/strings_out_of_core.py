"""``python -m benchmarks dask.strings_out_of_core``: an edit join of more text than
memory, checked.

Random texts lie in Parquet files.  Some texts of each file are copies from another file
with one edit, so the pairs are known.  Two workers find them; with ``--kill`` one of
them is killed in the middle.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dask.utils import parse_bytes

from benchmarks.dask.sets_out_of_core import (
    COPIED,
    TIMES,
    WORKERS,
    join_once,
    summarize,
)
from benchmarks.harness.lazy import known, progress, quiet, save, scratch

CODE_BYTES = 4
"""Bytes of a character while a file is read, and in a search; blocks keep one, as the
text is Latin.
"""

LENGTHS = 20, 60
"""Fewest and most characters of a text."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.strings_out_of_core", description=__doc__
    )
    parser.add_argument(
        "--limit", default="600 MB", help="memory of each of the two workers"
    )
    parser.add_argument(
        "--rows", type=int, help="default: characters take twice the memory"
    )
    parser.add_argument("--part-rows", type=int, default=100_000, help="rows of a file")
    parser.add_argument("-k", type=int, default=2)
    parser.add_argument(
        "--kill", type=float, help="seconds after which a worker is killed"
    )
    parser.add_argument(
        "--patience", type=float, default=3600, help="seconds until a run is given up"
    )
    parser.add_argument(
        "--folder", type=Path, help="for temporary files: on a disk, not in memory"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def text_ends(rows: int, copies: int) -> np.ndarray:
    """Return where each text of a file ends (rows + 1,); the first ones are copies of
    as many later ones.
    """
    like = np.arange(rows)
    like[:copies] += copies
    low, high = LENGTHS
    return np.concatenate([[0], np.cumsum(low + like % (high - low + 1))]).astype(
        np.int32
    )


def letters(part: int, size: int) -> np.ndarray:
    """Return the letters of a file before some texts are copies (size,), uint8."""
    return np.random.default_rng(part).integers(97, 123, size, dtype=np.uint8)


def write_file(folder: Path, part: int, parts: int, rows: int) -> int:
    """Write a file; return its number of copies."""
    copies = rows // COPIED
    ends = text_ends(rows, copies)
    texts = letters(part, ends[-1])
    # copies are rows of the next file, after its own copies, with one other character
    texts[: ends[copies]] = letters((part + 1) % parts, ends[-1])[
        ends[copies] : ends[2 * copies]
    ]
    texts[ends[:copies] + np.arange(copies) % LENGTHS[0]] = ord("_")
    strings = pa.StringArray.from_buffers(
        rows, pa.py_buffer(ends), pa.py_buffer(texts.tobytes())
    )
    ids = pa.array(np.arange(part * rows, (part + 1) * rows))
    pq.write_table(
        pa.table({"id": ids, "text": strings}), folder / f"{part:05}.parquet"
    )
    return copies


def edit_pairs(frame: Any, options: argparse.Namespace) -> Any:
    """Return the lazy pairs."""
    return frame.simjoin.edit_self_join("text", options.k, id="id")


def main() -> int:
    """Run the benchmark; return 1 if it failed or its pairs are wrong."""
    quiet()
    options = arguments()
    limit = parse_bytes(options.limit)
    memory = WORKERS * limit
    length = sum(LENGTHS) / 2
    rows = options.rows or math.ceil(TIMES * memory / (length * CODE_BYTES))
    parts = max(2, round(rows / options.part_rows))
    each = math.ceil(rows / parts)
    where = known()
    with scratch(options.folder) as folder:
        data = folder / "data"
        data.mkdir()
        copies = sum(write_file(data, part, parts, each) for part in range(parts))
        progress(f"{parts * each:,} rows in {parts} files, {copies:,} pairs")
        run = join_once(
            data, options, limit, (parts, each), folder / "dask", edit_pairs
        )
    share = parts * each * length * CODE_BYTES / memory
    title = f"{parts * each:,} texts of {LENGTHS[0]} to {LENGTHS[1]} characters"
    summarize(f"{title}: {share:.2f} times the memory", limit, options, run)
    results = {"times_memory": share, "rows": parts * each, "run": run}
    save("strings-out-of-core", where, options, results, options.output)
    return 0 if "failed" not in run and run["exact"] else 1


if __name__ == "__main__":
    sys.exit(main())
