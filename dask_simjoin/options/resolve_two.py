"""Check requests for joins of two tables against both, and resolve them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

from dask_simjoin.errors import TABLES, ColumnError, OptionError, in_table
from dask_simjoin.metrics.types import Columns, Frame
from dask_simjoin.options.by import groups_of
from dask_simjoin.options.chosen_columns import check_chosen, integers_among
from dask_simjoin.options.columns import ROW_ID, kinds_of, numeric_columns, own_radius
from dask_simjoin.options.groups import TwoTables
from dask_simjoin.options.messages import listed
from dask_simjoin.options.resolve import resolve
from dask_simjoin.options.spec import JoinSpec


def resolve_two(asked: TwoTables, left: Frame, right: Frame, eps: object) -> JoinSpec:
    """Check the options of a request for two frames like these (empty examples), but for `keep`."""
    ids = [asked.id if own is None else own for own in (asked.left_id, asked.right_id)]
    radius = own_radius(left, eps) if asked.radii else None
    by, added = groups_of(getattr(asked, "by", None))
    columns = _coordinates(asked, left, right, [*ids, radius], (*by, *added))
    sides = zip((left, right), columns, ids, (eps, eps if radius is None else 0.0), strict=True)
    specs = []
    for which, (table, on, id, far) in zip(TABLES, sides, strict=True):
        with in_table(which):
            specs.append(resolve(replace(asked, on=on, id=id), table, far))
    first, second = specs
    if len(first.on) != len(second.on):
        raise ColumnError(
            f"The left table is joined on {len(first.on)} columns, {list(first.on)!r}, and the right "
            f"one on {len(second.on)}, {list(second.on)!r}; name as many of both, in the same order."
        )
    if first.lists != second.lists:
        holds = ["lists" if own.lists else "numbers" for own in specs]
        raise ColumnError(
            f"Column {first.on[0]!r} of the left table holds {holds[0]}, and {second.on[0]!r} of the "
            f"right one {holds[1]}; name columns that hold the same."
        )
    if asked.on is None and asked.left_on is None:
        chosen = integers_among(_kinds(left, right, first.on))
        first, second = (replace(own, chosen=chosen) for own in specs)
    return replace(first, other=second)


def check_one_table(asked: Any) -> None:
    """Refuse options of two tables where there is but one."""
    if any(side is not None for side in (asked.left_on, asked.right_on, asked.left_id, asked.right_id)):
        raise OptionError(
            "left_on=, right_on=, left_id= and right_id= are of joins of two tables; use on= and id=."
        )


def _kinds(left: Frame, right: Frame, shared: Iterable[Hashable]) -> dict[Hashable, str]:
    """Kinds of numbers of columns that both tables have; integers only where both have such."""
    kinds = zip(kinds_of(left, shared).items(), kinds_of(right, shared).values(), strict=True)
    return {name: "f" if "f" in (own, other) else own for (name, own), other in kinds}


def _coordinates(asked: TwoTables, left: Frame, right: Frame,
                 besides: list[Hashable | None], groups: tuple[Hashable, ...]) -> list[Columns]:  # fmt: skip
    """The coordinates of both tables as they are named, or as both have them `besides` ids and distances.

    `groups`: columns that tell groups.
    """
    if asked.left_on is None and asked.right_on is None:
        if asked.on is not None:
            return [asked.on, asked.on]
        shared: list[Hashable] = [
            name
            for name in numeric_columns(left, (besides[0], besides[2], ROW_ID, *groups))
            if name in numeric_columns(right, (besides[1], ROW_ID, *groups))
        ]
        if not shared:
            raise ColumnError(
                "The tables have no numeric column of the same name to join on besides ids and booleans; "
                "name the coordinates with on=[...], or with left_on=[...] and right_on=[...]. The columns "
                f"are {listed(left.columns)} of the left table, and {listed(right.columns)} of the right one."
            )
        check_chosen(_kinds(left, right, shared))
        return [shared, shared]
    if asked.on is not None:
        raise OptionError(
            "on= names the columns of both tables; use it, or left_on= and right_on=, not both."
        )
    if asked.left_on is None or asked.right_on is None:
        missing = "left_on" if asked.left_on is None else "right_on"
        raise OptionError(f"{missing}= is missing; name the columns of both tables, or use on= for both.")
    return [asked.left_on, asked.right_on]
