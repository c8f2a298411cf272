"""What verbs make of two tables: both lazy or both plain, of one library, and the options of each."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.engine.base import HOME, frames_for, library
from dask_simjoin.errors import TABLES, ColumnError, OptionError, UnsupportedFrameError, in_table
from dask_simjoin.expressions.dask_private import UNKNOWN_CATEGORIES
from dask_simjoin.options.chosen_columns import check_chosen, integers_among
from dask_simjoin.options.columns import ROW_ID, kinds_of, numeric_columns, own_radius
from dask_simjoin.options.frames import checked_spec, example_ids, example_of, is_frame
from dask_simjoin.options.keep import SUFFIXES, kept_columns
from dask_simjoin.options.messages import shown
from dask_simjoin.options.optional import optional
from dask_simjoin.options.spec import JoinSpec


def check_other(call: str, other: Any, **second: Any) -> None:
    """Refuse a right table that is none; `second`: the argument that comes after it."""
    if is_frame(other):
        return
    swapped = [
        f" {name}= is one: the table comes first." for name, value in second.items() if is_frame(value)
    ]
    if not swapped and "k" in second and isinstance(other, numbers.Integral):
        swapped = [f" Of this frame itself: knn_join(k={shown(other)})."]
    raise UnsupportedFrameError(
        f"other={shown(other)} is not a data frame.{''.join(swapped)} Use {call}, where other= is a Dask, "
        "pandas or cuDF DataFrame."
    )


def alike(left: Any, right: Any) -> tuple[Any, Any, Any, Any]:
    """Two tables, both Dask's if one is, and their empty examples; refuses those of two libraries."""
    examples = example_of(left), example_of(right)
    names = [library(example) for example in examples]
    if names[0] != names[1]:
        raise UnsupportedFrameError(
            f"The left table is one of {names[0]} and the right one of {names[1]}; both must be of one "
            f"library: use .to_backend({names[0]!r}) of a Dask DataFrame, or convert the right one."
        )
    if is_dask_collection(left) or is_dask_collection(right):
        left, right = (side if is_dask_collection(side) else _lazy(side, names[0]) for side in (left, right))
    return left, right, *examples


def _lazy(frame: Any, name: str) -> Any:
    """A plain frame as a Dask DataFrame of one partition."""
    if name == HOME:
        with dask.config.set({"dataframe.convert-string": False}):  # lists, and what objects else there are
            return dd.from_pandas(frame, npartitions=1, sort=False)
    dask_cudf = optional("dask_cudf", "dask-cudf", "Joins of Dask DataFrames with cuDF's")
    return dask_cudf.from_cudf(frame, npartitions=1, sort=False)


def self_spec(meta: Any, eps: Any, *, keep: Any = None, suffixes: Any = SUFFIXES,
              **options: Any) -> JoinSpec:  # fmt: skip
    """The options of a join of one table with itself, checked."""
    spec = checked_spec(meta, eps, radii="eps_name" not in options, **options)
    if spec.radius is not None and spec.pairs != "both":
        raise OptionError(
            f"eps={spec.radius!r} names a column, each row's own distance, so that a row may be near another "
            "and not the other way round; use pairs='both', each pair being within its left row's distance."
        )
    kept, _, names = kept_columns(keep, suffixes, meta)
    return replace(spec, keep=kept, names=names)


def two_specs(left: Any, right: Any, eps: Any, *, on: Any, left_on: Any, right_on: Any, id: Hashable | None,
              left_id: Hashable | None, right_id: Hashable | None, keep: Any, suffixes: Any,
              **options: Any) -> JoinSpec:  # fmt: skip
    """The options of a join of two tables with these empty examples, checked."""
    ids = [id if own is None else own for own in (left_id, right_id)]
    radii = "eps_name" not in options  # it is no max_distance
    radius = own_radius(left, eps) if radii else None
    columns = _coordinates(left, right, on, left_on, right_on, [*ids, radius])
    sides = zip((left, right), columns, ids, (eps, eps if radius is None else 0.0), strict=True)
    specs = []
    for which, (table, own, name, far) in zip(TABLES, sides, strict=True):
        with in_table(which):
            specs.append(checked_spec(table, far, on=own, id=name, radii=radii, **options))
    if len(specs[0].on) != len(specs[1].on):
        raise ColumnError(
            f"The left table is joined on {len(specs[0].on)} columns, {list(specs[0].on)!r}, and the right "
            f"one on {len(specs[1].on)}, {list(specs[1].on)!r}; name as many of both, in the same order."
        )
    if specs[0].lists != specs[1].lists:
        holds = ["lists" if own.lists else "numbers" for own in specs]
        raise ColumnError(
            f"Column {specs[0].on[0]!r} of the left table holds {holds[0]}, and {specs[1].on[0]!r} of the "
            f"right one {holds[1]}; name columns that hold the same."
        )
    if on is None and left_on is None:
        chosen = integers_among(_kinds(left, right, specs[0].on))
        specs = [replace(own, chosen=chosen) for own in specs]
    of_left, of_right, names = kept_columns(keep, suffixes, left, right)
    other = replace(specs[1], keep=of_right, names=names[len(of_left) :])
    return replace(specs[0], keep=of_left, names=names[: len(of_left)], other=other)


