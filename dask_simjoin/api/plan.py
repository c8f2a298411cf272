"""The verb that tells what other verbs would run."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.api.arguments import one_or_two, pairs_example
from dask_simjoin.errors import OptionTypeError
from dask_simjoin.expressions.planner import plan_for
from dask_simjoin.expressions.source import freeze
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.options.validate import check_neighbors, known_options
from dask_simjoin.planning.doubts import raise_if_none
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.report import PlanReport
from dask_simjoin.planning.report_two import NearestReport, TwoReport
from dask_simjoin.tasks.whole import plan_whole, whole_chunks, whole_searched


@known_options
def plan(frame: Any, eps: Any = None, *, other: Any = None, k: int | None = None, on: Any = None,
         left_on: Any = None, right_on: Any = None, id: Hashable | None = None,
         left_id: Hashable | None = None, right_id: Hashable | None = None, metric: str = "euclidean",
         p: float = 2, pairs: str = "unique", include_self: bool = False, return_distance: bool = False,
         keep: Any = None, suffixes: Any = ("_left", "_right"), dropna: bool = False, method: str = "auto",
         partitioning: str = "auto", blocksize: Any = None) -> PlanReport:  # fmt: skip
    """What a join with these options would run and give; see `SimJoinAccessor.plan`."""
    options = {"keep": keep, "suffixes": suffixes, "metric": metric, "p": p, "dropna": dropna,
               "method": method, "partitioning": partitioning, "blocksize": blocksize}  # fmt: skip
    bound = math.inf
    if k is not None:
        check_neighbors(k, partitioning)  # the report says what was asked for
        bound = 0.0 if eps is None else eps
        options |= {"return_distance": True, "eps_name": "eps"}
    elif eps is None:
        raise OptionTypeError(
            "eps= is missing; use a finite number >= 0, or k= of a join with nearest neighbours."
        )
    else:
        options["return_distance"] = return_distance
    if other is None and k is None:
        options |= {"pairs": pairs, "include_self": include_self}
    frame, other, left, right, spec = one_or_two(
        frame, other, bound if k is not None else eps, on=on, left_on=left_on, right_on=right_on, id=id,
        left_id=left_id, right_id=right_id, **options,
    )  # fmt: skip
    pairs_example(left, right, spec)
    most = math.inf if k is None or eps is None else spec.threshold
    made = _planned(frame, other, spec, None if k is None else int(k), most)
    if k is not None:
        return NearestReport(made, spec, int(k), most)
    return PlanReport(made, spec) if other is None else TwoReport(made, spec)


def _planned(frame: Any, other: Any, spec: JoinSpec, k: int | None, bound: float) -> Any:
    if is_dask_collection(frame):
        data = None if other is None or spec.other is None else freeze(other, spec.other.columns)
        return plan_for(freeze(frame, spec.columns), spec, True, neighbors=k, other=data, bound=bound)
    made: Plan
    if other is not None:
        made = whole_chunks(frame, other, spec, named=True, neighbors=k, sampled=True)[1]
    elif k is not None:
        made = whole_searched(frame, spec, k, named=True)[1]
    else:
        made = plan_whole(frame, spec, named=True, sampled=True)
    raise_if_none(made.doubts, 0)
    size = round(made.rows * made.row_bytes)
    budget = replace(made.budget, chunk=size, output=size, origin="the whole frame, as it is in memory")
    return replace(made, budget=budget, slices=np.ones_like(made.slices))
