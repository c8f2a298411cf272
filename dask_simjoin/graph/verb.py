"""Decorators of verbs: a verb takes options instead of a request, and returns results
in the caller's library.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from inspect import Parameter
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    get_type_hints,
    overload,
)

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import TABLES, ColumnError, OptionTypeError
from dask_simjoin.graph.groups import with_groups
from dask_simjoin.graph.inputs import (
    as_frame,
    example_ids,
    has_stream,
    is_geo,
    is_geo_type,
    with_points,
    without_points,
)
from dask_simjoin.metrics.norms import DType, Frame, Series
from dask_simjoin.request.messages import not_an_option, shown
from dask_simjoin.request.options import ORDER
from dask_simjoin.request.requests import LEFT
from dask_simjoin.request.spec import JoinSpec, RowSpec

if TYPE_CHECKING:
    import dask.dataframe as dd


LOG = logging.getLogger("dask_simjoin")

Result = TypeVar("Result")


def verb(
    request: Callable[P, Request],
) -> Callable[
    [Callable[[Frame, Request], Result]], Callable[Concatenate[Frame, P], Result]
]:
    """Convert a function of a frame and a request to a verb: a function of a frame and
    options.

    The options are the fields of the request class. The verb's `__signature__` lists
    them, and its attribute `request` is the class.
    """

    def decorate(
        function: Callable[[Frame, Request], Result],
    ) -> Callable[Concatenate[Frame, P], Result]:
        name, own = function.__name__, inspect.signature(function)
        frame = next(iter(own.parameters.values()))
        signature = own.replace(parameters=[frame, *options_of(request)])
        parameters = list(signature.parameters.values())
        known = list(signature.parameters)

        @functools.wraps(function)
        def called(*args: Any, **options: Any) -> Result:
            check_call(name, parameters, args, options)
            try:
                given = signature.bind(*args, **options).arguments
            except TypeError as error:
                raise OptionTypeError(f"{name}() got {error}.") from None
            table = given.pop(frame.name)
            rows = as_frame(table)
            other = given.get("other")
            if other is not None:
                given["other"] = as_frame(other, "other")
            added: list[str] = []
            if "metric" in known:
                rows, given, added = with_points(rows, given, "distance_unit" in known)
            if "by" in known:
                rows, given, codes = with_groups(
                    rows, given, getattr(request, "groups_need_bound", True)
                )
                added = added + codes
            begin = time.perf_counter()
            found = without_points(function(rows, request(**given)), added)  # type: ignore[call-arg]
            # a lazy join has not run yet, so there is nothing to log
            if not is_dask_collection(rows):
                _log(name, found, time.perf_counter() - begin)
            missing = given.get("how") == LEFT
            made = in_library_of(table, found, missing)
            return cast(Result, with_categories(made, [table, other], given))

        try:
            hints = get_type_hints(function)
        except NameError as error:  # an annotation names a class that is imported for type checkers only
            hints = get_type_hints(function, localns={str(error.name): Any})
        called.__annotations__ = {
            **{
                name: kind
                for name, kind in get_type_hints(request).items()
                if name in signature.parameters
            },
            **{name: hints[name] for name in (frame.name, "return")},
        }
        vars(called).update(__signature__=signature, request=request)
        return called

    return decorate


def _log(name: str, found: object, seconds: float) -> None:
    """Log that a verb has finished."""
    if LOG.isEnabledFor(logging.INFO):
        rows = f"{len(found):,} rows, " if hasattr(found, "iloc") else ""  # type: ignore[arg-type]
        LOG.info("done %s of a plain frame: %sin %.2f s", name, rows, seconds)


def as_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Convert a verb to a method of an accessor, which has its frame in the attribute
    `_frame`.
    """
    name, signature = function.__name__, inspect.signature(function)
    options = list(signature.parameters.values())[1:]

    @functools.wraps(function)
    def method(self: Any, *args: Any, **given: Any) -> Any:
        check_call(name, options, args, given)
        return function(self._frame, *args, **given)

    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    vars(method).update(__signature__=signature.replace(parameters=[own, *options]))
    return method


def options_of(request: Callable[..., object]) -> list[Parameter]:
    """Return the options of a request as parameters: first options that may be
    positional, then the others in the order of `ORDER`.
    """
    options = list(inspect.signature(request).parameters.values())
    places = [option for option in options if option.kind is not option.KEYWORD_ONLY]
    named = [option for option in options if option.kind is option.KEYWORD_ONLY]
    return places + sorted(named, key=lambda option: ORDER.index(option.name))


