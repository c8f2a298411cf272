"""Operations on the results of random verbs, and their comparison with the
definition's.
"""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from dask.dataframe.utils import assert_divisions

from tests.support.digests import Digests
from tests.support.random_frames import Draw, Made
from tests.support.random_optics import check_forest
from tests.support.random_verbs import Side, Skipped, Want

BOTH = {
    "as it is": lambda f: f,
    "columns": lambda f: f[[f.columns[-1]]],
    "column": lambda f: f[f.columns[0]],
    "filter": lambda f: f[f[f.columns[-1]].notnull()],
    "filter, column": lambda f: f[f[f.columns[0]].notnull()][f.columns[-1]],
    "size": lambda f: f.groupby([f.columns[0]]).size().rename("size"),
    "assign": lambda f: f.assign(more=1)[["more", f.columns[0]]],
    "concat": lambda f: (dd if is_dask_collection(f) else pd).concat([f, f]),
    "isin": lambda f: f[~f[f.columns[0]].isin([4, 7, 10, 13])],
    "drop": lambda f: f.drop(columns=[f.columns[0]]),
}
"""Operations on one frame, the same for Dask and pandas."""

FRAMES = {
    "assign": lambda f, s: f.assign(v=s)[["key", "v"]],
    "assign, one column": lambda f, s: f.assign(v=s)["v"],
    "assign, filter": lambda f, s: of(f.assign(v=s), lambda a: a[a["v"] > 1])[
        ["key", "v"]
    ],
    "assign, filter, groupby": lambda f, s: of(
        f.assign(v=s), lambda a: a[a["v"] >= 1].groupby("g")["key"].sum()
    ),
    "assign, filter by another": lambda f, s: of(
        f.assign(v=s), lambda a: a[a["g"] > 1]
    )[["v", "key"]],
    "plus a column": lambda f, s: s + f["key"],
    "two": lambda f, s: f.assign(v=s, w=s * 2)[["w", "key"]],
    "assign, merge": lambda f, s: of(
        f.assign(v=s), lambda a: a[["key", "v"]].merge(f[["key", "s"]], on="key")
    ),
    "to_frame": lambda f, s: s.to_frame("v").assign(key=f["key"]),
}
"""Operations on a frame and values of its rows, the same for Dask and pandas."""

FILTERED = {
    "frame by values": lambda f, s: f[s > 0],
    "frame by values, column": lambda f, s: f[s > 0]["key"],
    "frame by values, groupby": lambda f, s: f[s <= 1].groupby("g")["key"].sum(),
    "values by values": lambda f, s: s[s > 0],
    "frame by values and a column": lambda f, s: f[(s > 0) & (f["g"] > 0)][["key"]],
    "assign, filter by values": lambda f, s: f.assign(v=s)[s > 0][["key", "v"]],
}
"""The same, where the values themselves leave out rows."""


OWN = ["left", "right", "rank", "distance", "value", "ordering", "reachability"]
"""Columns whose dtypes this package chooses."""


RESULTS = Digests()
"""Digests of the results."""


def of(value: Any, what: Any) -> Any:
    """Apply a function to a value."""
    return what(value)


def after(
    draw: Draw, want: Want, made: Made, one: Side, near: bool, folder: Path
) -> None:
    """Compare a result, and an operation on it."""
    kind, lazy, value = want
    if kind == "number":
        found = lazy.compute() if is_dask_collection(lazy) else lazy
        found = found.tolist() if isinstance(found, pd.Series) else int(found)
        RESULTS.add(found)
        assert found == value, f"{found} pairs, and {value} by the definition"
        return
    if kind == "matrix":
        return check_matrix(
            lazy.compute() if is_dask_collection(lazy) else lazy, *value, near
        )
    if kind == "forest":
        eps, core, labels, _ = value
        found = lazy.compute() if is_dask_collection(lazy) else lazy
        RESULTS.add(dtypes_of(found), rows_of(found, made.labelled))
        assert not made.labelled or found.index.tolist() == one.frame.index.tolist()
        assert (found["ordering"][~one.used] == -1).all()
        return check_forest(found[one.used], eps, core, labels)
    if not is_dask_collection(lazy):
        return compared(lazy, value, near, kind != "pairs")
    if kind == "aligned":
        return beside(draw, lazy, value, made, one, near, folder)
    own = [
        "len",
        "head",
        "persist",
        "repartition",
        "parquet",
        "partitions",
        "merge",
        "dtypes",
        "divisions",
    ]
    done = draw.one("after", ["as it is"] * 6 + list(BOTH) + own)
    index = kind == "rows" and made.labelled
    if done in BOTH:
        return compared(
            BOTH[done](lazy).compute(),
            BOTH[done](value),
            near,
            index and done not in ("size",),
        )
    if done == "merge":
        source = [
            frame[["key", "g"]].reset_index(drop=True).rename(columns={"g": "group"})
            for frame in (one.lazy, one.frame)
        ]
        column = (
            "key"
            if kind == "rows"
            else "left"
            if "id='key'" in draw.said and "left" in value
            else None
        )
        if column is None:
            raise Skipped("nothing to merge by")
        how = {"left_on": column, "right_on": "key"}
        lazy, value = (frame.reset_index(drop=True) for frame in (lazy, value))
        return compared(
            lazy.merge(source[0], **how).compute(),
            value.merge(source[1], **how),
            near,
            False,
        )
    if (
        kind == "rows"
        and done == "partitions"
        and not keeps_all(made.frame, len(one.frame))
    ):
        raise Skipped(
            "Dask loses rows where partitions of what it reads otherwise are chosen"
        )
    if kind == "rows" and done == "len" and not counts_rows(made.frame):
        raise Skipped("Dask cannot count the rows of this frame")
    if kind == "rows" and done == "dtypes":
        # Dask may tell other dtypes for a frame than it has
        return assert_dtypes(list(one.frame.columns), one.frame, lazy.compute())
    whole(draw, done, lazy, value, near, index, folder)


