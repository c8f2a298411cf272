"""Check requests against their frames, and choose the columns of the join."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

import numpy as np

from dask_simjoin.catalog import (
    HOME,
    LOSSY,
    NEAREST,
    check_indexable,
    choices_for,
    is_method,
    library,
    lists_of,
    name_of,
)
from dask_simjoin.errors import (
    TABLES,
    ColumnError,
    OptionError,
    OptionTypeError,
    in_table,
)
from dask_simjoin.metrics.distances import Hamming, Metric
from dask_simjoin.metrics.gates import Gates
from dask_simjoin.metrics.norms import Columns, DType, Frame
from dask_simjoin.request.column_names import check_chosen, integers_among
from dask_simjoin.request.columns import (
    ROW_ID,
    as_names,
    check_column_exists,
    check_columns,
    check_columns_of,
    check_label,
    check_on,
    groups_of,
    has_column,
    kinds_of,
    left_out,
    numeric_columns,
    own_radius,
    swapped_conditions,
)
from dask_simjoin.request.conversions import if_numbers
from dask_simjoin.request.messages import TIMES_ALONE, listed, shown
from dask_simjoin.request.options import (
    ORDER,
    SUFFIXES,
    Conditions,
    Keep,
    Kept,
    MetricRequest,
    OfTwoTables,
    current_settings,
    on_cluster,
    parse_size,
)
from dask_simjoin.request.spec import (
    NO_GATES,
    ChunkOptions,
    Coordinates,
    DefaultColumns,
    JoinSpec,
    Limit,
    MetricOptions,
    ResultOptions,
    RowSpec,
    SearchOptions,
    check_dims,
    without_ids,
)
from dask_simjoin.request.units import (
    box_of,
    check_choice,
    check_distance,
    check_is_norm,
    check_metric,
)

OWN = ("left", "right", "rank", "distance", "similarity")
"""Names of the columns that joins make. Kept columns cannot get these names."""


def check_suffixes(suffixes: Any) -> tuple[str, str]:
    """Return the two suffixes; raise an error if they are not two strings."""
    given = () if isinstance(suffixes, str) else as_names(suffixes)
    if len(given) != 2 or not all(isinstance(one, str) for one in given):
        raise OptionTypeError(
            f"suffixes={shown(suffixes)} are not two strings; use two, such as "
            f"{SUFFIXES!r}."
        )
    return str(given[0]), str(given[1])


def _names_in(keep: Columns, tables: list[Frame]) -> list[Hashable]:
    """Return the columns that `keep` names; raise an error if no table has one of them."""
    if keep is None:
        return []
    if isinstance(keep, tuple) and any(
        has_column(table.columns, keep) for table in tables
    ):
        return [keep]
    if isinstance(keep, (set, frozenset)):
        raise ColumnError(f"keep={shown(keep)} has no order; use a list.")
    names = as_names(keep)
    seen: set[Hashable] = set()
    for name in names:
        if not isinstance(name, Hashable):
            raise ColumnError(
                f"keep= names {shown(name)}, which cannot be the name of a column."
            )
        if name in seen:
            raise ColumnError(
                f"keep= names {name!r} more than once; name each column once."
            )
        seen.add(name)
        check_column_exists("keep", name, tables)
    return names


KeptColumns = dict[str, Hashable]
"""Kept columns of one side: name in the result -> column."""


def _of_each_side(
    keep: Keep, left: Frame, right: Frame | None
) -> tuple[list[Hashable], list[Hashable]]:
    """Return the columns that are kept of left rows, and of right rows."""
    tables = [left] if right is None else [left, right]
    if not isinstance(keep, Mapping):
        names = _names_in(keep, tables)
        of_left, of_right = (
            [name for name in names if name in table.columns]
            for table in (tables[0], tables[-1])
        )
        return of_left, of_right
    for side in keep:
        if side not in TABLES:
            raise OptionTypeError(
                f"keep= is a dict with the key {shown(side)}; its keys are 'left' and "
                "'right', such as keep={'left': ['name'], 'right': ['price']}."
            )
    found = []
    for side, table in zip(TABLES, (tables[0], tables[-1]), strict=True):
        with in_table(None if right is None else side):
            found.append(_names_in(keep.get(side), [table]))
    return found[0], found[1]


def resolve_keep(
    keep: Keep, suffixes: tuple[str, str], left: Frame, right: Frame | None = None
) -> tuple[KeptColumns, KeptColumns]:
    """Return the kept columns of left rows, and of right rows.

    `left`, `right`: empty examples of the tables. Names that are kept of both rows get
    suffixes, as in `pandas.merge`.
    """
    first, second = check_suffixes(suffixes)
    of_left, of_right = _of_each_side(keep, left, right)
    both = {*of_left} & {*of_right}
    names = [f"{name}{first}" if name in both else str(name) for name in of_left]
    names += [f"{name}{second}" if name in both else str(name) for name in of_right]
    taken: set[str] = set()
    for called in names:
        if called in OWN:
            free = called not in (*of_left, *of_right) or suffixes != SUFFIXES
            raise OptionError(
                f"keep={shown(keep)} with suffixes={shown(suffixes)} would make a "
                f"column {called!r}, a name "
                f"that is reserved for columns of results ({listed(OWN)}); rename the "
                f"column first{', or use other suffixes' if free else ''}."
            )
        if called in taken:
            raise OptionError(
                f"The result would have two columns {called!r}, with "
                f"keep={shown(keep)} and "
                f"suffixes={shown(suffixes)}; use other suffixes, or rename the column "
                "first."
            )
        taken.add(called)
    return (
        dict(zip(names, of_left, strict=False)),
        dict(zip(names[len(of_left) :], of_right, strict=True)),
    )


Spec = TypeVar("Spec", bound=RowSpec)


def resolve(request: MetricRequest, meta: Frame, eps: object) -> JoinSpec:
    """Check all options of a request except `keep` against one frame. `meta`: an empty
    frame like it.
    """
    settings, name = current_settings(on_cluster(), request.threads), library(meta)
    radius = own_radius(meta, eps) if request.radii else None
    metric, p = check_metric(request.metric, request.p)
    if not (request.formulas or isinstance(request, Conditions)):
        check_is_norm(metric)
    if name != HOME and isinstance(p, float) and p != math.inf:
        raise OptionError(
            f"p={shown(p)} is for frames of pandas: GPUs compute powers of whole numbers. "
            "Use a whole number, or ddf.to_backend('pandas')."
        )
    far, text = 0.0, None
    if radius is None:
        far = check_distance(eps, metric, request.bound, request.radii)
        text = (far, eps) if isinstance(eps, str) else None
    check_choices(request)
    blocksize = (
        None
        if request.blocksize is None
        else parse_size("blocksize", request.blocksize)
    )
    result = ResultOptions(
        getattr(request, "pairs", "unique"),
        _flag(request, "include_self"),
        _flag(request, "return_distance"),
    )
    dropna = _flag(request, "dropna")
    check_columns(meta)
    dtype = id_dtype(meta, request.id, getattr(request, "other", None) is not None)
    by, grouped = groups_of(getattr(request, "by", None))
    gates: Gates = getattr(request, "within", None) or NO_GATES
    besides = (*by, *grouped, *gates.conditions, *gates.columns)
    suggested = (
        meta[[name for name in meta.columns if name not in besides]]
        if besides
        else meta
    )
    on = _coordinates_of(
        request, suggested if request.on is None else meta, radius, metric
    )
    lists = lists_of(meta[on[0]]) if len(on) == 1 else None
    columns = len(on) if lists is None else lists.length
    added = (*grouped, *gates.columns)
    box = box_of(getattr(request, "box", None), metric, on, lists is not None)
    spec = JoinSpec(
        Limit(far, request.bound, text, radius),
        (*on, *added),
        request.id,
        dtype,
        metric=MetricOptions(request.metric, p),
        coordinates=Coordinates(
            None, lists is not None, by, dropna, gates=gates, box=box
        ),
        result=result,
        search=SearchOptions(getattr(request, "method", "auto")),
        chunks=ChunkOptions(getattr(request, "partitioning", "auto"), blocksize),
        settings=settings,
        library=name,
    )
    if columns is not None:
        spec = spec.with_dims(spec.measure.dims(columns + len(added)))
    if request.on is None:
        integers = integers_among(kinds_of(meta, on))
        others = left_out(suggested, _used(spec))
        spec = replace(spec, defaults=DefaultColumns(integers, others))
    methods = choices_for(name)
    method = name_of(spec.search.method)
    if method not in methods:
        raise OptionError(
            f"method={method!r} does not support frames of {name!r}; use one of "
            f"{', '.join(map(repr, methods))}, or ddf.to_backend('pandas')."
        )
    check_dims(spec)
    spec = losing(
        spec, getattr(request, "approximate", False), getattr(request, "lossy", LOSSY)
    )
    return spec if request.names_rows else without_ids(spec)


def _coordinates_of(
    request: MetricRequest, meta: Frame, radius: str | None, metric: Metric
) -> tuple[Hashable, ...]:
    """Return the columns of coordinates. `meta`: the columns to choose from."""
    try:
        on = check_on(
            meta,
            request.on,
            request.id,
            radius,
            bool(metric.columns),
            metric.name == Hamming.name,
        )
    except ColumnError as error:
        if request.on is None and getattr(request, "within", None):
            raise ColumnError(f"{error} {TIMES_ALONE}") from None
        raise
    check_columns_of(metric, on, request.on is None)
    return on


def _flag(request: MetricRequest, name: str) -> bool:
    """Return a flag of a request; False: its verb does not have it."""
    return check_flag(name, getattr(request, name, False))


def _used(spec: JoinSpec) -> tuple[Hashable | None, ...]:
    """Return the columns that a join uses, and those that never are coordinates by
    default.
    """
    return (*spec.on, spec.id, spec.radius, *spec.conditions, *spec.keep, ROW_ID)


def losing(
    spec: JoinSpec, approximate: object, methods: tuple[str, ...] = LOSSY
) -> JoinSpec:
    """Set `approximate` in a spec.

    Raise an error if `approximate` is True and the method is not in `methods`. These
    methods can skip pairs.
    """
    approximate = check_flag("approximate", approximate)
    if approximate and name_of(spec.search.method) not in methods:
        raise OptionError(
            f"approximate=True is not allowed with method={name_of(spec.search.method)!r}, "
            "which finds all pairs. "
            f"Remove approximate=True, or use method={' or '.join(map(repr, methods))}."
        )
    return replace(spec, search=spec.search._replace(approximate=approximate))


def searched(spec: JoinSpec) -> JoinSpec:
    """Raise an error if the method cannot search nearest neighbors."""
    method = name_of(spec.search.method)
    if method not in NEAREST:
        raise OptionError(
            f"method={method!r} does not search nearest neighbors; use one of "
            f"{', '.join(map(repr, NEAREST))}."
        )
    return spec


def check_choices(
    request: Any, is_method: Callable[[object], bool] = is_method
) -> None:
    """Raise an error if an option has a value that is not among its choices.

    `metric` and `how` are checked elsewhere. `is_method`: function that returns whether
    a value is a method object.
    """
    found = (
        option for option in fields(request) if option.name not in ("metric", "how")
    )
    for option in sorted(found, key=lambda option: ORDER.index(option.name)):
        choices, value = (
            cast(tuple[str, ...], option.metadata["choices"]),
            getattr(request, option.name),
        )
        if option.name == "method":
            check_method(value, choices, is_method)
        elif choices:
            check_choice(option.name, value, choices)


def check_method(
    value: object, names: tuple[str, ...], is_method: Callable[[object], bool]
) -> None:
    """Raise an error if a value is neither the name of a method nor a method object."""
    if isinstance(value, str) and value in names:
        return
    if isinstance(value, type):
        raise OptionTypeError(
            f"method={value.__name__} is a class; use method={value.__name__}(), or "
            "one of "
            f"{', '.join(map(repr, names))}."
        )
    if not is_method(value):
        check_choice("method", value, names)


def check_flag(name: str, value: object) -> bool:
    """Raise an error if a value is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise OptionTypeError(
            f"{name}={shown(value)} is not allowed; use True or False."
        )
    return bool(value)