def one_or_two(frame: Any, other: Any, eps: Any, *, on: Any, left_on: Any, right_on: Any, id: Hashable | None,
               left_id: Hashable | None, right_id: Hashable | None, keep: Any, suffixes: Any,
               **options: Any) -> tuple[Any, Any, Any, Any, JoinSpec]:  # fmt: skip
    """Two tables, or one (`other` None), examples of both sides, and the checked options of their join."""
    if other is not None:
        check_other("other=frame", other)
        frame, other, left, right = alike(frame, other)
        spec = two_specs(
            left, right, eps, on=on, left_on=left_on, right_on=right_on, id=id, left_id=left_id,
            right_id=right_id, keep=keep, suffixes=suffixes, **options,
        )  # fmt: skip
        return frame, other, left, right, spec
    if any(side is not None for side in (left_on, right_on, left_id, right_id)):
        raise OptionError(
            "left_on=, right_on=, left_id= and right_id= are of joins of two tables; use on= and id=."
        )
    example = example_of(frame)
    spec = self_spec(example, eps, on=on, id=id, keep=keep, suffixes=suffixes, **options)
    return frame, None, example, example, spec


def _kinds(left: Any, right: Any, shared: Iterable[Hashable]) -> dict[Hashable, str]:
    """Kinds of numbers of columns that both tables have; integers only where both have such."""
    kinds = zip(kinds_of(left, shared).items(), kinds_of(right, shared).values(), strict=True)
    return {name: "f" if "f" in (own, other) else own for (name, own), other in kinds}


def _coordinates(left: Any, right: Any, on: Any, left_on: Any, right_on: Any, ids: list[Any]) -> list[Any]:
    if left_on is None and right_on is None:
        if on is not None:
            return [on, on]
        shared = [
            name
            for name in numeric_columns(left, (ids[0], ids[2], ROW_ID))
            if name in numeric_columns(right, (ids[1], ROW_ID))
        ]
        if not shared:
            raise ColumnError(
                "The tables have no numeric column of the same name to join on besides ids and booleans; "
                "name the coordinates with on=[...], or with left_on=[...] and right_on=[...]."
            )
        check_chosen(_kinds(left, right, shared))
        return [shared, shared]
    if on is not None:
        raise OptionError(
            "on= names the columns of both tables; use it, or left_on= and right_on=, not both."
        )
    if left_on is None or right_on is None:
        missing = "left_on" if left_on is None else "right_on"
        raise OptionError(f"{missing}= is missing; name the columns of both tables, or use on= for both.")
    return [left_on, right_on]


def pairs_example(left: Any, right: Any, spec: JoinSpec, some_missing: bool = False) -> Any:
    """An empty example of pairs; `some_missing`: right rows may be missing."""
    frames = frames_for(left)
    none = np.zeros(0, np.int64)
    columns = {"left": example_ids(left, spec), "right": example_ids(right, spec.other or spec)}
    if spec.return_distance:
        columns["distance"] = np.empty(0)
    columns |= {called: frames.values(left, name, none) for called, name in spec.kept_left.items()}
    columns |= {called: frames.values(right, name, none) for called, name in spec.kept_right.items()}
    example = frames.result(columns, 0)
    if not some_missing:
        return example
    of_right = ["right", *spec.kept_right]
    for name in of_right:
        if UNKNOWN_CATEGORIES in getattr(example[name].dtype, "categories", ()):
            column = spec.kept_right.get(name, spec.other and spec.other.id)
            named = "the index" if column is None else repr(column)
            raise ColumnError(
                f"how='left' makes missing values of {named} of the right table, whose categories Dask does "
                "not know; use other.categorize() first, which reads them, or convert it, for example with "
                ".astype('object')."
            )
    return example.astype({name: frames.optional(example[name].dtype) for name in of_right})