def counts_rows(frame: Any) -> bool:
    """Return whether Dask can count the rows of a frame. It fails for a Parquet file that
    is filtered twice by texts.
    """
    try:
        len(frame)
    except IndexError:
        return False
    return True


def assert_dtypes(columns: list[Any], told: Any, found: Any) -> None:
    """Raise an error if columns have other dtypes than was told."""
    kinds = [[str(frame[name].dtype) for name in columns] for frame in (told, found)]
    RESULTS.add(kinds)
    assert kinds[0] == kinds[1], f"dtypes {kinds[0]} were told, and are {kinds[1]}"


def few_partitions(draw: Draw, lazy: Any) -> list[Any]:
    """Return the first partitions of a result, each computed alone."""
    try:
        return [lazy.partitions[n].compute() for n in range(min(lazy.npartitions, 12))]
    except IndexError as error:
        concatenated = {"how='right'", "how='outer'"} & {*draw.said}
        if concatenated and "filesystem='arrow'" in draw.said:
            raise Skipped("Dask cannot choose partitions of small files") from error
        raise


def whole(
    draw: Draw, done: str, lazy: Any, value: Any, near: bool, index: bool, folder: Path
) -> None:
    """Apply an operation to a whole result."""
    if done == "len":
        RESULTS.add(len(lazy))
        assert len(lazy) == len(value), f"len is {len(lazy)}, not {len(value)}"
    elif done == "head":
        assert len(lazy.head(3, npartitions=-1)) == min(3, len(value))
        assert len(lazy.tail(1)) <= 1
    elif done == "persist":
        compared(lazy.persist().compute(), value, near, index)
    elif done == "repartition":
        number = draw.one("into", [1, 2, 4])
        ends = pd.Index([lazy.divisions[0], lazy.divisions[-1]])  # may be NaN
        one_label = lazy.known_divisions and ends.nunique(dropna=False) == 1
        # Dask cuts between divisions, and here there is only one
        if one_label and lazy.npartitions < number:
            raise Skipped("Dask cannot cut partitions of one label further")
        compared(lazy.repartition(npartitions=number).compute(), value, near, index)
    elif done == "parquet":
        named = all(isinstance(name, str) for name in lazy.columns)
        lazy = (
            lazy
            if named
            else lazy.rename(columns={name: str(name) for name in lazy.columns})
        )
        value = value.rename(columns={name: str(name) for name in value.columns})
        # some frames have a column with the name of their index
        lazy = lazy.rename_axis(index="labels")
        lazy.to_parquet(folder / "result", write_index=index)
        compared(dd.read_parquet(folder / "result").compute(), value, near, index)
    elif done == "partitions":
        parts = few_partitions(draw, lazy)
        if lazy.npartitions <= 12:
            compared(pd.concat(parts), value, near, index)
    elif done == "dtypes":
        own = [name for name in OWN if name in lazy.columns]
        assert_dtypes(own, lazy, lazy.compute())
    elif done == "divisions" and lazy.known_divisions:
        assert_divisions(lazy)


def beside(
    draw: Draw, lazy: Any, value: Any, made: Made, one: Side, near: bool, folder: Path
) -> None:
    """Return values of rows, and the frame of these rows."""
    own = [
        "persist",
        "repartition",
        "parquet",
        "partitions",
        "divisions",
        "len",
        "dtypes",
    ]
    done = draw.one("after", ["as it is"] * 4 + list(FRAMES) * 2 + list(FILTERED) + own)
    if done == "as it is":
        found = lazy.compute()
        return compared(found, value, near, made.labelled, made.ordered)
    if done in own:
        if done == "partitions" and fails_alike(last_partition, made.frame, IndexError):
            raise Skipped(
                "Dask cannot choose partitions of frames whose partitions it merges"
            )
        if lazy.ndim == 1:
            lazy, value = (one.to_frame("value") for one in (lazy, value))
        elif done == "parquet":  # parquet accepts no numbers as names
            lazy, value = (one.rename(columns=str) for one in (lazy, value))
        return whole(draw, done, lazy, value, near, made.labelled, folder)
    if lazy.ndim == 2:
        column = draw.one("column", list(value.columns))
        lazy, value = lazy[column], value[column]
    what = FRAMES.get(done) or FILTERED[done]
    if not made.ordered and not one.frame.index.is_unique:
        raise Skipped("labels that repeat, in an order that Dask does not fix")
    try:
        found = what(made.frame, lazy).compute()
    except Exception as error:
        # for mixed names of columns, Dask fails in another place
        if fails_alike(what, made.frame, Exception):
            raise Skipped(
                "Dask cannot do that with values of its own either"
            ) from error
        raise
    compared(
        found, what(one.frame, value), near, made.labelled and done != "assign, merge"
    )