def id_dtype(meta: Frame, id: Hashable | None, is_one_of_two: bool = False) -> DType:
    """Return the dtype of the ids; raise an error for unsuitable ids.

    `is_one_of_two`: whether there are two tables.
    """
    if id is not None and not has_column(meta.columns, id):
        each = (
            "If the tables have different id columns, use left_id= and right_id=. "
            if is_one_of_two
            else ""
        )
        raise ColumnError(
            f"id={shown(id)} is not a column; the columns are {listed(meta.columns)}. "
            f"{each}"
            "Leave out id to name rows by their index labels."
        )
    # the index is not checked here, because verbs whose results have no row ids accept
    # any index
    if id is None:
        return meta.index.dtype
    check_label("id", id, meta.columns)
    check_indexable(meta[id].dtype, id)
    return meta[id].dtype


def keeping(request: Kept, spec: Spec, left: Frame, right: Frame | None = None) -> Spec:
    """Add the kept columns of one table or two to a spec."""
    sides = resolve_keep(request.keep, request.suffixes, left, right)
    found: Any = spec  # Any, because mypy does not know that every spec is a dataclass
    other: Any = spec.other
    if other is not None:
        first, second = (
            {"keep": tuple(own.values()), "names": tuple(own)} for own in sides
        )
        two_tables: Spec = replace(found, **first, other=replace(other, **second))
        return two_tables
    # both rows have all kept columns, and the result has some of them
    keep = tuple(dict.fromkeys([*sides[0].values(), *sides[1].values()]))
    wanted: tuple[str, ...] = (*sides[0], *sides[1])
    names: list[str] = []
    for own in sides:
        called = {column: name for name, column in own.items()}
        for column in keep:
            name = called.get(column, f"{column}'")
            while column not in called and name in (*wanted, *names):
                name += "'"
            names.append(name)
    one_table: Spec = replace(
        found,
        keep=keep,
        names=tuple(names),
        wanted=None if tuple(names) == wanted else wanted,
    )
    return one_table


