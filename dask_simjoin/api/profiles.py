"""Measure a join (`profile`)."""

from __future__ import annotations

import numbers
from collections.abc import Hashable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, get_args

from dask_simjoin.calls.decorators import verb
from dask_simjoin.calls.groups import OBJECTS, TEXTS, kind_of
from dask_simjoin.calls.tables import table_of
from dask_simjoin.engine.base import (
    Counters,
    joiner_of_library,
    profiler_of_library,
    recall_module,
)
from dask_simjoin.errors import OptionTypeError
from dask_simjoin.metrics.norms import Columns, Frame
from dask_simjoin.planning.estimate import ALL
from dask_simjoin.planning.outputs import COUNTS, nearest_output
from dask_simjoin.reports.plan import PlanReport
from dask_simjoin.reports.run import ProfileReport
from dask_simjoin.request.columns import as_names, example_of, has_column
from dask_simjoin.request.messages import shown
from dask_simjoin.request.options import about
from dask_simjoin.request.requests import DistanceProfileRequest
from dask_simjoin.request.spec import SearchOptions
from dask_simjoin.sets.requests import (
    AnyTokenizer,
    Comparison,
    SetProfileRequest,
    Similarity,
    Threshold,
)
from dask_simjoin.sets.verbs import profile_of_sets
from dask_simjoin.strings.requests import EditProfileRequest
from dask_simjoin.strings.verbs import profile_of_texts
from dask_simjoin.tasks.chunks import layout_seconds, plan_whole, read_points
from dask_simjoin.tasks.nearest import profile_search


@dataclass(frozen=True, kw_only=True)
class ProfileRequest(DistanceProfileRequest):
    """Request for the profile of a join of distances, sets or texts."""

    groups_need_bound: ClassVar[bool] = False  # `by` is for texts only

    k: int | None = field(
        default=None, metadata=about("number of neighbors per row, or largest of edits")
    )
    threshold: Threshold | None = field(
        default=None, metadata=about("smallest similarity of two sets")
    )
    similarity: Similarity | Threshold | None = field(
        default=None,
        metadata=about("similarity of two sets, or the smallest one of two texts"),
    )
    tokenizer: AnyTokenizer = field(
        default=None, metadata=about("how texts become sets of tokens")
    )
    comparison: Comparison = field(
        default=">=",
        metadata=about(
            "comparison of the similarity with the threshold",
            choices=get_args(Comparison),
        ),
    )
    allow_empty: bool = field(
        default=False, metadata=about("let empty sets match each other")
    )
    allow_missing: bool = field(
        default=False, metadata=about("let rows without a set match each other")
    )
    transpositions: bool = field(
        default=False, metadata=about("count a swap of adjacent characters as one edit")
    )
    by: Columns = field(
        default=None, metadata=about("columns of equal values for texts")
    )


@verb(ProfileRequest)
def profile(frame: Frame, request: ProfileRequest) -> ProfileReport:
    """Run a join, discard its result, and return counters of its work and the seconds
    of each step.

    With `threshold` it profiles `set_self_join`. With `k` or a number as `similarity`,
    and a column of texts, it profiles `edit_self_join`. With `k` and coordinates it
    profiles `knn_join` of the frame with itself, and with `eps` alone `self_join`. It
    runs at the call, on one core or one GPU, with all rows in one chunk.

    Parameters
    ----------
    eps : float or str
        Largest distance, as in `self_join`; with `k` it is the `max_distance` of
        `knn_join`.
    k : int, optional
        Number of neighbors, as in `knn_join`; for texts, the largest number of edits.
    threshold : number, optional
        Smallest similarity of two sets, as in `set_self_join`.
    on, metric, id, dropna, p, method, approximate
        As in `self_join`, or with `k` as in `knn_join`. For sets and texts, `on` is
        their column, and `method` is an algorithm for sets.
    similarity, tokenizer, comparison, allow_empty, allow_missing
        As in `set_self_join`.
    similarity, transpositions, by
        As in `edit_self_join`.

    Returns
    -------
    ProfileReport
        It prints as text, and shows a table and a picture in notebooks. For programs it
        has the attributes ``numbers``, ``seconds``, ``rows``, ``method`` and
        ``engine``, and the methods ``to_dict()``, ``to_frame()``, ``svg()`` and
        ``plot()``. Names have the same meaning for all joins: ``candidates`` and
        ``comparisons`` count the work, and ``pairs`` the pairs of rows.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, CoordinateError, TokenError, TextError
        As in the profiled verb.

    Notes
    -----
    The needed columns of a Dask DataFrame are computed first, and must fit in memory.
    If they do not fit, pass a sample of the frame. ``seconds`` excludes reading the
    frame and estimating the result. For distances, its first step is "layout": the
    method chooses its clusters, lists or indexed columns from a sample of the rows. For
    sets and texts it is "read", which splits them into tokens or characters. Counters
    are from a second run, so counting does not affect the seconds. Compilation is not
    included, either.

    With `approximate`, up to 10,000 random rows are also joined exactly. Then
    ``numbers`` has the measured ``recall``, the share of true pairs that were found.
    Its 95 % interval is ``recall_low`` to ``recall_high``. Below 1,000 true pairs there
    is no interval.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dask_simjoin import methods
    >>> df = pd.DataFrame({"x": np.arange(1000.0) % 40, "y": np.arange(1000.0) // 40})
    >>> profile = df.simjoin.profile(1.0, method=methods.Grid(pattern="full", order="given"))
    >>> int(profile.numbers["pairs"]), int(profile.numbers["comparisons"])
    (1935, 9000)

    The steps of a search for nearest rows, and of a join of texts:

    >>> sorted(df.simjoin.profile(k=3).seconds)
    ['index', 'layout', 'search']
    >>> names = pd.DataFrame({"name": ["Meyer", "Meier", "Maier", "Meyer"]})
    >>> found = names.simjoin.profile(on="name", k=1)
    >>> list(found.seconds), int(found.numbers["pairs"])
    (['read', 'index', 'join'], 4)
    """
    if request.threshold is not None:
        return profile_of_sets(frame, _as(SetProfileRequest, request, "sets"))
    if _is_of_texts(frame, request):
        return profile_of_texts(frame, _as(EditProfileRequest, request, "texts"))
    of_distances = _as(DistanceProfileRequest, request, "distances")
    return _profile_of_distances(frame, of_distances)