def check_call(
    called: str,
    parameters: Sequence[Parameter],
    args: Sequence[object],
    options: Mapping[str, object],
) -> None:
    """Raise an error for unknown keywords, too many positional arguments, or missing
    arguments.
    """
    known = [one.name for one in parameters if one.name != "frame"]
    places = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]
    needed = [
        one.name
        for one in parameters
        if one.name in places and one.default is one.empty
    ]
    for name in options:
        if name not in known and name not in places:
            rest = not_an_option(name, known, {*places[: len(args)], *options})
            raise OptionTypeError(f"{called}() has no option {name!r}{rest}")
    if len(args) > len(places):
        raise OptionTypeError(
            f"{called}({', '.join(places)}) got another positional argument, "
            f"{shown(args[len(places)])}; "
            "pass it by name, as one of "
            f"{', '.join(f'{name}=' for name in known if name not in places)}."
        )
    missing = [name for name in needed[len(args) :] if name not in options]
    if missing:
        raise OptionTypeError(
            f"{' and '.join(f'{name}=' for name in missing)} "
            f"{'is' if len(missing) == 1 else 'are'} "
            f"missing: use {called}({', '.join(needed)}, ...)."
        )


P = ParamSpec("P")
Request = TypeVar("Request")


class FrameVerb(Protocol[P]):
    """A verb that returns a frame, which belongs to the same library as the given
    frame.
    """

    @overload
    def __call__(
        self, frame: pd.DataFrame, /, *args: P.args, **options: P.kwargs
    ) -> pd.DataFrame: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self, frame: dd.DataFrame, /, *args: P.args, **options: P.kwargs
    ) -> dd.DataFrame: ...
    @overload
    def __call__(self, frame: Any, /, *args: P.args, **options: P.kwargs) -> Any: ...  # type: ignore[overload-cannot-match]


class SeriesVerb(Protocol[P]):
    """A verb that returns a Series with one value per row."""

    @overload
    def __call__(
        self, frame: pd.DataFrame, /, *args: P.args, **options: P.kwargs
    ) -> pd.Series: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self, frame: dd.DataFrame, /, *args: P.args, **options: P.kwargs
    ) -> dd.Series: ...
    @overload
    def __call__(self, frame: Any, /, *args: P.args, **options: P.kwargs) -> Any: ...  # type: ignore[overload-cannot-match]


def frame_verb(
    request: Callable[P, Request],
) -> Callable[[Callable[[Frame, Request], Frame]], FrameVerb[P]]:
    """Make a verb that returns a frame: see `verb`."""
    return cast(Any, verb(request))


def series_verb(
    request: Callable[P, Request],
) -> Callable[[Callable[[Frame, Request], Series]], SeriesVerb[P]]:
    """Make a verb that returns a Series: see `verb`."""
    return cast(Any, verb(request))


def in_library_of(given: object, found: Any, missing: bool = False) -> Any:
    """Convert a verb's result to the library of the table that the caller passed:

    - a polars DataFrame or Series for a polars DataFrame;
    - an Arrow table or array for other tables with an Arrow stream;
    - a GeoDataFrame for a GeoDataFrame, if the result has points;
    - `found` unchanged for all other frames.

    `missing`: whether a NaN in the result is a missing value, as in a left join.
    """
    if not isinstance(found, pd.DataFrame | pd.Series):
        return found
    if not has_stream(given):
        return _with_geometry(given, found)
    made = (
        arrow_of_frame(found, missing)
        if isinstance(found, pd.DataFrame)
        else _column(found, missing)
    )
    if not _is_polars(given):
        return made
    polars: Any = sys.modules["polars"]
    converted = polars.from_arrow(made)
    return (
        converted
        if isinstance(found, pd.DataFrame)
        else converted.alias(str(found.name or ""))
    )


CATEGORIES = ("Categorical", "Enum")
"""Names of polars dtypes that Arrow returns as one."""


