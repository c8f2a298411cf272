"""Check requests for joins against the frames that they are of, and resolve them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

import numpy as np

from dask_simjoin.engine.base import library
from dask_simjoin.engine.ids import check_indexable
from dask_simjoin.engine.lists import lists_of
from dask_simjoin.engine.methods import LOSSY, NEAREST, choices_for, is_method, name_of
from dask_simjoin.errors import ColumnError, OptionError, OptionTypeError
from dask_simjoin.metrics.types import DType, Frame
from dask_simjoin.options.by import groups_of
from dask_simjoin.options.chosen_columns import integers_among
from dask_simjoin.options.columns import (
    check_columns,
    check_columns_of,
    check_label,
    check_on,
    has_column,
    kinds_of,
    own_radius,
)
from dask_simjoin.options.groups import ORDER, Kept, MetricRequest
from dask_simjoin.options.keep import resolve_keep
from dask_simjoin.options.messages import listed, shown
from dask_simjoin.options.settings import current_settings, on_cluster, parse_size
from dask_simjoin.options.spec import JoinSpec, RowSpec, check_dims, without_ids
from dask_simjoin.options.units import without_unit
from dask_simjoin.options.validate import check_choice, check_eps, check_metric

Spec = TypeVar("Spec", bound=RowSpec)

AS_GIVEN = ("pairs", "include_self", "return_distance", "dropna", "method", "partitioning")
"""Options that a resolved join has as they are."""

FLAGS = ("include_self", "return_distance", "dropna")


def resolve(asked: MetricRequest, meta: Frame, eps: object) -> JoinSpec:
    """Check the options of a request for one frame like `meta` (its empty example), but for `keep`."""
    settings, name = current_settings(on_cluster()), library(meta)
    radius = own_radius(meta, eps) if asked.radii else None
    metric, p = check_metric(asked.metric, asked.p)
    far = 0.0 if radius is not None else check_eps(without_unit(eps, metric, asked.bound), asked.bound)
    check_choices(asked)
    blocksize = None if asked.blocksize is None else parse_size("blocksize", asked.blocksize)
    given = {name: getattr(asked, name) for name in AS_GIVEN if hasattr(asked, name)}
    given |= {name: check_flag(name, given[name]) for name in FLAGS if name in given}
    check_columns(meta)
    dtype = id_dtype(meta, asked.id)
    by, grouped = groups_of(getattr(asked, "by", None))
    suggested = meta[[name for name in meta.columns if name not in (*by, *grouped)]] if by else meta
    on = check_on(suggested if asked.on is None else meta, asked.on, asked.id, radius)
    check_columns_of(metric, on, asked.on is None)
    lists = lists_of(meta[on[0]]) if len(on) == 1 else None
    columns = len(on) if lists is None else lists.length
    dims = None if columns is None else metric.dims(columns) + len(grouped)
    spec = JoinSpec(
        far, (*on, *grouped), asked.id, metric=asked.metric, p=p, dims=dims, by=by,
        lists=lists is not None, blocksize=blocksize, settings=settings, id_dtype=dtype, library=name,
        radius=radius, bound=asked.bound, **given,
        chosen=integers_among(kinds_of(meta, on)) if asked.on is None else None,
    )  # fmt: skip
    methods = choices_for(name)
    asked_method = name_of(spec.method)
    if asked_method not in methods:
        raise OptionError(
            f"method={asked_method!r} does not serve frames of {name!r}; use one of "
            f"{', '.join(map(repr, methods))}, or ddf.to_backend('pandas')."
        )
    check_dims(spec)
    spec = losing(spec, getattr(asked, "approximate", False), getattr(asked, "lossy", LOSSY))
    return spec if asked.names_rows else without_ids(spec)


def losing(spec: JoinSpec, approximate: object, methods: tuple[str, ...] = LOSSY) -> JoinSpec:
    """Allow a join to leave pairs out, if its method is one of those that can."""
    approximate = check_flag("approximate", approximate)
    if approximate and name_of(spec.method) not in methods:
        raise OptionError(
            f"approximate=True is not allowed with method={name_of(spec.method)!r}, which finds all pairs; "
            f"use method={' or '.join(map(repr, methods))}, or leave it out."
        )
    return replace(spec, approximate=approximate)


def searched(spec: JoinSpec) -> JoinSpec:
    """Refuse a method that searches no nearest neighbours."""
    asked = name_of(spec.method)
    if asked not in NEAREST:
        raise OptionError(
            f"method={asked!r} searches no nearest neighbours; use one of {', '.join(map(repr, NEAREST))}."
        )
    return spec


def check_choices(asked: Any, is_method: Callable[[object], bool] = is_method) -> None:
    """Refuse a value that is none of an option's choices; `metric` and `how` have checks of their own.

    `is_method`: tells a method as an object from what is none.
    """
    found = (option for option in fields(asked) if option.name not in ("metric", "how"))
    for option in sorted(found, key=lambda option: ORDER.index(option.name)):
        choices, value = cast(tuple[str, ...], option.metadata["choices"]), getattr(asked, option.name)
        if option.name == "method":
            check_method(value, choices, is_method)
        elif choices:
            check_choice(option.name, value, choices)


def check_method(value: object, names: tuple[str, ...], is_method: Callable[[object], bool]) -> None:
    """Refuse what is neither a method's name nor a method with its options."""
    if isinstance(value, str) and value in names:
        return
    if isinstance(value, type):
        raise OptionTypeError(
            f"method={value.__name__} is a class; use method={value.__name__}(), or one of "
            f"{', '.join(map(repr, names))}."
        )
    if not is_method(value):
        check_choice("method", value, names)


def check_flag(name: str, value: object) -> bool:
    """Refuse what is neither true nor false."""
    if not isinstance(value, (bool, np.bool_)):
        raise OptionTypeError(f"{name}={shown(value)} is not allowed; use True or False.")
    return bool(value)


def id_dtype(meta: Frame, id: Hashable | None) -> DType:
    """The dtype of what names rows; refuses what cannot."""
    if id is not None and not has_column(meta.columns, id):
        raise ColumnError(
            f"id={shown(id)} is not a column; the columns are {listed(meta.columns)}. "
            "Leave out id to name rows by their index labels."
        )
    if id is not None:
        check_label("id", id, meta.columns)
    dtype = meta.index.dtype if id is None else meta[id].dtype
    if id is not None:  # verbs that name no rows take any index
        check_indexable(dtype, id)
    return dtype


def keeping(asked: Kept, spec: Spec, left: Frame, right: Frame | None = None) -> Spec:
    """Add the kept columns of one table, or of two, to a resolved join."""
    of_left, of_right, names = resolve_keep(asked.keep, asked.suffixes, left, right)
    found: Any = spec  # every spec is a dataclass
    if spec.other is not None:
        other: Any = spec.other
        found = replace(found, other=replace(other, keep=of_right, names=names[len(of_left) :]))
        names = names[: len(of_left)]
    resolved: Spec = replace(found, keep=of_left, names=names)
    return resolved