def fails_alike(what: Any, frame: Any, error: type[Exception]) -> bool:
    """Return whether Dask fails as well with its own values of the frame's rows."""
    for own in (
        frame["key"].cumsum(),
        frame.map_partitions(keys, meta=frame._meta["key"]),
    ):
        try:
            what(frame, own).compute()
        except error:
            return True
    return False


def keeps_all(frame: Any, rows: int) -> bool:
    """Return whether the partitions of all rows, chosen by Dask's own values, have all
    rows.
    """
    own = frame[frame.map_partitions(keys, meta=frame._meta["key"]).notnull()]
    try:
        return (
            sum(len(own.partitions[n].compute()) for n in range(own.npartitions))
            == rows
        )
    except (
        IndexError
    ):  # raised for divisions, where Dask reads several files as one partition
        return False


def last_partition(frame: Any, values: Any) -> Any:
    """Return the last partition of values of a frame's rows."""
    return values.partitions[frame.npartitions - 1]


def keys(part: pd.DataFrame) -> pd.Series:
    """Return a column of a partition."""
    return part["key"]


def check_matrix(
    found: Any, rows: int, want: list[tuple[int, float, int]], near: bool
) -> None:
    """Return the entries of a sparse matrix in order."""
    assert found.shape == (rows, rows)
    counts = np.diff(found.indptr)
    entries = list(
        zip(
            np.repeat(np.arange(rows), counts).tolist(),
            found.data.tolist(),
            found.indices.tolist(),
            strict=True,
        )
    )
    assert entries == sorted(entries), "entries are not in order"
    compared(
        pd.DataFrame(sorted((i, j, d) for i, d, j in entries)),
        pd.DataFrame(sorted((i, j, d) for i, d, j in want)),
        near,
        False,
    )


def plain(value: Any) -> Any:
    """Return a value as a Python object; None for a missing one."""
    if (
        value is None
        or value is pd.NA
        or value is pd.NaT
        or (isinstance(value, float) and math.isnan(value))
    ):
        return None
    return value.item() if isinstance(value, np.generic) else value


def key(row: tuple[Any, ...]) -> Any:
    """Return a key that sorts rows, whatever their values are."""
    return [
        (
            value is None,
            isinstance(value, str),
            isinstance(value, datetime.date),
            0 if value is None else value,
        )
        for value in row
    ]


def rows_of(thing: Any, index: bool) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """Return the names of columns, and the rows."""
    frame = thing.to_frame("value") if thing.ndim == 1 else thing
    columns = [
        [plain(v) for v in frame.iloc[:, k].tolist()] for k in range(frame.shape[1])
    ]
    columns += [[plain(v) for v in frame.index.tolist()]] if index else []
    return list(frame.columns), list(zip(*columns, strict=True)) if columns else []


def dtypes_of(thing: Any) -> list[str]:
    """Return the names of the columns' dtypes."""
    return (
        [str(thing.dtype)]
        if thing.ndim == 1
        else [str(dtype) for dtype in thing.dtypes]
    )


def compared(
    found: Any, want: Any, near: bool, index: bool, ordered: bool = False
) -> None:
    """Fail where two results differ; `near`: distances may in their last places."""
    assert found.ndim == want.ndim
    names, mine = rows_of(found, index)
    wanted, theirs = rows_of(want, index)
    assert names == wanted or not len(theirs), f"columns are {names}, not {wanted}"
    if not ordered:
        mine, theirs = sorted(mine, key=key), sorted(theirs, key=key)
    RESULTS.add(dtypes_of(found), names, mine)
    assert len(mine) == len(theirs), (
        f"{len(mine)} rows, and {len(theirs)} by the definition"
    )
    different = [
        (a, b) for a, b in zip(mine, theirs, strict=True) if not same(a, b, near)
    ]
    assert not different, (
        f"{len(different)} of {len(mine)} rows differ, such as {different[:3]}"
    )


def same(one: tuple[Any, ...], other: tuple[Any, ...], near: bool) -> bool:
    """Return whether two rows are equal."""
    if one == other:
        return True
    return near and all(a == b or close(a, b) for a, b in zip(one, other, strict=True))


def close(a: Any, b: Any) -> bool:
    """Return whether two numbers differ in their last places only; in meters near
    antipodes by more.
    """
    return (
        isinstance(a, float)
        and isinstance(b, float)
        and math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-6)
    )