def with_categories(
    found: Any, tables: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Convert categories in a polars frame to the dtypes that they have in the tables:
    Arrow gives `Enum` and `Categorical` the same type. Return other results unchanged.
    """
    if not _is_polars(found) or not hasattr(found, "schema"):
        return found
    schemas = [table.schema for table in tables if _is_polars(table)]
    kinds = {}
    for name, kind in found.schema.items():
        if type(kind).__name__ not in CATEGORIES:
            continue
        id = options.get(f"{name}_id") or options.get("id")
        named = {
            column: own
            for schema in schemas
            for column, own in schema.items()
            if type(own).__name__ in CATEGORIES
            and (column == id if name in TABLES else name.startswith(column))
        }
        if named:
            kinds[name] = named[max(named, key=len)]
    return found.cast(kinds) if kinds else found


def _is_polars(table: object) -> bool:
    return type(table).__module__.partition(".")[0] == "polars"


def arrow_of_frame(frame: pd.DataFrame, missing: bool = False) -> pa.Table:
    """Convert a frame to an Arrow table, without its index. Points become GeoArrow
    points.
    """
    names = [str(name) for name in frame.columns]
    points = {name for name in frame.columns if _is_geometry(frame[name])}
    columns, fields = [], []
    for name, called in zip(frame.columns, names, strict=True):
        if name in points:
            geopandas: Any = sys.modules["geopandas"]
            alone = geopandas.GeoDataFrame({called: frame[name]}, geometry=called)
            one = pa.table(alone.to_arrow(index=False, geometry_encoding="geoarrow"))
            fields.append(one.schema.field(0))
            columns.append(one.column(0))
        else:
            columns.append(_column(frame[name], missing))
            fields.append(pa.field(called, columns[-1].type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _column(column: pd.Series, missing: bool) -> Any:
    """Convert a column to Arrow. `missing`: whether NaN becomes a missing value;
    otherwise it stays NaN.
    """
    if isinstance(column.dtype, pd.ArrowDtype):
        chunks = column.array.__arrow_array__()
        # Arrow cannot combine lists whose dictionaries differ
        return chunks if chunks.num_chunks > 1 else chunks.combine_chunks()
    numbers = isinstance(column.dtype, np.dtype) and column.dtype.kind == "f"
    return pa.chunked_array(
        [pa.array(column, from_pandas=missing or not numbers)]
    ).combine_chunks()


def _is_geometry(column: pd.Series) -> bool:
    return is_geo_type(type(column.dtype))


def _with_geometry(given: object, found: Any) -> Any:
    """If a result has columns of points, convert it to a GeoDataFrame. The first such
    column is the active geometry.
    """
    if not (
        isinstance(given, pd.DataFrame)
        and is_geo(given)
        and isinstance(found, pd.DataFrame)
    ):
        return found
    names = [name for name in found.columns if _is_geometry(found[name])]
    own: Any = type(given)
    if isinstance(found, own) or not names:
        return found
    return own(found, geometry=names[0])


NEIGHBORS = "neighbors"
"""Name of a Series of neighbor counts, or of counts of matches."""


def series_example(meta: Frame, name: str | None, dtype: DType = np.int64) -> Series:
    """Return an empty example of a Series with one value per row, which has the index
    of the frame.
    """
    return frames_for(meta).series(np.zeros(0, dtype), meta.index[:0], name)


def counts_example(meta: Frame, spec: JoinSpec) -> Series | Frame:
    """Return an empty example of neighbor counts: a Series, or for several distances a
    frame with a column for each.
    """
    example = series_example(meta, NEIGHBORS)
    if not spec.several:
        return example
    values = frames_for(meta).xp.zeros((0, len(spec.several)), np.int64)
    shape = pd.DataFrame(
        columns=pd.Index(spec.several, dtype=np.float64), dtype=np.int64
    )
    return frames_for(meta).rows(values, meta.index[:0], shape)


def pairs_example(
    left: Frame, right: Frame, spec: RowSpec, some_missing: bool = False
) -> Frame:
    """Return an empty example of pairs. `some_missing`: whether the right row of a pair
    may be missing.
    """
    frames = frames_for(left)
    none = np.zeros(0, np.int64)
    ids = example_ids(left, spec)
    same = right is left and spec.other is None
    columns = {
        "left": ids,
        "right": ids if same else example_ids(right, spec.other or spec),
    }
    if spec.score is not None:
        columns[spec.score] = np.empty(0)
    columns |= {
        called: frames.values(left, name, none)
        for called, name in spec.kept_left.items()
    }
    columns |= {
        called: frames.values(right, name, none)
        for called, name in spec.kept_right.items()
    }
    example = frames.result(columns, 0)
    if not some_missing:
        return example
    of_right = ["right", *spec.kept_right]
    for name in of_right:
        if _are_unknown(getattr(example[name].dtype, "categories", ())):
            column = spec.kept_right.get(name, spec.other and spec.other.id)
            named = "the index" if column is None else repr(column)
            raise ColumnError(
                f"how='left' adds missing values to {named} of the right table, whose "
                "categories Dask does "
                "not know. Use other.categorize() first, which reads the categories, "
                "or convert the column, "
                "for example with .astype('object')."
            )
    return example.astype(
        {name: frames.optional(example[name].dtype) for name in of_right}
    )


def nearest_example(
    left: Frame, right: Frame, spec: JoinSpec, some_missing: bool = False
) -> Frame:
    """Return an empty example of a nearest-neighbor join; `some_missing`: see
    `pairs_example`.
    """
    pairs = pairs_example(left, right, spec, some_missing)
    columns = {name: pairs[name] for name in pairs.columns}
    kept = {
        name: columns.pop(name)
        for name in list(columns)
        if name in spec.kept_left or name in spec.kept_right
    }
    own = {
        "left": columns["left"],
        "right": columns["right"],
        "rank": np.zeros(0, np.int64),
    }
    frames = frames_for(left)
    example = frames.result(own | {"distance": columns["distance"]} | kept, 0)
    return (
        example.astype({"rank": frames.optional(example["rank"].dtype)})
        if some_missing
        else example
    )


def _are_unknown(categories: Iterable[Hashable]) -> bool:
    """Return whether categories are Dask's placeholder for categories that it does not
    know.
    """
    # Dask's data frames are not imported, so no frame is one of them
    if "dask.dataframe" not in sys.modules:
        return False
    from dask_simjoin.graph.dask_private import UNKNOWN_CATEGORIES

    return UNKNOWN_CATEGORIES in categories
