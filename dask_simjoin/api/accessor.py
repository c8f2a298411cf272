"""Register the verbs as methods of `.simjoin` on Dask, pandas and cuDF DataFrames."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

import dask.dataframe as dd
import pandas as pd
from dask.dataframe.extensions import register_dataframe_accessor

from dask_simjoin.api import counts, knn, near_duplicates
from dask_simjoin.api import counts as graphs
from dask_simjoin.api import introspect as plans
from dask_simjoin.api import introspect as profiles
from dask_simjoin.api import joins as one_table
from dask_simjoin.api import joins as two_tables
from dask_simjoin.api import near_duplicates as row_id
from dask_simjoin.api.introspect import report
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.cluster import hierarchy as hierarchies
from dask_simjoin.cluster import verbs as clusters
from dask_simjoin.disk_index import making
from dask_simjoin.graph import lazy_join
from dask_simjoin.reports.run import RunReport
from dask_simjoin.request.messages import VERBS as SYNONYMS
from dask_simjoin.request.messages import elsewhere
from dask_simjoin.request.verb import FrameVerb, SeriesVerb, as_method
from dask_simjoin.sets import introspect as set_reports
from dask_simjoin.sets import verbs
from dask_simjoin.sets import verbs as sets


class _ThenCall(Loader):
    """A module's own loader, and a call after it."""

    def __init__(self, loader: Loader, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._finder.done()


class _Finder(MetaPathFinder):
    """Finds one module as the other finders do, until it has been imported."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action, self._asking = name, action, False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenCall(spec.loader, self)
        return spec

    def done(self) -> None:
        """The module is there."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._action()


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call `action` after the first import of a module, or now if it is there already.

    Examples
    --------
    >>> when_imported("sys", lambda: print("it is there"))
    it is there
    """
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Finder(name, action))


P = ParamSpec("P")
Result = TypeVar("Result")
Given = TypeVar("Given", covariant=True)
F = TypeVar("F")


class FrameMethod(Protocol[P]):
    """A method that gives a frame, of the library that the accessor's is of."""

    @overload
    def __get__(self, has: VerbMethods[pd.DataFrame], owner: Any, /) -> Callable[P, pd.DataFrame]: ...
    @overload
    def __get__(self, has: VerbMethods[dd.DataFrame], owner: Any, /) -> Callable[P, dd.DataFrame]: ...  # type: ignore[overload-cannot-match]
    @overload
    def __get__(self, has: object, owner: Any, /) -> Callable[P, Any]: ...


class SeriesMethod(Protocol[P]):
    """A method that gives a value for each row."""

    @overload
    def __get__(self, has: VerbMethods[pd.DataFrame], owner: Any, /) -> Callable[P, pd.Series]: ...
    @overload
    def __get__(self, has: VerbMethods[dd.DataFrame], owner: Any, /) -> Callable[P, dd.Series]: ...  # type: ignore[overload-cannot-match]
    @overload
    def __get__(self, has: object, owner: Any, /) -> Callable[P, Any]: ...


class Method(Protocol[P, Given]):
    """A method that gives the same of all frames."""

    def __get__(self, has: object, owner: Any, /) -> Callable[P, Given]: ...


def frame_method(function: FrameVerb[P]) -> FrameMethod[P]:
    return cast(Any, as_method(function))


def series_method(function: SeriesVerb[P]) -> SeriesMethod[P]:
    return cast(Any, as_method(function))


def method(function: Callable[Concatenate[Any, P], Result]) -> Method[P, Result]:
    return cast(Any, as_method(function))


class VerbMethods(Generic[F]):
    """All verbs of the table in `verbs.py`."""

    _frame: F

    self_join = frame_method(one_table.self_join)
    join = frame_method(two_tables.join)
    knn_join = frame_method(knn.knn_join)
    neighbor_counts = method(counts.neighbor_counts)
    count_pairs = method(counts.count_pairs)
    near_duplicated = series_method(near_duplicates.near_duplicated)
    drop_near_duplicates = frame_method(near_duplicates.drop_near_duplicates)
    dbscan = series_method(clusters.dbscan)
    optics = frame_method(clusters.optics)
    hdbscan = frame_method(hierarchies.hdbscan)
    spanning_tree = frame_method(hierarchies.spanning_tree)
    k_distances = series_method(knn.k_distances)
    neighbor_graph = method(graphs.neighbor_graph)
    set_self_join = frame_method(sets.set_self_join)
    set_join = frame_method(sets.set_join)
    set_neighbor_counts = series_method(sets.set_neighbor_counts)
    count_set_pairs = method(sets.count_set_pairs)
    set_near_duplicated = series_method(verbs.set_near_duplicated)
    drop_set_near_duplicates = frame_method(verbs.drop_set_near_duplicates)
    set_plan = method(set_reports.set_plan)
    set_profile = method(set_reports.set_profile)
    index = method(making.index)
    plan = method(plans.plan)
    profile = method(profiles.profile)
    with_row_id = frame_method(row_id.with_row_id)


class SimJoinAccessor(VerbMethods[F]):
    """Similarity joins of a DataFrame: ``frame.simjoin``.

    On a Dask DataFrame every verb is lazy: calling it computes nothing.  Planning, one pass over
    the columns it needs, runs when Dask first asks for the result's partitions (``compute``,
    ``npartitions``, ``repr``).  On a pandas DataFrame the same verbs compute at once, on one core.
    On cuDF-backed frames, Dask's or plain ones, everything runs on GPUs, and results stay there.

    Which rows are pairs does not depend on any of that, nor on partitions or method: see
    `dask_simjoin.metrics`.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 3.0, 3.0, 9.0], "y": [0.0, 4.0, 4.0, 9.0]}, index=list("abcd"))
    >>> ddf = dd.from_pandas(df, npartitions=2)
    >>> ddf.simjoin.self_join(5.0).compute().sort_values(["left", "right"], ignore_index=True)
      left right
    0    a     b
    1    a     c
    2    b     c
    """

    def __init__(self, frame: F) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        own = type(self._frame)
        return (
            f"<.simjoin of a {own.__module__.partition('.')[0]} {own.__name__}: {', '.join(sorted(VERBS))}; "
            "help(frame.simjoin.self_join) explains options>"
        )

    def report(self) -> RunReport:
        """What the join behind this frame, a lazy result, did: see `dask_simjoin.report`."""
        return report(self._frame)

    if not TYPE_CHECKING:  # whatever they may find there is no verb

        def __getattr__(self, name: str) -> NoReturn:
            verbs = sorted(VERBS)
            raise AttributeError(
                f".simjoin has no verb {name!r}{elsewhere(name, SYNONYMS, verbs)}; "
                f"its verbs are {', '.join(verbs)}."
            )


def register() -> None:
    """Make ``.simjoin`` an attribute of Dask, pandas and cuDF DataFrames; Dask then shows joins unplanned."""
    lazy_join.guard()
    register_dataframe_accessor("simjoin")(SimJoinAccessor)
    pd.api.extensions.register_dataframe_accessor("simjoin")(SimJoinAccessor)
    when_imported("cudf", _register_with_cudf)


def _register_with_cudf() -> None:
    sys.modules["cudf"].api.extensions.register_dataframe_accessor("simjoin")(SimJoinAccessor)
