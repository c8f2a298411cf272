"""Say what verbs of sets are asked for: their options, with types and defaults, and what they resolve to."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, Literal, get_args

from dask_simjoin.errors import OptionTypeError
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.groups import Kept, Size, about
from dask_simjoin.options.near_duplicates import OneStays, check_kept_row, told_by
from dask_simjoin.options.requests import ANTI, HOW, SEMI, How, check_how
from dask_simjoin.options.resolve import keeping
from dask_simjoin.options.resolve_two import check_one_table
from dask_simjoin.sets.methods import CHOICES, SetMethod
from dask_simjoin.sets.resolve import resolve, resolve_two, without_names
from dask_simjoin.sets.spec import SetSpec
from dask_simjoin.sets.tokens import Tokenizer

Similarity = Literal["jaccard", "dice", "cosine", "overlap"]
Comparison = Literal[">=", ">", "="]
Threshold = float | Fraction | Decimal
"""Decided as the fraction that its text is: .1 is 1/10."""

AnyTokenizer = str | tuple[str, Any] | Callable[[str], Any] | Tokenizer | None
Method = str | SetMethod

ON = about("column of lists of tokens, or of texts with tokenizer=")
THRESHOLD = about("what the similarity is compared with")


@dataclass(frozen=True, kw_only=True)
class SetOptions:
    """Say when sets match, and how they are found.

    Attributes
    ----------
    names_rows : bool
        Whether the result names rows by their ids; otherwise those are not read, so they may repeat.
    """

    names_rows: ClassVar[bool] = True

    similarity: Similarity = field(
        default="jaccard", metadata=about("what sets have in common", choices=get_args(Similarity))
    )
    comparison: Comparison = field(
        default=">=", metadata=about("of the similarity with the threshold", choices=get_args(Comparison))
    )
    tokenizer: AnyTokenizer = field(default=None, metadata=about("how texts become sets of tokens"))
    allow_empty: bool = field(default=False, metadata=about("whether empty sets match each other"))
    allow_missing: bool = field(default=False, metadata=about("whether rows without a set match each other"))
    method: Method = field(default="auto", metadata=about("engine that finds pairs", choices=CHOICES))
    blocksize: Size = field(default=None, metadata=about("size of a block and of a partition", unit="bytes"))


@dataclass(frozen=True, kw_only=True)
class OneTable(SetOptions):
    """Ask for something of the rows of one table."""

    on: Hashable = field(kw_only=False, metadata=ON)
    threshold: Threshold = field(kw_only=False, metadata=THRESHOLD)


@dataclass(frozen=True, kw_only=True)
class SetSelfJoin(OneTable, Kept):
    """Ask for the pairs of one table whose sets match."""

    id: Hashable | None = field(default=None, metadata=about("column that names rows"))
    return_similarity: bool = field(default=False, metadata=about("add each pair's similarity"))

    def spec(self, meta: Frame) -> SetSpec:
        """Resolve it for frames like `meta`."""
        return keeping(self, resolve(self, meta, self.on, self.id), meta)


@dataclass(frozen=True, kw_only=True)
class CountSetPairs(OneTable):
    """Ask for the number of pairs of one table whose sets match."""

    names_rows: ClassVar[bool] = False

    def spec(self, meta: Frame) -> SetSpec:
        """Resolve it for frames like `meta`."""
        return resolve(self, meta, self.on, None)


@dataclass(frozen=True, kw_only=True)
class SetNeighborCounts(CountSetPairs):
    """Ask for the number of rows that each row's set matches."""


@dataclass(frozen=True, kw_only=True)
class SetNearDuplicated(OneStays, OneTable):
    """Ask which rows' sets match those of rows that stay."""

    def spec(self, meta: Frame) -> SetSpec:
        """Resolve it for frames like `meta`."""
        return told_by(check_kept_row(meta, self.keep), resolve(self, meta, self.on, None))


@dataclass(frozen=True, kw_only=True)
class SetProfile(CountSetPairs):
    """Ask what a self-join of sets does."""


@dataclass(frozen=True, kw_only=True)
class TwoTables(SetOptions, Kept):
    """Ask for something of the rows of two tables, whose columns may be called otherwise."""

    left_on: Hashable | None = field(default=None, metadata=about("column of sets of the left table"))
    right_on: Hashable | None = field(default=None, metadata=about("column of sets of the right table"))
    id: Hashable | None = field(default=None, metadata=about("column that names rows"))
    left_id: Hashable | None = field(default=None, metadata=about("column that names rows of the left table"))
    right_id: Hashable | None = field(
        default=None, metadata=about("column that names rows of the right table")
    )
    return_similarity: bool = field(default=False, metadata=about("add each pair's similarity"))


@dataclass(frozen=True, kw_only=True)
class SetJoin(TwoTables):
    """Ask for the pairs of two tables whose sets match, or for rows of the left one in some or in none."""

    other: Frame = field(kw_only=False, repr=False, compare=False, metadata=about("right table"))
    on: Hashable | None = field(default=None, kw_only=False, metadata=ON)
    threshold: Threshold | None = field(default=None, kw_only=False, metadata=THRESHOLD)
    how: How = field(default="inner", metadata=about("which rows the result has", choices=HOW))

    def spec(self, left: Frame, right: Frame) -> SetSpec:
        """Resolve it for frames like `left` and `right`."""
        check_how(self.how, "other.simjoin.set_join(frame, on, threshold, how='left')")
        columns, ids = (self.on, self.left_on, self.right_on), (self.id, self.left_id, self.right_id)
        spec = keeping(self, resolve_two(self, left, right, columns, ids), left, right)
        return without_names(spec) if self.how in (SEMI, ANTI) else spec


@dataclass(frozen=True, kw_only=True)
class SetPlanned(TwoTables):
    """Ask for the plan of a self-join of sets, or of a join of two tables."""

    on: Hashable | None = field(default=None, kw_only=False, metadata=ON)
    threshold: Threshold | None = field(default=None, kw_only=False, metadata=THRESHOLD)
    other: Frame | None = field(default=None, repr=False, compare=False, metadata=about("right table"))

    def planned(self) -> SetSelfJoin | SetJoin:
        """The request that is to be planned."""
        kind: type[SetSelfJoin] | type[SetJoin] = SetSelfJoin if self.other is None else SetJoin
        if self.threshold is None:
            raise OptionTypeError("threshold= is missing: use set_plan(on, threshold, ...).")
        if self.other is None:
            check_one_table(self)
        own = {option.name for option in fields(self)}
        shared: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(kind) if f.name in own}
        return kind(**shared)
