"""The accessor `.simjoin`. It has one method for each verb of the table in `verbs.py`.

Type checkers and editors read accessor.pyi instead of this module. It is generated from
the same table.
"""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

from dask_simjoin.api.introspect import report
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.calls.decorators import as_method
from dask_simjoin.reports.facts import summaries_html
from dask_simjoin.reports.run import RunReport
from dask_simjoin.request.messages import no_verb

F = TypeVar("F")


class SimJoinAccessor(Generic[F]):
    """Similarity joins of a DataFrame: ``frame.simjoin``.

    On a Dask DataFrame every verb is lazy: the call computes nothing. Planning is one
    pass over the needed columns. It runs when Dask first needs the partitions of the
    result (``compute``, ``npartitions``, ``repr``).

    On a pandas DataFrame the verbs compute at the call, most of them on all cores. On
    cuDF frames, plain or Dask, they compute on GPUs, and results stay there.

    All libraries, partitionings and methods find the same pairs; see
    :doc:`/reference/metrics`.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 3.0, 3.0, 9.0], "y": [0.0, 4.0, 4.0, 9.0]}, index=list("abcd"))
    >>> df.simjoin.self_join(5.0)
      left right
    0    a     b
    1    a     c
    2    b     c

    The same join, lazily:

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
            f"<.simjoin of a {own.__module__.partition('.')[0]} {own.__name__}: "
            f"{', '.join(sorted(VERBS))}; "
            "help(frame.simjoin.self_join) explains options>"
        )

    def _repr_html_(self) -> str:
        functions = {name: verb.function for name, verb in VERBS.items()}
        return summaries_html(
            f"Verbs of {type(self._frame).__name__}.simjoin", functions
        )

    def report(self) -> RunReport:
        """Report the work of the join behind this lazy result; see
        `dask_simjoin.report`.
        """
        return report(self._frame)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f".simjoin has no verb {name!r}{no_verb(name, sorted(VERBS))}"
        )


for _name, _verb in VERBS.items():
    setattr(SimJoinAccessor, _name, as_method(_verb.function))
