"""Hold the checked and resolved options of one join of sets."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from dask_simjoin.metrics.types import DType
from dask_simjoin.options.settings import Settings, current_settings
from dask_simjoin.options.spec import RowSpec
from dask_simjoin.sets.methods import AUTO, SetMethod
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.tokens import Tokenizer


@dataclass(frozen=True)
class SetSpec(RowSpec):
    """What one join of sets is asked for; what all joins are, see `RowSpec`.

    Attributes
    ----------
    rule : Rule
        When two sets match.
    given : str
        The threshold, as it was given.
    tokenizer : Tokenizer or None
        None: the column holds lists.
    method : str or SetMethod
    allow_empty, allow_missing : bool
        Whether rows of empty sets match each other, and rows without a set.
    return_similarity : bool
    """

    on: tuple[Hashable, ...]
    rule: Rule
    given: str
    tokenizer: Tokenizer | None = None
    method: str | SetMethod = AUTO
    allow_empty: bool = False
    allow_missing: bool = False
    return_similarity: bool = False
    id: Hashable | None = None
    id_dtype: DType = None
    keep: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()
    blocksize: int | None = None
    settings: Settings = field(default_factory=current_settings)
    library: str = "pandas"
    other: SetSpec | None = None

    @property
    def asked(self) -> str:
        """What pairs are asked for, in messages."""
        return f"threshold={self.given}"

    @property
    def score(self) -> str | None:
        """The column of the pairs' similarities."""
        return "similarity" if self.return_similarity else None

    @property
    def empty_match(self) -> bool:
        """Whether two empty sets match: allowed, they are as alike as equal sets are."""
        return self.allow_empty and equal_match(self.rule, 1)


def equal_match(rule: Rule, size: int) -> bool:
    """Tell whether equal sets of a size match."""
    return rule.need(size, size) <= size < rule.beyond(size, size)