def _unlike(specs: Sequence[JoinSpec], tables: Sequence[Frame]) -> ColumnError:
    """Return the error for a column of numbers in one table, and a column of lists or of
    objects in the other one.
    """
    names = [own.on[0] for own in specs]
    holds, advice = [], ""
    for own, table, name in zip(specs, tables, names, strict=True):
        kind = "lists" if own.coordinates.lists else "numbers"
        if own.coordinates.lists and isinstance(table[name].dtype, np.dtype):
            kind, advice = "objects", f" {if_numbers(name)}"
        holds.append(kind)
    return ColumnError(
        f"Column {names[0]!r} of the left table holds {holds[0]}, and {names[1]!r} of "
        f"the right one {holds[1]}; both must hold lists, or both numbers.{advice}"
    )


def resolve_two(
    request: OfTwoTables, left: Frame, right: Frame, eps: object
) -> JoinSpec:
    """Check all options of a request except `keep` against two frames. `left`, `right`:
    empty frames like them.
    """
    ids = [
        request.id if own is None else own
        for own in (request.left_id, request.right_id)
    ]
    radius = own_radius(left, eps) if request.radii else None
    groups = getattr(request, "by", None)
    by, added = groups_of(groups)
    gates: Gates = getattr(request, "within", None) or NO_GATES
    besides = (
        *by,
        *(groups.others if groups else ()),
        *added,
        *gates.conditions,
        *gates.others,
        *gates.columns,
    )
    columns = _coordinates(request, left, right, [*ids, radius], besides)
    requests = request, replace(request, **swapped_conditions(request))
    distances = eps, eps if radius is None else 0.0
    sides = zip(requests, (left, right), columns, ids, distances, strict=True)
    specs = []
    for which, (own, table, on, id, far) in zip(TABLES, sides, strict=True):
        with in_table(which):
            specs.append(resolve(replace(own, on=on, id=id), table, far))
    first, second = specs
    if len(first.on) != len(second.on):
        raise ColumnError(
            f"The left table is joined on {len(first.on)} columns, {list(first.on)!r}, "
            "and the right "
            f"one on {len(second.on)}, {list(second.on)!r}. Name equally many columns "
            "of both "
            "tables, in the same order."
        )
    if first.coordinates.lists != second.coordinates.lists:
        raise _unlike(specs, [left, right])
    if request.on is None and request.left_on is None:
        integers = integers_among(_kinds(left, right, first.on))
        other = [name for name, _ in left_out(right, _used(second))]
        shared = left_out(left, _used(first))
        both = tuple(one for one in shared if one[0] in other)
        defaults = DefaultColumns(integers, both)
        first, second = (replace(own, defaults=defaults) for own in specs)
    return replace(first, other=second)


