"""Plans and profiles of edit joins."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from dask.base import is_dask_collection

from dask_simjoin.engine.base import Counters, edit_joiner, frames_of_library
from dask_simjoin.errors import TABLES, in_table
from dask_simjoin.graph.inputs import check_other, one_or_two
from dask_simjoin.graph.verb import pairs_example, verb
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.budget import plain_budget
from dask_simjoin.planning.outputs import PAIRS
from dask_simjoin.planning.partition import RIGHT, check_summaries
from dask_simjoin.planning.resources import resources_for
from dask_simjoin.reports.run import ProfileReport
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.options import MAX_BYTES
from dask_simjoin.sets.chunks import read_each
from dask_simjoin.sets.pairs import count_block_pairs
from dask_simjoin.sets.plan import SetPlan, SetSummary
from dask_simjoin.strings.codes import chunks_of, read_texts, whole_block_pair
from dask_simjoin.strings.plan import make_edit_plan, summarise_texts
from dask_simjoin.strings.plan_report import EditPlanReport
from dask_simjoin.strings.requests import EditPlanRequest, EditProfileRequest, EditSelfJoinRequest, EditSpec

ABOUT = {
    "characters": "code points of all texts",
    "texts": "distinct texts",
    "listed": "entries of the index, or texts of one length, that were scanned",
    "candidates": "pairs of texts that passed the filters of segments, lengths and characters",
    "verified": "candidates within one group, whose distance was computed",
    "pairs": "pairs of texts that match",
    "row_pairs": "pairs of rows, including pairs of equal texts",
}
"""The meaning of each counter, in the order of reports."""


class EditProfileReport(ProfileReport):
    """The work of one edit self-join; see `ProfileReport`."""

    about: ClassVar[Mapping[str, str]] = ABOUT
    counted: ClassVar[tuple[str, ...]] = ("listed", "candidates", "verified", "pairs", "row_pairs")
    title: ClassVar[str] = "Profile of an edit self-join"


@verb(EditPlanRequest)
def edit_plan(frame: Frame, request: EditPlanRequest) -> EditPlanReport:
    """Show the tasks of `edit_self_join` with the same options, and the estimated size of its result.

    With `other` it plans `edit_join`.  It computes at the call: it reads the column once, and joins a sample
    for the estimate.  The plan of a plain frame has one block.

    The parameters are the same as for `edit_self_join` and `edit_join`.

    Returns
    -------
    EditPlanReport
        Prints as text, and shows as a table and a picture in notebooks.  It has ``rows``, ``characters``,
        ``blocks``, ``block_pairs``, ``partitions``, ``pairs``, ``pairs_low``, ``pairs_high``,
        ``result_bytes``, ``to_frame()``, ``svg()`` and ``plot()``.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, TextError, DuplicateIdError, BudgetError
        The same errors as for `edit_self_join` and its planning.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"name": ["Meyer", "Meier", "Maier", "Smith"]})
    >>> plan = df.simjoin.edit_plan("name", 1)
    >>> plan.rows, plan.characters, plan.pairs
    (4, 20.0, 2.0)
    """
    wanted = request.planned()
    if request.other is not None:
        check_other("other=frame", request.other)
    frame, other, left, right = one_or_two(frame, request.other)
    if isinstance(wanted, EditSelfJoinRequest):
        spec = wanted.spec(left)
    else:
        assert right is not None
        spec = wanted.spec(left, right)
    pairs_example(left, left if right is None else right, spec)
    if is_dask_collection(frame):
        from dask_simjoin.graph.planner import plan_for
        from dask_simjoin.graph.source import freeze
        from dask_simjoin.strings.planner import EDIT_STEPS

        data = None if other is None else freeze(other, spec.right.columns)
        plan = plan_for(freeze(frame, spec.columns), spec, PAIRS, data, steps=EDIT_STEPS)
        return EditPlanReport(plan, spec)
    return EditPlanReport(_plan_whole([frame] if other is None else [frame, other], spec), spec)


def _plan_whole(frames: list[Frame], spec: EditSpec) -> SetPlan:
    """Plan a join of one or two plain frames, with one block each."""
    tables: list[list[SetSummary]] = []
    sides = [spec, *([spec.right] if len(frames) > 1 else [])]
    for which, number, frame, own in zip(
        TABLES if len(frames) > 1 else (None,), (0, RIGHT), frames, sides, strict=False
    ):
        with in_table(which):
            summary = summarise_texts(frame, number, own, True, 1)
            if summary.ids is not None:
                check_summaries([summary.ids], own.id)
        tables.append([summary])
    whole = replace(spec, blocksize=MAX_BYTES, settings=replace(spec.settings, output=None))
    plan = make_edit_plan(tables, whole, PAIRS, resources_for(spec.library))
    size = round(plan.block_bytes.sum())
    device = frames_of_library(spec.library).memory()
    return replace(plan, budget=plain_budget(plan.budget, size, device))


@verb(EditProfileRequest)
def edit_profile(frame: Frame, request: EditProfileRequest) -> EditProfileReport:
    """Run an edit self-join without keeping its pairs, and report its work and time.

    It runs at the call, on one core, with all rows as one block.  The column of a Dask DataFrame is computed
    first, and must fit memory.

    The parameters are the same as for `count_edit_pairs`.  The counters come from a separate run.

    Returns
    -------
    EditProfileReport
        Prints as text, and shows as a table and a picture in notebooks.  It has ``numbers``, ``seconds``,
        ``rows``, ``method``, ``to_frame()``, ``svg()`` and ``plot()``.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"name": ["Meyer", "Meier", "Maier", "Meyer"]})
    >>> found = df.simjoin.edit_profile("name", 1)
    >>> int(found.numbers["texts"]), int(found.numbers["pairs"]), int(found.numbers["row_pairs"])
    (3, 2, 4)
    """
    spec = request.spec(example_of(frame))
    if is_dask_collection(frame):
        frame = frame[spec.columns].compute()
    begin = time.perf_counter()
    read = read_each([frame], spec, False, read_texts)
    split = time.perf_counter()
    (chunk,) = chunks_of(read)
    encoded = time.perf_counter()
    did = edit_joiner().counters(chunk, None, spec.rule)
    start = time.perf_counter()
    row_pairs = count_block_pairs(whole_block_pair([chunk], spec))
    missing = read[0]["missing"]
    texts = len(frame) - (0 if missing is None else int(missing.sum()))
    numbers = {
        "characters": float(len(read[0]["sets"]["codes"]) - spec.rule.tail * texts),
        "texts": float(len(chunk["weights"])), **did._asdict(), "row_pairs": float(row_pairs),
    }  # fmt: skip
    seconds = {"characters": split - begin, "encode": encoded - split, "join": time.perf_counter() - start}
    return EditProfileReport("segments", repr(spec.rule), len(frame), Counters(numbers, seconds))