def _is_of_texts(frame: Frame, request: ProfileRequest) -> bool:
    """Return whether a request is for texts: it has a number of edits or a similarity,
    and one column, which holds texts.
    """
    if isinstance(request.similarity, numbers.Number):
        return True
    if request.k is None or request.on is None:
        return False
    name, *others = as_names(request.on)
    if others or not has_column(example_of(frame).columns, name):
        return False
    return _holds_texts(frame, name)


def _holds_texts(frame: Frame, name: Hashable) -> bool:
    kind = kind_of(example_of(frame)[name])
    if kind != OBJECTS:
        return kind == TEXTS
    values = table_of(frame[[name]]).computed()[name].dropna()
    return len(values) > 0 and isinstance(values.iloc[0], str)


def _as(kind: type[Any], request: ProfileRequest, what: str) -> Any:
    """Return a request of another class with the same options; raise an error for
    options that it does not have.
    """
    given = {
        one.name: getattr(request, one.name)
        for one in fields(request)
        if getattr(request, one.name) is not one.default
    }
    known = [one.name for one in fields(kind)]
    for name, value in given.items():
        if name not in known:
            raise OptionTypeError(
                f"{name}={shown(value)} is not for profiles of {what}. Leave it out, or "
                "use threshold= for sets, and k= with a column of texts."
            )
    if "on" not in given and kind is not DistanceProfileRequest:
        raise OptionTypeError(f"on= is missing: name the column of {what}.")
    return kind(**given)


def _profile_of_distances(
    frame: Frame, request: DistanceProfileRequest
) -> ProfileReport:
    search, meta = request.nearest(), example_of(frame)
    if search is None:
        spec, output = request.spec(meta), COUNTS
    else:
        number = search.number()
        spec = search.spec(meta)
        output = nearest_output(number, max_total=search.max_total(spec))
    frame = table_of(frame[spec.columns]).computed()
    plan = plan_whole([frame], spec, output)
    layout, x = (
        plan.layout,
        read_points(
            frame, (0, plan.tables.sources[0][0]), spec.with_dims(plan.tables.dims)
        )["x"],
    )
    seconds, recall = {"layout": layout_seconds(frame, spec, output)}, ALL
    lossy = recall_module(spec.search.method) if spec.search.approximate else None
    if search is None:
        counters = profiler_of_library(spec.library).profile(x, layout)
        if lossy is not None:
            exact = plan_whole([frame], replace(spec, search=SearchOptions()), COUNTS)
            recall = lossy.measured_recall(
                x, layout, exact.layout, joiner_of_library(spec.library)
            )
    else:
        max_total = search.max_total(spec)
        counters = profile_search(x, layout, number, max_total, spec.library)
        if lossy is not None:
            recall = lossy.measured_neighbors(
                x, x, layout, number, spec.library, max_total
            )
    counters = Counters(counters.numbers | recall.numbers(), seconds | counters.seconds)
    join = "self-join" if search is None else "nearest-neighbor join"
    engine = PlanReport(plan, spec).engine
    return ProfileReport(layout.method, engine, plan.rows, counters, join)