def check_one_table(request: Any) -> None:
    """Raise an error for options that need two tables, if there is only one."""
    sides = request.left_on, request.right_on, request.left_id, request.right_id
    if any(side is not None for side in sides):
        raise OptionError(
            "left_on=, right_on=, left_id= and right_id= are for joins of two tables; "
            "use on= and id=."
        )


def _kinds(
    left: Frame, right: Frame, shared: Iterable[Hashable]
) -> dict[Hashable, str]:
    """Return the kind of number of each shared column.

    It is float if the column has floats in one of the tables.
    """
    kinds = zip(
        kinds_of(left, shared).items(), kinds_of(right, shared).values(), strict=True
    )
    return {name: "f" if "f" in (own, other) else own for (name, own), other in kinds}


def _coordinates(
    request: OfTwoTables,
    left: Frame,
    right: Frame,
    besides: list[Hashable | None],
    groups: tuple[Hashable, ...],
) -> list[Columns]:
    """Return the coordinates of both tables: the named columns, or else numeric columns
    of both tables.

    `besides`: numeric columns that are not coordinates by default. `groups`: columns of
    `by` and the group numbers.
    """
    if request.left_on is None and request.right_on is None:
        if request.on is not None:
            return [request.on, request.on]
        booleans = request.metric == Hamming.name
        left_out = (besides[0], besides[2], ROW_ID, *groups)
        of_right = {*numeric_columns(right, (besides[1], ROW_ID, *groups), booleans)}
        shared: list[Hashable] = [
            name
            for name in numeric_columns(left, left_out, booleans)
            if name in of_right
        ]
        if not shared:
            raise ColumnError(
                "The tables have no numeric column of the same name to join on besides "
                "ids and booleans. "
                "Name the coordinates with on=[...], or with left_on=[...] and "
                "right_on=[...]. The columns "
                f"are {listed(left.columns)} of the left table, and "
                f"{listed(right.columns)} of the right one."
            )
        check_chosen(_kinds(left, right, shared))
        return [shared, shared]
    if request.on is not None:
        raise OptionError(
            "on= names the columns of both tables; use either on=, or left_on= and "
            "right_on=."
        )
    if request.left_on is None or request.right_on is None:
        missing = "left_on" if request.left_on is None else "right_on"
        raise OptionError(
            f"{missing}= is missing; name the columns of both tables, or use on= for "
            "both."
        )
    return [request.left_on, request.right_on]
