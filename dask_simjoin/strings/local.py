"""The driver of plain frames for strings."""

from __future__ import annotations

from dask_simjoin.sets.local import LocalSets
from dask_simjoin.strings.blocks import (
    EditBlockPair,
    EditPlanReport,
    chunks_of,
    make_edit_plan,
    read_texts,
    summarise_texts,
)


class LocalTexts(LocalSets):
    """Runs the steps of a verb for one plain frame of texts or two."""

    read = staticmethod(read_texts)
    chunks_of = staticmethod(chunks_of)
    block_pair = EditBlockPair
    summarize = staticmethod(summarise_texts)
    make_plan = staticmethod(make_edit_plan)
    report = EditPlanReport
