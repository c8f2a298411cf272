"""Frames with random histories: a Dask DataFrame after random operations, before a verb
sees it.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any, NamedTuple

import dask.dataframe as dd
import numpy as np
import pandas as pd

from tests.support.frames import itself
from tests.support.points import make_points

KINDS = [
    "lattice",
    "lattice",
    "clusters",
    "duplicates",
    "offset",
    "constant",
    "uniform",
    "outlier",
]

DTYPES = [
    "float64",
    "float64",
    "float64",
    "float32",
    "int8",
    "int32",
    "uint8",
    "uint64",
    "mixed",
    "Float64",
    "Int64",
    "Float32",
    "double[pyarrow]",
    "int64[pyarrow]",
]

CAN_MISS = ("float", "Float", "double", "Int64", "int64[")

LABELS = [
    "range",
    "range",
    "permuted",
    "gaps",
    "repeated",
    "restarting",
    "text",
    "dates",
    "zoned",
    "float",
    "descending",
    "uint8",
]


WORDS = "words"
"""Name of the column of texts."""

WHEN = "when"
"""Name of the column of times; a few rows have none."""


class Draw:
    """The source of a case: one choice after the other, and a description of them for
    people.

    `shuffle`: how Dask shuffles rows before a verb meets them; None: as configured.  On
    one machine Dask shuffles by files then, so the order of rows differs between runs.
    """

    def __init__(self, seed: int, case: int, shuffle: str | None = None) -> None:
        self.rng = np.random.default_rng([seed, case])
        self.shuffle = shuffle
        self.said: list[str] = []

    def one(self, name: str, options: Any) -> Any:
        """Choose one of the options."""
        value = options[int(self.rng.integers(len(options)))]
        self.said.append(f"{name}={value!r}")
        return value

    def chance(self, name: str, share: float) -> bool:
        """Return True in this share of all cases."""
        found = bool(self.rng.random() < share)
        self.said += [name] if found else []
        return found


class Made(NamedTuple):
    """A frame with its known properties.

    `ordered`: its rows come in one order, whatever is read of it: not where rows that
    tie were shuffled. `labelled`: so are its index labels: not where Dask counts them
    anew in partitions that it merged.
    """

    frame: Any
    ordered: bool
    labelled: bool = True


def names_of(draw: Draw, dims: int) -> list[Any]:
    """Draw names of coordinates; some are also names of result columns."""
    usual = [f"x{k}" for k in range(dims)]
    own = [
        "distance",
        "left",
        "right",
        "rank",
        "label",
        "neighbors",
        "k_distance",
        "index",
        "source_id",
    ]
    numbers = list(range(dims))
    tuples = [("c", k) for k in range(dims)]
    kind = draw.one("names", ["usual"] * 5 + ["own", "numbers", "tuples"])
    own = (own + usual)[:dims]
    return {"usual": usual, "own": own, "numbers": numbers, "tuples": tuples}[kind]


def coordinates(draw: Draw, metric: str, rows: int, dims: int) -> np.ndarray:
    """Draw points of a kind that the metric accepts."""
    rng = draw.rng
    if metric == "haversine":
        step = draw.one("degrees", [45.0, 7.5, 1e-3])
        x = np.stack(
            [rng.integers(-2, 3, rows) * step, rng.integers(-4, 5, rows) * step], 1
        )
        return x + (rng.normal(0, 1e-4, x.shape) if step < 1 else 0.0)
    x = make_points(draw.one("kind", KINDS), rows, dims, rng)
    if metric == "braycurtis":
        return np.abs(x)
    return x + 0.125 * (x == 0).all(1, keepdims=True) if metric == "cosine" else x


def table(draw: Draw, x: np.ndarray, names: list[Any], holes: bool) -> pd.DataFrame:
    """Return the points as a frame of some dtype, with other columns too."""
    rng, rows = draw.rng, len(x)
    kind = draw.one("dtype", DTYPES)
    columns: dict[Any, Any] = {}
    for k, name in enumerate(names):
        dtype = (
            str(rng.choice(["float64", "float32", "int16"]))
            if kind == "mixed"
            else kind
        )
        values = pd.Series(x[:, k])
        if "int" in dtype.lower():
            low, high = (0, 90) if dtype.startswith("u") else (-90, 90)
            values = values.round().clip(low, high) if rows else values
            values = values + 0.0
        if holes and rows and rng.random() < 0.5 and dtype.startswith(CAN_MISS):
            values[rng.random(rows) < 0.1] = math.nan
        columns[name] = values.astype(dtype)
    columns["g"] = rng.integers(0, 4, rows)
    columns["s"] = pd.array([f"row {k % 7}" for k in range(rows)], dtype="str")
    columns["r"] = rng.integers(0, 4, rows) * 0.5
    columns["key"] = rng.permutation(rows) * 3 - 5
    columns[WORDS] = pd.array([text_of(k) for k in range(rows)], dtype="str")
    count = np.arange(rows)
    since = pd.to_timedelta(count**2 % 11 * 60 + count % 2, unit="s")
    when = pd.Series(pd.Timestamp("2024-02-29") + since)
    columns[WHEN] = when.mask(count % 19 == 4)
    frame = pd.DataFrame(columns)
    frame.index = labels(draw, rows)
    frame.index.name = draw.one("index name", [None, None, "id", "left"])
    if len(names) and "left" in names:
        frame.index.name = None
    return frame


def text_of(row: int) -> str | None:
    """Draw some words, which several rows share in part; a few rows have no words, and
    a few no text.
    """
    if row % 13 == 5:
        return None
    return " ".join(f"w{(row * row + k * k) % 9}" for k in range(row % 5))


def labels(draw: Draw, rows: int) -> pd.Index:
    """Draw index labels of a kind."""
    rng = draw.rng
    count = np.arange(rows)
    kind = draw.one("labels", LABELS)
    if kind == "uint8" and rows > 250:
        kind = "range"
    made = {
        "range": lambda: pd.RangeIndex(rows),
        "permuted": lambda: pd.Index(rng.permutation(rows) + 100),
        "gaps": lambda: pd.Index(np.cumsum(rng.integers(1, 9, rows))),
        "repeated": lambda: pd.Index(np.sort(rng.integers(0, max(1, rows // 3), rows))),
        "restarting": lambda: pd.Index(count % max(1, rows // 3)),
        "text": lambda: pd.Index(
            [f"r{k:03}" for k in rng.permutation(rows)], dtype="str"
        ),
        "dates": lambda: pd.Index(
            pd.Timestamp("2020-01-01") + pd.to_timedelta(count * 7, unit="h")
        ),
        "zoned": lambda: pd.Index(
            pd.Timestamp("2020-01-01", tz="Europe/Berlin") + pd.to_timedelta(count, "D")
        ),
        "float": lambda: pd.Index(count * 0.5),
        "descending": lambda: pd.Index(count[::-1].copy()),
        "uint8": lambda: pd.Index(count.astype("uint8")),
    }[kind]
    return made()


def laid(draw: Draw, base: pd.DataFrame, folder: Path) -> Made:
    """Return the table as a Dask DataFrame from some source."""
    rng, rows = draw.rng, len(base)
    named = all(isinstance(name, str) for name in base.columns)
    sources = ["pandas", "unsorted", "parts", "parts", "halves"]
    if named:
        sources += ["one file", "files", "files", "files", "written", "written"]
    kind = draw.one("source", sources)
    parts = draw.one("partitions", [1, 2, 3, 5, 9])
    if kind == "pandas":
        return Made(dd.from_pandas(base, npartitions=parts), True)
    if kind == "unsorted":
        return Made(dd.from_pandas(base, npartitions=parts, sort=False), True)
    cuts = np.sort(rng.integers(0, rows + 1, parts - 1)).tolist()
    pieces = [base.iloc[a:b] for a, b in itertools.pairwise([0, *cuts, rows])]
    if kind == "parts":
        return Made(dd.from_map(itself, pieces, meta=base.iloc[:0]), True)
    if kind == "halves":
        both = [
            dd.from_pandas(base.iloc[a:b], npartitions=2, sort=False)
            for a, b in itertools.pairwise([0, rows // 2, rows])
        ]
        return Made(dd.concat(both), True)
    return from_files(draw, base, pieces, kind, folder)


def from_files(
    draw: Draw, base: pd.DataFrame, pieces: list[pd.DataFrame], kind: str, folder: Path
) -> Made:
    """Write the table to Parquet, and read it again."""
    folder = folder / f"source{len(list(folder.iterdir()))}"
    folder.mkdir()
    group = draw.one("row group", [None, 7, 30])
    if kind == "one file":
        base.to_parquet(folder / "part000.parquet", row_group_size=group)
    elif kind == "files":
        for n, piece in enumerate(pieces):
            piece.to_parquet(folder / f"part{n:03}.parquet", row_group_size=group)
    else:
        lazy = dd.from_pandas(base, npartitions=len(pieces), sort=False)
        lazy.to_parquet(
            folder, write_index=draw.one("write_index", [True, True, False])
        )
    how: dict[str, Any] = {"filesystem": draw.one("filesystem", ["fsspec", "arrow"])}
    if how["filesystem"] == "fsspec":
        how["split_row_groups"] = draw.one(
            "split_row_groups", ["infer", True, False, 2]
        )
        how["calculate_divisions"] = draw.one(
            "calculate_divisions", [False, False, True]
        )
    if draw.chance("filters", 0.2):
        how["filters"] = [("g", ">", 0)]
    if draw.chance("columns", 0.2):
        how["columns"] = list(base.columns[::-1])
    return Made(dd.read_parquet(folder, **how), True, how["filesystem"] != "arrow")


def told(draw: Draw, made: Made) -> Made:
    """Apply some more operations to the frame."""
    for _ in range(draw.one("steps", [0, 0, 1, 1, 2])):
        made = stepped(draw, made)
    if not made.ordered and draw.chance("settled", 0.5):
        made = Made(made.frame.persist(), True)
    return made


STEPS = [
    "filter",
    "filter",
    "filter strings",
    "query",
    "repartition",
    "more partitions",
    "set_index",
    "sort_values",
    "head",
    "persist",
    "concat",
    "merge",
    "merge frames",
    "reset_index",
    "assign",
    "map",
    "partitions",
    "none kept",
    "row_id",
    "loc",
    "drop_duplicates",
    "cleared",
    "astype",
    "shuffle",
    "renamed",
    "dropna",
]


def stepped(draw: Draw, made: Made) -> Made:
    """Apply one more operation to the frame."""
    ddf, ordered, labelled = made
    kind = draw.one("step", STEPS)
    shuffled = Made(ddf, False, labelled)
    if kind == "filter":
        return made._replace(frame=ddf[ddf["g"] > draw.one("above", [0, 1])])
    if kind == "filter strings":
        return made._replace(frame=ddf[ddf["s"] != "row 3"])
    if kind == "query":
        return made._replace(frame=ddf.query("g != 2 and r >= 0"))
    if kind == "none kept":
        return made._replace(frame=ddf[ddf["key"] < draw.one("below", [-100, 30])])
    if kind == "dropna":
        return made._replace(frame=ddf.dropna(subset=[ddf.columns[0]]))
    if kind == "repartition":
        return made._replace(
            frame=ddf.repartition(npartitions=max(1, ddf.npartitions // 2))
        )
    if kind == "more partitions":
        return made._replace(frame=ddf.repartition(npartitions=ddf.npartitions + 2))
    if kind == "set_index":
        found = ddf.set_index("key", drop=False, shuffle_method=draw.shuffle)
        return Made(found, _sorted_by_parts(found))
    if kind == "sort_values":
        by = draw.one("by", ["key", "g"])
        found = ddf.sort_values(by, shuffle_method=draw.shuffle)
        return Made(found, by == "key" and _sorted_by_parts(found), labelled)
    if kind == "head":
        return made._replace(frame=ddf.head(40, npartitions=-1, compute=False))
    if kind == "persist":
        return Made(ddf.persist(), ordered)
    if kind == "concat":
        return made._replace(frame=dd.concat([ddf[ddf["g"] > 1], ddf[ddf["g"] <= 1]]))
    if kind == "merge":
        groups = pd.DataFrame({"g": [0, 1, 2], "weight": [0.5, 1.5, 2.5]})
        return Made(
            ddf.merge(groups, on="g", shuffle_method=draw.shuffle), False, False
        )
    if kind == "merge frames":
        right = ddf[["key"]].assign(more=1)
        return Made(
            ddf.merge(right, on="key", shuffle_method=draw.shuffle), False, False
        )
    if kind == "reset_index":
        return made._replace(frame=ddf.reset_index(drop=True), labelled=False)
    if kind == "assign":
        return made._replace(frame=ddf.assign(half=ddf["g"] / 2, r=ddf["r"] + 0.5))
    if kind == "row_id" and "row_id" not in ddf:
        return made._replace(frame=ddf.simjoin.with_row_id())
    if kind in ("map", "row_id"):
        return made._replace(frame=ddf.map_partitions(itself, meta=ddf._meta))
    if kind == "partitions":
        return made._replace(frame=ddf.partitions[: max(1, ddf.npartitions // 2)])
    if kind == "loc":
        return loc(made)
    if kind == "drop_duplicates":
        return Made(
            ddf.drop_duplicates(subset=["key"], shuffle_method=draw.shuffle),
            False,
            labelled,
        )
    if kind == "cleared":
        return made._replace(frame=ddf.clear_divisions())
    if kind == "astype":
        return made._replace(frame=ddf.astype({"g": "int8", "key": "int32"}))
    if kind == "renamed":
        return made._replace(
            frame=ddf.rename(columns={"s": "text"}).rename(columns={"text": "s"})
        )
    return shuffled._replace(
        frame=ddf.shuffle("g", npartitions=3, shuffle_method=draw.shuffle)
    )


def loc(made: Made) -> Made:
    """Slice by labels, where divisions are known."""
    ddf = made.frame
    if not ddf.known_divisions or ddf.npartitions < 2:
        return made
    return made._replace(frame=ddf.loc[ddf.divisions[1] :])


def _sorted_by_parts(frame: Any) -> bool:
    """Return whether partitions of a sorted frame are in order, which they may not be
    if Dask merges its reader's.
    """
    keys = [
        frame[["key"]].partitions[n].compute()["key"] for n in range(frame.npartitions)
    ]
    return bool(pd.concat(keys).is_monotonic_increasing)
