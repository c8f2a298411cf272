"""Plans and profiles of joins of sets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from dask.base import is_dask_collection

from dask_simjoin.engine.base import Counters, frames_of_library
from dask_simjoin.errors import TABLES, in_table
from dask_simjoin.graph.inputs import check_other, one_or_two
from dask_simjoin.graph.outputs import pairs_example
from dask_simjoin.graph.verb import verb
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.budget import plain_budget
from dask_simjoin.planning.outputs import PAIRS
from dask_simjoin.planning.resources import resources_for
from dask_simjoin.planning.statistics.partition import RIGHT
from dask_simjoin.planning.statistics.unique_ids import check_summaries
from dask_simjoin.reports.run import ProfileReport
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.options import MAX_BYTES
from dask_simjoin.sets.chunks import chunks_of, read_whole, whole_block_pair
from dask_simjoin.sets.pairs import count_block_pairs
from dask_simjoin.sets.plan import SetPlan, SetSummary, make_set_plan, summarise_sets
from dask_simjoin.sets.plan_report import SetPlanReport
from dask_simjoin.sets.requests import SetPlanRequest, SetProfileRequest, SetSelfJoinRequest, SetSpec

ABOUT = {
    "tokens": "tokens of all rows, each counted once per row",
    "universe": "distinct tokens",
    "sets": "distinct sets, without empty ones",
    "listed": "entries of the index, or pairs of sets of admissible sizes, that were scanned",
    "candidates": "pairs of sets that passed the filters of prefixes, sizes and positions",
    "verified": "candidates whose tokens were compared",
    "pairs": "pairs of sets that match",
    "row_pairs": "pairs of rows, including pairs of equal sets",
}
"""The meaning of each counter, in the order of reports."""


class SetProfileReport(ProfileReport):
    """The work of one self-join of sets; see `ProfileReport`."""

    about: ClassVar[Mapping[str, str]] = ABOUT
    counted: ClassVar[tuple[str, ...]] = ("listed", "candidates", "verified", "pairs", "row_pairs")
    title: ClassVar[str] = "Profile of a self-join of sets"


@verb(SetPlanRequest)
def set_plan(frame: Frame, request: SetPlanRequest) -> SetPlanReport:
    """Show the tasks of `set_self_join` with the same options, and the estimated size of its result.

    With `other` it plans `set_join`.  It computes at the call: it reads the column once, and joins a sample
    for the estimate.  The plan of a plain frame has one block.

    The parameters are the same as for `set_self_join` and `set_join`.

    Returns
    -------
    SetPlanReport
        Prints as text, and shows as a table and a picture in notebooks.  It has ``rows``, ``tokens``,
        ``blocks``, ``block_pairs``, ``partitions``, ``pairs``, ``pairs_low``, ``pairs_high``,
        ``result_bytes``, ``to_frame()``, ``svg()`` and ``plot()``.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, TokenError, DuplicateIdError, BudgetError
        The same errors as for `set_self_join` and its planning.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"text": ["a b c", "b c d", "c d e", "x y"]})
    >>> plan = df.simjoin.set_plan("text", 0.5, tokenizer="words")
    >>> plan.rows, plan.tokens, plan.pairs
    (4, 11.0, 2.0)
    """
    wanted = request.planned()
    if request.other is not None:
        check_other("other=frame", request.other)
    frame, other, left, right = one_or_two(frame, request.other)
    if isinstance(wanted, SetSelfJoinRequest):
        spec = wanted.spec(left)
    else:
        assert right is not None
        spec = wanted.spec(left, right)
    pairs_example(left, left if right is None else right, spec)
    if is_dask_collection(frame):
        from dask_simjoin.graph.planner import plan_for
        from dask_simjoin.graph.source import freeze
        from dask_simjoin.sets.graph import SET_STEPS

        data = None if other is None else freeze(other, spec.right.columns)
        return SetPlanReport(plan_for(freeze(frame, spec.columns), spec, PAIRS, data, steps=SET_STEPS), spec)
    return SetPlanReport(_plan_whole([frame] if other is None else [frame, other], spec), spec)


def _plan_whole(frames: list[Frame], spec: SetSpec) -> SetPlan:
    """Plan a join of one or two plain frames, with one block each."""
    settings = replace(spec.settings, output=None)
    tables: list[list[SetSummary]] = []
    sides = [spec, *([spec.right] if len(frames) > 1 else [])]
    for which, number, frame, own in zip(
        TABLES if len(frames) > 1 else (None,), (0, RIGHT), frames, sides, strict=False
    ):
        with in_table(which):
            summary = summarise_sets(frame, number, own, True, 1)
            if summary.ids is not None:
                check_summaries([summary.ids], own.id)
        tables.append([summary])
    whole = replace(spec, blocksize=MAX_BYTES, settings=settings)
    plan = make_set_plan(tables, whole, PAIRS, resources_for(spec.library))
    size = round(plan.block_bytes.sum())
    device = frames_of_library(spec.library).memory()
    return replace(plan, budget=plain_budget(plan.budget, size, device))


@verb(SetProfileRequest)
def set_profile(frame: Frame, request: SetProfileRequest) -> SetProfileReport:
    """Run a self-join of sets without keeping its pairs, and report its work and time.

    It runs at the call, on one core or one GPU, with all rows as one block.  The column of a Dask DataFrame
    is computed first, and must fit memory.

    The parameters are the same as for `count_set_pairs`.  The counters come from a separate run.

    Returns
    -------
    SetProfileReport
        Prints as text, and shows as a table and a picture in notebooks.  It has ``numbers``, ``seconds``,
        ``rows``, ``method``, ``to_frame()``, ``svg()`` and ``plot()``.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"tags": [["a", "b"], ["b", "a"], ["a", "b", "c"], ["d"]]})
    >>> found = df.simjoin.set_profile("tags", 0.6)
    >>> int(found.numbers["sets"]), int(found.numbers["pairs"]), int(found.numbers["row_pairs"])
    (3, 1, 3)
    """
    spec = request.spec(example_of(frame))
    if is_dask_collection(frame):
        frame = frame[spec.columns].compute()
    begin = time.perf_counter()
    read = read_whole([frame], spec, False)
    split = time.perf_counter()
    (chunk,) = chunks_of(read)
    encoded = time.perf_counter()
    joiner, rule = whole_block_pair([chunk], spec).joiner, spec.rule
    did = joiner.counters(chunk, None, rule, spec.method)
    start = time.perf_counter()
    row_pairs = count_block_pairs(whole_block_pair([chunk], spec))
    numbers = {
        "tokens": float(len(read[0]["sets"]["codes"])), "universe": float(chunk["universe"]),
        "sets": float(len(chunk["weights"])), **did._asdict(), "row_pairs": float(row_pairs),
    }  # fmt: skip
    seconds = {"tokens": split - begin, "encode": encoded - split, "join": time.perf_counter() - start}
    method = spec.method if isinstance(spec.method, str) else type(spec.method).__name__.lower()
    return SetProfileReport(method, repr(spec.method), len(frame), Counters(numbers, seconds))
