"""Joins within groups of frames with odd labels, dtypes and libraries, compared with
`pandas.merge`.
"""

import datetime
import warnings
from decimal import Decimal

import dask
import numpy as np
import pandas as pd
from dask.base import is_dask_collection
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.frames import split
from tests.support.profiles import examples

DAY = datetime.date(2020, 1, 1)


def objects(values):
    return pd.Series(values, dtype=object)


KINDS = {
    "int64": lambda values: pd.Series(
        [0 if v is None else v for v in values], dtype="int64"
    ),
    "float32": lambda values: pd.Series(
        [np.nan if v is None else v for v in values], dtype="float32"
    ),
    "Int64": lambda values: pd.Series(values, dtype="Int64"),
    "str": lambda values: pd.Series(
        [None if v is None else f"w{v}" for v in values], dtype="str"
    ),
    "strings": lambda values: objects([None if v is None else f"w{v}" for v in values]),
    "category": lambda values: KINDS["str"](values).astype("category"),
    "dates": lambda values: objects(
        [None if v is None else DAY + datetime.timedelta(v) for v in values]
    ),
    "decimals": lambda values: objects(
        [None if v is None else Decimal(v) / 2 for v in values]
    ),
    "times": lambda values: pd.Series(
        pd.to_datetime(
            [None if v is None else DAY + datetime.timedelta(v) for v in values]
        )
    ).astype("datetime64[s]"),
    "finer times": lambda values: pd.Series(
        pd.to_datetime(
            [None if v is None else DAY + datetime.timedelta(v) for v in values]
        )
    ).astype("datetime64[ns]"),
}

ALIKE = [
    ("int64", "float32", "Int64"),
    ("str", "strings", "category"),
    ("dates",),
    ("decimals",),
    ("times", "finer times"),
]
"""Kinds of columns that have values in common."""

LABELS = [
    "g",
    "by=g",
    "left",
    "right",
    "distance",
    "rank",
    "code",
    "value",
    7,
    ("a", 1),
]


@st.composite
def columns(draw):
    """Labels of columns that groups are of, and a kind for each of them in both tables."""
    names = draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=2, unique=True))
    alike = [draw(st.sampled_from(ALIKE)) for _ in names]
    return names, [[draw(st.sampled_from(kinds)) for kinds in alike] for _ in range(2)]


@st.composite
def tables(draw, names, kinds):
    """A plain frame, and the same as it is given: plain or in partitions."""
    rows = draw(st.integers(1, 9))
    value = st.one_of(st.integers(0, 2), st.integers(0, 2), st.none())
    some = st.lists(value, min_size=rows, max_size=rows)
    x = draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
    frame = pd.DataFrame({"x": np.array(x, float)})
    for name, kind in zip(names, kinds, strict=True):
        frame[name] = KINDS[kind](draw(some))
    return frame


@st.composite
def held(draw, frame):
    """The frame, or one of Dask, whose objects are texts if Dask is told so."""
    if draw(st.booleans()):
        return frame
    cuts = sorted(draw(st.lists(st.integers(0, len(frame)), max_size=2)))
    if draw(st.booleans()):
        objects_of = [name for name in frame.columns if frame[name].dtype == object]
        # as from_pandas does
        frame = frame.astype(dict.fromkeys(objects_of, "string[pyarrow]"))
    return split(frame, cuts)


def merged(one, other, names):
    """Pairs of rows of the same group, and how far they are apart."""
    sides = [
        frame.dropna(subset=names)
        .rename(columns={"x": f"x{side}"})
        .assign(**{f"row{side}": lambda f: f.index})
        for side, frame in enumerate((one, other))
    ]
    sides = [side[[*names, f"x{k}", f"row{k}"]] for k, side in enumerate(sides)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs = sides[0].merge(sides[1], on=names)
    return sorted(
        zip(
            pairs["row0"], (pairs["x0"] - pairs["x1"]).abs(), pairs["row1"], strict=True
        )
    )


def as_compared(frames, given, names):
    """Both tables as they are compared: objects as texts where the other one holds
    texts of Dask.
    """
    if not any(map(is_dask_collection, given)):
        return frames
    frames = [
        data._meta.iloc[:0] if is_dask_collection(data) else data for data in given
    ]
    whole = [data.compute() if is_dask_collection(data) else data for data in given]
    for name in names:
        kinds = [frame[name].dtype for frame in frames]
        lazy = [
            kind
            for kind, data in zip(kinds, given, strict=True)
            if is_dask_collection(data)
        ]
        if len(lazy) == 1 and isinstance(lazy[0], pd.StringDtype):
            whole = [
                side.astype({name: lazy[0]}) if side[name].dtype == object else side
                for side in whole
            ]
    return whole


def possible(frames, names):
    """Whether no column has objects of one class beside texts, which are refused."""
    for name in names:
        held = {
            str if isinstance(frame[name].dtype, pd.StringDtype) else type(value)
            for frame in frames
            for value in frame[name].dropna()
        }
        if str in held and len(held) > 1:
            return False
    return True


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), columns(), st.integers(0, 2))
def test_any_frames(data, asked, eps):
    names, kinds = asked
    frames = [data.draw(tables(names, kinds[k])) for k in (0, 1)]
    given = [data.draw(held(frame)) for frame in frames]
    frames = as_compared(frames, given, names)
    if not possible(frames, names):
        return
    how = {"on": "x", "by": names, "dropna": True}
    found = merged(*frames, names)
    near = {(i, j) for i, away, j in found if away <= eps}
    rows = frames[0].dropna(subset=names).index
    others = frames[0].index.difference(rows)
    with dask.config.set(scheduler="sync"):
        one, other = given
        pairs, semi, anti, nearest, gone = dask.compute(
            one.simjoin.join(other, eps, **how),
            one.simjoin.join(other, eps, how="leftsemi", **how),
            one.simjoin.join(other, eps, how="leftanti", **how),
            one.simjoin.knn_join(other, 2, max_distance=eps, **how),
            one.simjoin.near_duplicated(eps, **how),
        )
    assert sorted(zip(pairs["left"], pairs["right"], strict=True)) == sorted(near)
    assert semi.index.tolist() == sorted({i for i, _ in near})
    assert anti.index.tolist() == [
        i for i in frames[0].index if i not in set(semi.index)
    ]
    assert not gone[others].any()
    assert list(semi.columns) == list(frames[0].columns)
    want = [
        (i, j)
        for i in rows
        for _, _, j in [row for row in found if row[0] == i and row[1] <= eps][:2]
    ]
    assert sorted(zip(nearest["left"], nearest["right"], strict=True)) == sorted(want)
    stays = []
    for i in rows:
        twins = {
            j
            for k, away, j in merged(frames[0], frames[0], names)
            if k == i and away <= eps
        }
        if not twins & set(stays):
            stays.append(i)
    assert [i for i in rows if not gone[i]] == stays
