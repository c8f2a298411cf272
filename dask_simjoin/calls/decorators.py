"""Decorators of verbs: a verb takes options instead of a request, and returns results
in the caller's library.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
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

import pandas as pd

from dask_simjoin.calls.gates import with_gates
from dask_simjoin.calls.groups import with_groups
from dask_simjoin.calls.inputs import (
    as_frame,
    check_threads,
    warn_of_itself,
    with_points,
    without_points,
)
from dask_simjoin.calls.results import in_library_of, with_categories
from dask_simjoin.calls.tables import table_of
from dask_simjoin.catalog import library
from dask_simjoin.engine.base import pooled
from dask_simjoin.errors import OptionTypeError
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.request.columns import is_frame
from dask_simjoin.request.messages import OF_TEXTS, ONE_TABLE, not_an_option, shown
from dask_simjoin.request.options import ORDER
from dask_simjoin.request.requests import KEEPS

if TYPE_CHECKING:
    import dask.dataframe as dd


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
            options = dict(given)
            if other is not None:
                given["other"] = as_frame(other, "other")
            check_threads(given.get("threads"), rows, given.get("other"))
            rows, given, added = with_added(rows, given, request, known)
            begin = time.perf_counter()
            with pooled(library(rows)):
                made_of = function(rows, request(**given))  # type: ignore[call-arg]
            if other is table:
                warn_of_itself(name, options)
            found = without_points(made_of, added)
            table_of(rows).log_done(name, found, time.perf_counter() - begin)
            missing = given.get("how") in KEEPS
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


def with_added(
    rows: Frame, given: dict[str, Any], request: Any, known: Collection[str]
) -> tuple[Frame, dict[str, Any], list[str]]:
    """Add the columns that options need: coordinates of points, numbers of groups, and
    words of gates.

    Return the frame, the adapted options, and the names of the added columns. `known`:
    the options of the request.
    """
    added: list[str] = []
    if "metric" in known:
        rows, given, added = with_points(rows, given, "distance_unit" in known)
    if "by" in known:
        needs_bound = getattr(request, "groups_need_bound", True)
        rows, given, codes = with_groups(rows, given, needs_bound)
        added = added + codes
    if "within" in known or getattr(request, "formulas", False):
        rows, given, columns = with_gates(rows, given, getattr(request, "radii", False))
        added = added + columns
    return rows, given, added


def as_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Convert a verb to a method of an accessor, which has its frame in the attribute
    `_frame`.
    """
    name, signature = function.__name__, inspect.signature(function)
    options = list(signature.parameters.values())[1:]

    @functools.wraps(function)
    def method(self: Any, *args: Any, **given: Any) -> Any:
        check_call(name, options, args, given, self._frame)
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
    table: object = None,
) -> None:
    """Raise an error for unknown keywords, too many positional arguments, or missing
    arguments.

    `table`: the table of the call, if it is not the argument `frame`.
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
            # `places` may be fewer than the arguments, which is not the error here
            all_given = {**dict(zip(places, args, strict=False)), **options}
            table = all_given.get("frame", table)
            rest = not_an_option(name, known, all_given, called, table)
            raise OptionTypeError(f"{called}() has no option {name!r}{rest}")
    _check_one_table(called, places, args, known)
    if len(args) > len(places):
        more = args[len(places)]
        names = [name for name in known if name not in places]
        columns = [more] if isinstance(more, str) else more
        if "on" in names and (
            isinstance(columns, (list, tuple))
            and columns
            and all(isinstance(one, str) for one in columns)
        ):
            use = f"For coordinates, use on={more!r}; pass all other options by name."
        else:
            use = (
                f"Pass it by name, as one of {', '.join(f'{name}=' for name in names)}."
            )
        raise OptionTypeError(
            f"{called}({', '.join(places)}) got another positional argument, "
            f"{shown(more)}. {use}"
        )
    missing = [name for name in needed[len(args) :] if name not in options]
    if missing:
        raise OptionTypeError(
            f"{' and '.join(f'{name}=' for name in missing)} "
            f"{'is' if len(missing) == 1 else 'are'} "
            f"missing: use {called}({', '.join(needed)}, ...){_meaning(missing)}."
        )


def _check_one_table(
    called: str, places: Sequence[str], args: Sequence[object], known: Sequence[str]
) -> None:
    """Raise an error for a second table in the place of the first option.

    If `other` has a place, `check_other` says how to swap the arguments.
    """
    option = next((name for name in places if name != "frame"), "")
    place = places.index(option) if option else 0
    if (
        option not in ("eps", "max_eps", "on")
        or "other" in places
        or not all(map(is_frame, args[: place + 1]))
        or len(args) <= place
    ):
        return
    remedy = OF_TEXTS if option == "on" else ONE_TABLE
    if "other" in known:
        remedy = f"Use {called}({', '.join(places)}, other=...)"
    raise OptionTypeError(f"{option}= is a data frame. {remedy}.")


MEANINGS = {
    "eps": "the largest distance of a pair, such as 0.5",
    "max_eps": "the largest distance of a pair, such as 0.5",
    "threshold": "the smallest similarity of a pair, such as 0.8",
    "on": "the column that is compared",
    "other": "the second table",
    "frame": "the table",
    "pairs": "a table with the columns 'left' and 'right'",
}
"""Option that may be missing -> what it is, in messages."""


def _meaning(missing: Sequence[str]) -> str:
    """Return what missing options mean, to end a message."""
    texts = [f"{name}= is {MEANINGS[name]}" for name in missing if name in MEANINGS]
    return f", where {' and '.join(texts)}" if texts else ""


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
