"""Tell type checkers what verbs give: of a frame of pandas one of pandas, of Dask's one of Dask's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

import dask.dataframe as dd
import pandas as pd

from dask_simjoin.metrics.types import Frame, Series
from dask_simjoin.options.calls import verb

P = ParamSpec("P")
Request = TypeVar("Request")


class FrameVerb(Protocol[P]):
    """A verb that gives a frame; of arrays and tables one of pandas, which is not told."""

    @overload
    def __call__(self, frame: pd.DataFrame, /, *args: P.args, **options: P.kwargs) -> pd.DataFrame: ...
    @overload
    def __call__(self, frame: dd.DataFrame, /, *args: P.args, **options: P.kwargs) -> dd.DataFrame: ...  # type: ignore[overload-cannot-match]
    @overload
    def __call__(self, frame: Any, /, *args: P.args, **options: P.kwargs) -> Any: ...  # type: ignore[overload-cannot-match]


class SeriesVerb(Protocol[P]):
    """A verb that gives a value for each row."""

    @overload
    def __call__(self, frame: pd.DataFrame, /, *args: P.args, **options: P.kwargs) -> pd.Series: ...
    @overload
    def __call__(self, frame: dd.DataFrame, /, *args: P.args, **options: P.kwargs) -> dd.Series: ...  # type: ignore[overload-cannot-match]
    @overload
    def __call__(self, frame: Any, /, *args: P.args, **options: P.kwargs) -> Any: ...  # type: ignore[overload-cannot-match]


def frame_verb(request: Callable[P, Request]) -> Callable[[Callable[[Frame, Request], Frame]], FrameVerb[P]]:
    """See `verb`: of one that gives a frame."""
    return cast(Any, verb(request))


def series_verb(
    request: Callable[P, Request],
) -> Callable[[Callable[[Frame, Request], Series]], SeriesVerb[P]]:
    """See `verb`: of one that gives a Series."""
    return cast(Any, verb(request))
