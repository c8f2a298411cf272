"""Tell what a join does: what it looks at, compares and finds."""

from __future__ import annotations

from dataclasses import replace

from dask.base import is_dask_collection

from dask_simjoin.engine.base import joiner_of_library, profiler_of_library
from dask_simjoin.engine.profile import Counters
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.calls import verb
from dask_simjoin.options.frames import example_of
from dask_simjoin.options.planned import Profile, ProfiledKnnJoin
from dask_simjoin.planning.goal import COUNTS, nearest_goal
from dask_simjoin.planning.report import PlanReport
from dask_simjoin.planning.report_profile import NearestProfile, ProfileReport
from dask_simjoin.planning.statistics.recall import ALL, measured_recall
from dask_simjoin.planning.statistics.recall_nearest import measured_neighbors
from dask_simjoin.tasks.chunks import read_points
from dask_simjoin.tasks.profile_nearest import profile_search
from dask_simjoin.tasks.whole import layout_seconds, plan_whole


@verb(Profile)
def profile(frame: Frame, asked: Profile) -> ProfileReport:
    """Run a self-join, or with `k` a search for nearest rows, keep nothing of it, and tell what it did.

    It runs at the call, on one core or one GPU, with all rows as one chunk.  Of a Dask DataFrame the
    columns that it needs are computed first, and must fit memory: take a sample of a larger one.

    ``seconds`` begin with the step "layout": the method's choice of its clusters, number of lists or indexed
    dimensions from a sample of the rows.  Reading the frame and estimating the result are not timed.

    Parameters are those of `self_join`, or with `k` those of `knn_join` without another table, whose
    `max_distance` is `eps`; counters are made by a run of their own, so that seconds are those
    of the usual kernels, which are compiled before.  With `approximate=True` up to 10,000 rows, drawn at
    random, are joined exactly with all, or their nearest rows are found: ``numbers`` then have the measured
    ``recall``, between ``recall_low`` and ``recall_high`` with a chance of 95 %, unless there are less than
    1,000 true pairs or neighbours.

    Returns
    -------
    ProfileReport
        Prints as text, shows as a table and a picture in notebooks, and has ``numbers``, ``seconds``,
        ``rows``, ``method``, ``engine``, ``to_frame()``, ``svg()`` and ``plot()``.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dask_simjoin import methods
    >>> df = pd.DataFrame({"x": np.arange(1000.0) % 40, "y": np.arange(1000.0) // 40})
    >>> found = df.simjoin.profile(1.0, method=methods.Grid(pattern="full", order="given"))
    >>> int(found.numbers["pairs"]), int(found.numbers["comparisons"])
    (1935, 9000)
    """
    search = asked.nearest()
    if search is not None:
        return _nearest(frame, search)
    spec = asked.spec(example_of(frame))
    if is_dask_collection(frame):
        frame = frame[spec.columns].compute()
    plan = plan_whole([frame], spec, COUNTS)
    read = read_points(frame, (0, plan.sources[0][0]), replace(spec, dims=plan.dims))
    chosen = {"layout": layout_seconds(frame, spec, COUNTS)}
    counters = profiler_of_library(spec.library).profile(read["x"], plan.layout)
    told = ALL
    if spec.approximate:
        exact = plan_whole([frame], replace(spec, method="auto", approximate=False), COUNTS)
        told = measured_recall(read["x"], plan.layout, exact.layout, joiner_of_library(spec.library))
    counters = Counters(counters.numbers | told.numbers(), chosen | counters.seconds)
    return ProfileReport(plan.layout.method, PlanReport(plan, spec).engine, plan.rows, counters)


def _nearest(frame: Frame, asked: ProfiledKnnJoin) -> ProfileReport:
    """Run a search for the nearest rows of each row."""
    number, spec = asked.number(), asked.spec(example_of(frame))
    most = asked.most(spec)
    if is_dask_collection(frame):
        frame = frame[spec.columns].compute()
    goal = nearest_goal(number)
    plan = plan_whole([frame], spec, goal)
    chosen = {"layout": layout_seconds(frame, spec, goal)}
    x = read_points(frame, (0, plan.sources[0][0]), replace(spec, dims=plan.dims))["x"]
    counters, told = profile_search(x, plan.layout, number, most, spec.library), ALL
    if spec.approximate:
        told = measured_neighbors(x, x, plan.layout, number, spec.library, most)
    counters = Counters(counters.numbers | told.numbers(), chosen | counters.seconds)
    return NearestProfile(plan.layout.method, PlanReport(plan, spec).engine, plan.rows, counters)
