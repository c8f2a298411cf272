"""Make the verbs methods of `.simjoin`, the accessor of Dask, pandas and cuDF DataFrames."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

import pandas as pd
from dask.dataframe.extensions import register_dataframe_accessor

from dask_simjoin.api.import_hook import when_imported
from dask_simjoin.api.report import report
from dask_simjoin.api.verb_methods import F, VerbMethods
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.expressions import lazy_repr
from dask_simjoin.options.messages import VERBS as SYNONYMS
from dask_simjoin.options.messages import elsewhere
from dask_simjoin.planning.report_run import RunReport


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
    lazy_repr.guard()
    register_dataframe_accessor("simjoin")(SimJoinAccessor)
    pd.api.extensions.register_dataframe_accessor("simjoin")(SimJoinAccessor)
    when_imported("cudf", _register_with_cudf)


def _register_with_cudf() -> None:
    sys.modules["cudf"].api.extensions.register_dataframe_accessor("simjoin")(SimJoinAccessor)
