"""Check the requests of set joins against their frames."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from dask_simjoin.catalog import HOME, library
from dask_simjoin.errors import (
    TABLES,
    ColumnError,
    OptionError,
    OptionTypeError,
    in_table,
)
from dask_simjoin.metrics.norms import Array, DType, Frame, Series
from dask_simjoin.request.clusters import OneStays, check_kept_row, with_representative
from dask_simjoin.request.columns import (
    as_names,
    check_column_exists,
    check_columns,
    has_column,
    swapped_conditions,
)
from dask_simjoin.request.messages import shown
from dask_simjoin.request.options import (
    IdsOfTwo,
    Kept,
    RowIds,
    Settings,
    Size,
    Threaded,
    about,
    check_whole,
    current_settings,
    is_whole,
    on_cluster,
    parse_size,
    read_settings,
)
from dask_simjoin.request.requests import (
    ALL_TIES,
    ANTI,
    GREEDY,
    HOW,
    HOW_HELP,
    INNER,
    LEFT,
    SEMI,
    How,
    OneToOne,
    Ties,
    check_how,
)
from dask_simjoin.request.resolve import (
    check_choices,
    check_flag,
    check_one_table,
    id_dtype,
    keeping,
)
from dask_simjoin.request.spec import RowSpec, bare
from dask_simjoin.sets.columns import check_holds
from dask_simjoin.sets.methods import AUTO, CHOICES, METHODS, SetMethod
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.tokens import Tokenizer, tokenizer_of


class Best(NamedTuple):
    """Which of the most similar right rows of each left row are returned."""

    number: int = 0
    """At most this number of rows; 0: all matches."""
    # whether further rows are returned that are as similar as the last one
    all_ties: bool = False


ALL_MATCHES = Best()


@dataclass(frozen=True, kw_only=True)
class ValueSpec(RowSpec):
    """The options that are common to joins of sets and joins of strings. See also
    `RowSpec`.
    """

    on: tuple[Hashable, ...]
    given: str  # the threshold or largest distance as the user wrote it, for messages
    id: Hashable | None = None
    id_dtype: DType = None
    keep: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()
    wanted: tuple[str, ...] | None = None
    blocksize: int | None = None
    settings: Settings = field(default_factory=read_settings)
    library: str = HOME
    is_swapped: bool = False
    best: Best = ALL_MATCHES
    matching: bool = False

    def ranked(self, position: str | None) -> Any:
        found: Any = self
        other = None if self.other is None else self.other.ranked(position)
        number = {"id": position, "id_dtype": np.dtype(np.int64)}
        return replace(bare(found), **number, other=other)


@dataclass(frozen=True, kw_only=True)
class SetSpec(ValueSpec):
    """The options of a join of sets. See also `ValueSpec`."""

    rule: Rule
    tokenizer: Tokenizer | None = None
    """None: the column has lists of tokens."""
    method: str | SetMethod = AUTO
    allow_empty: bool = False
    allow_missing: bool = False
    """Whether rows with empty sets match each other; and whether rows without a set
    match each other.
    """
    return_similarity: bool = False
    other: SetSpec | None = None

    kind: ClassVar[str] = "set_"

    @property
    def of_lists(self) -> bool:
        """Whether the compared column holds lists."""
        return self.tokenizer is None

    @property
    def request(self) -> str:
        """The option with its value, as messages show it."""
        return f"threshold={self.given}"

    @property
    def score(self) -> str | None:
        """Name of the result column with the similarities; None if they were not
        requested.
        """
        return "similarity" if self.return_similarity else None

    def ranked(self, position: str | None) -> SetSpec:
        found: SetSpec = replace(super().ranked(position), return_similarity=True)
        return found

    def scores(self, totals: Array, left: Series, right: Series) -> Array:
        return -totals

    @property
    def empty_match(self) -> bool:
        """Whether two empty sets match: `allow_empty` is set, and equal sets reach the
        threshold.
        """
        return self.allow_empty and equal_match(self.rule, 1)


def equal_match(rule: Rule, size: int) -> bool:
    return rule.need(size, size) <= size < rule.beyond(size, size)


BETWEEN = "a number above 0 and up to 1, such as 0.8 or Fraction(1, 3)"

MAX_DIGITS = 99
"""All thresholds above 10**MAX_DIGITS give the same pairs, and so do all below
10**-MAX_DIGITS.
"""


def is_set_method(value: object) -> bool:
    return type(value) in map(type, METHODS.values())


def check_threshold(value: Any, similarity: str, option: str = "threshold") -> Fraction:
    """Convert a threshold to the exact fraction that its decimal text stands for: 0.1
    becomes 1/10.

    Raise an error if the threshold is not allowed for `similarity`. `option`: name of
    the option in messages.
    """
    allowed = (
        "a whole number of tokens above 0, such as 2"
        if similarity == "overlap"
        else BETWEEN
    )
    # for NumPy, timedelta64 is an integer, so exclude it by name
    allowed_kind = isinstance(value, (numbers.Real, Decimal)) and not isinstance(
        value, (bool, np.bool_, np.timedelta64)
    )
    if not allowed_kind:
        raise OptionTypeError(
            f"{option}={shown(value)} is not a number; use {allowed}{_of_text(value)}."
        )
    exact = isinstance(value, numbers.Rational)
    # `math.isfinite` would raise an error for a signaling NaN of Decimal
    finite = exact or (
        value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    )
    if not finite:
        raise OptionError(f"{option}={shown(value)} is not allowed; use {allowed}.")
    number = value
    if isinstance(value, Decimal) and value and abs(value.adjusted()) > MAX_DIGITS:
        # such a threshold as exact fraction would have a huge integer; all of them give
        # the same pairs as this one
        number = Decimal(
            (int(value < 0), (1,), MAX_DIGITS if value.adjusted() > 0 else -MAX_DIGITS)
        )
    elif isinstance(value, Decimal) and not value:
        number = 0
    found = (
        Fraction(int(value.numerator), int(value.denominator))
        if exact
        else Fraction(str(number))
    )
    percent = (
        ""
        if similarity == "overlap" or not 1 < found <= 100
        else " (divide percents by 100)"
    )
    whole = found.denominator == 1
    if found <= 0 or (not whole if similarity == "overlap" else found > 1):
        kind = f" with similarity={similarity!r}" if option == "threshold" else ""
        raise OptionError(
            f"{option}={shown(value)} is not allowed{kind}; use {allowed}{percent}."
        )
    return found


def _of_text(value: object) -> str:
    percent = isinstance(value, str) and value.strip().endswith("%")
    return " (divide percents by 100)" if percent else ""


def resolve(request: Any, meta: Frame, on: object, id: Hashable | None) -> SetSpec:
    """Check all options of a request except `keep`. `meta`: an empty frame with the
    columns of the table.
    """
    check_choices(request, is_set_method)
    given = request.threshold
    if (
        isinstance(on, (int, float))
        and isinstance(given, str)
        and not has_column(meta.columns, on)
    ):
        raise OptionTypeError(
            f"on={shown(on)} is not a column, and threshold={shown(given)} is not a "
            "number. The arguments are swapped: use set_self_join("
            f"{given!r}, {on!r}, tokenizer={request.tokenizer or 'words'!r})."
        )
    threshold = check_threshold(given, request.similarity)
    tokenizer = tokenizer_of(request.tokenizer)
    flags: dict[str, Any] = {
        name: check_flag(name, getattr(request, name))
        for name in ("allow_empty", "allow_missing", "return_similarity")
        if hasattr(request, name)
    }
    if flags["allow_empty"] and request.similarity == "overlap":
        raise OptionError(
            "allow_empty=True is not allowed with similarity='overlap': empty sets "
            "have no token in common, "
            "but a threshold is at least 1. Leave out allow_empty=."
        )
    shared = shared_options(request, meta, id)
    column = the_column(meta, on, "sets")
    check_holds(column, meta[column].dtype, tokenizer)
    rule = Rule(request.similarity, threshold, request.comparison)
    spec = SetSpec(
        on=(column,),
        rule=rule,
        given=shown(given),
        tokenizer=tokenizer,
        method=request.method,
        **flags,
        **shared,
    )
    return spec if request.names_rows else bare(spec)


def shared_options(request: Any, meta: Frame, id: Hashable | None) -> dict[str, Any]:
    """Check the options that requests for sets and for strings share. Return them as
    arguments of a `ValueSpec`.
    """
    blocksize = (
        None
        if request.blocksize is None
        else parse_size("blocksize", request.blocksize)
    )
    check_columns(meta)
    threads = getattr(request, "threads", None)
    return {
        "id": id,
        "id_dtype": id_dtype(meta, id),
        "blocksize": blocksize,
        "settings": current_settings(on_cluster(), threads),
        "library": library(meta),
    }


def the_column(meta: Frame, on: object, values: str) -> Hashable:
    """Return the column that `on` names. Raise an error if it does not name exactly
    one.

    `values`: the word for the values of the column in messages.
    """
    names = (
        [on] if isinstance(on, tuple) and has_column(meta.columns, on) else as_names(on)
    )
    if on is None or not names:
        raise ColumnError(
            f"on={shown(on)} names no columns; name the one that holds {values}."
        )
    if len(names) > 1:
        put = " + ' ' + ".join(f"df[{name!r}]" for name in names[:2])
        raise ColumnError(
            f"on={shown(on)} names {len(names)} columns, but {values} are compared in "
            f"one. Use on={names[-1]!r}, or another single column. To compare texts of "
            f"several columns, combine them: df['both'] = {put}, then on='both'."
        )
    (name,) = names
    check_column_exists("on", name, [meta])
    return name


Spec = TypeVar("Spec", bound=ValueSpec)


def resolve_two(
    request: Any,
    left: Frame,
    right: Frame,
    resolve: Callable[[Any, Frame, Any, Any], Spec],
) -> Spec:
    """Check all options of a request for two tables, except `keep`. `left`, `right`:
    empty frames like the tables.

    `resolve`: checks the options for one table, given the names of its column and of
    its id column.
    """
    own = request.left_on, request.right_on
    if request.on is not None and own != (None, None):
        raise OptionError(
            "on= names the column of both tables; use either on=, or left_on= and "
            "right_on=."
        )
    if request.on is None and None in own:
        which = (
            "on" if own == (None, None) else "left_on" if own[0] is None else "right_on"
        )
        raise OptionError(
            f"{which}= is missing; name the columns of both tables, or use on= for "
            "both."
        )
    ids = request.left_id, request.right_id
    requests = request, replace(request, **swapped_conditions(request))
    specs = []
    for which, asked, table, on, id in zip(
        TABLES, requests, (left, right), own, ids, strict=True
    ):
        with in_table(which):
            name = request.id if id is None else id
            specs.append(resolve(asked, table, request.on if on is None else on, name))
    found: Any = specs[0]
    resolved: Spec = replace(found, other=specs[1])
    return resolved


def planned(request: Any, one_table: type[Any], two_tables: type[Any]) -> Any:
    """Convert the request for a plan to the request for the join.

    The result is a `two_tables` if the request has `other`, otherwise a `one_table`.
    """
    if request.other is None:
        check_one_table(request)
        request.check_all_pairs()
    kind = one_table if request.other is None else two_tables
    own = {option.name for option in fields(request)}
    return kind(
        **{
            option.name: getattr(request, option.name)
            for option in fields(kind)
            if option.name in own
        }
    )


Similarity = Literal["jaccard", "dice", "cosine", "overlap"]
Comparison = Literal[">=", ">", "="]
Threshold = float | Fraction | Decimal
"""A threshold. It is converted to the exact fraction that its decimal text stands for:
.1 becomes 1/10.
"""

AnyTokenizer = str | tuple[str, Any] | Callable[[str], Any] | Tokenizer | None
Method = str | SetMethod

ON = about("column of lists of tokens, or of texts with tokenizer=")
THRESHOLD = about("smallest similarity of a pair")


@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """Options of joins whose tables are divided into blocks by size."""

    # whether the result names rows by their ids; otherwise ids are not read, so they
    # may repeat
    names_rows: ClassVar[bool] = True

    blocksize: Size = field(
        default=None,
        metadata=about(
            "largest size of a block, and of a partition of the result", unit="bytes"
        ),
    )


@dataclass(frozen=True, kw_only=True)
class SetOptions(BlockOptions):
    """Options for the predicate and the method."""

    similarity: Similarity = field(
        default="jaccard",
        metadata=about("similarity of two sets", choices=get_args(Similarity)),
    )
    comparison: Comparison = field(
        default=">=",
        metadata=about(
            "comparison of the similarity with the threshold",
            choices=get_args(Comparison),
        ),
    )
    tokenizer: AnyTokenizer = field(
        default=None, metadata=about("how texts become sets of tokens")
    )
    allow_empty: bool = field(
        default=False, metadata=about("let empty sets match each other")
    )
    allow_missing: bool = field(
        default=False, metadata=about("let rows without a set match each other")
    )
    method: Method = field(
        default="auto", metadata=about("algorithm that finds pairs", choices=CHOICES)
    )


@dataclass(frozen=True, kw_only=True)
class OneSetTable(SetOptions):
    on: Hashable = field(kw_only=False, metadata=ON)
    threshold: Threshold = field(kw_only=False, metadata=THRESHOLD)

    def spec(self, meta: Frame) -> SetSpec:
        return resolve(self, meta, self.on, None)


def check_best(best: Any) -> int:
    """Return how many best rows are wanted; 0: all matches. Raise an error unless `best`
    is True, False or a whole number above 0.
    """
    if isinstance(best, (bool, np.bool_)):
        return int(best)
    if not is_whole(best) or best < 1:
        raise OptionError(
            f"best={shown(best)} is not allowed; use True for the most similar row, or "
            "a whole number >= 1, such as 3."
        )
    return check_whole("best", best, 1)


@dataclass(frozen=True, kw_only=True)
class MostSimilar:
    """Options: for each row only the most similar rows."""

    best: bool | int = field(
        default=False,
        metadata=about(
            "keep only the most similar right row of each left row, or at most this "
            "number of them"
        ),
    )
    ties: Ties = field(
        default="first",
        metadata=about(
            "of equally similar best rows, return the first ones or all",
            choices=get_args(Ties),
        ),
    )

    def with_best(self, spec: Spec) -> Spec:
        """Set the options in a spec."""
        number = check_best(self.best)
        if not number and self.ties != "first":
            raise OptionError(
                f"ties={self.ties!r} needs best=True, which returns the most similar "
                "rows. Without it, all pairs are in the result."
            )
        found: Any = spec
        resolved: Spec = replace(found, best=Best(number, self.ties == ALL_TIES))
        return resolved


@dataclass(frozen=True, kw_only=True)
class SetSelfJoinRequest(OneSetTable, RowIds, Kept, MostSimilar, Threaded):
    """Asks for the pairs of rows of one table whose sets match."""

    return_similarity: bool = field(
        default=False, metadata=about("add the similarity of each pair")
    )

    def spec(self, meta: Frame) -> SetSpec:
        spec = keeping(self, resolve(self, meta, self.on, self.id), meta)
        return self.with_best(spec)


@dataclass(frozen=True, kw_only=True)
class CountSetPairsRequest(OneSetTable, Threaded):
    """Asks for the number of pairs of rows of one table whose sets match."""

    names_rows: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class CountedRows(Threaded):
    """Options: the table whose rows are counted."""

    names_rows: ClassVar[bool] = False
    id: ClassVar[None] = None
    left_id: ClassVar[None] = None
    right_id: ClassVar[None] = None

    other: Frame | None = field(
        default=None,
        repr=False,
        compare=False,
        metadata=about("table whose rows are counted; default: the same table"),
    )
    left_on: Hashable | None = field(
        default=None, metadata=about("compared column of this table")
    )
    right_on: Hashable | None = field(
        default=None, metadata=about("compared column of the other table")
    )


@dataclass(frozen=True, kw_only=True)
class SetNeighborCountsRequest(CountedRows, SetOptions):
    """Asks for the number of rows that match each row, in the same table or in another."""

    on: Hashable | None = field(default=None, kw_only=False, metadata=ON)
    threshold: Threshold | None = field(default=None, kw_only=False, metadata=THRESHOLD)

    def spec(self, left: Frame, right: Frame | None = None) -> SetSpec:
        if self.threshold is None:
            raise OptionTypeError(
                "threshold= is missing: use set_neighbor_counts(on, threshold, ...)."
            )
        return counted_spec(self, left, right, resolve)


def counted_spec(
    request: Any,
    left: Frame,
    right: Frame | None,
    resolve: Callable[[Any, Frame, Any, Any], Spec],
) -> Spec:
    """Check the options of a request for counts, for one table or two. `resolve`: see
    `resolve_two`.
    """
    if right is not None:
        return resolve_two(request, left, right, resolve)
    check_one_table(request)
    return resolve(request, left, request.on, None)


@dataclass(frozen=True, kw_only=True)
class SetNearDuplicatedRequest(OneStays, OneSetTable, Threaded):
    """Asks which rows to drop, because their sets match the set of a kept row."""

    def spec(self, meta: Frame) -> SetSpec:
        return with_representative(check_kept_row(meta, self.keep), super().spec(meta))


@dataclass(frozen=True, kw_only=True)
class SetProfileRequest(OneSetTable):
    """Asks for a profile of a self-join of sets."""

    names_rows: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class TwoSetTables(SetOptions, IdsOfTwo, Kept, Threaded):
    """The options for two tables. Their columns may have different names."""

    left_on: Hashable | None = field(
        default=None, metadata=about("column of sets of the left table")
    )
    right_on: Hashable | None = field(
        default=None, metadata=about("column of sets of the right table")
    )
    return_similarity: bool = field(
        default=False, metadata=about("add the similarity of each pair")
    )


@dataclass(frozen=True, kw_only=True)
class BestMatch(MostSimilar, OneToOne):
    """Options: for each left row only its most similar right rows, or each row in at
    most one pair.
    """

    def with_matching(self, spec: Spec, how: str) -> Spec:
        """Set the options in a spec. Raise an error for options that exclude each
        other.
        """
        found: Any = self.with_best(spec)
        greedy = self.is_greedy(how)
        resolved: Spec = replace(found, matching=greedy)
        if not found.best.number:
            return resolved
        given = f"best={shown(self.best)}"
        if greedy:
            raise OptionError(
                f"{given} is not allowed with matching={GREEDY!r}; leave out one of "
                "them."
            )
        if how not in (INNER, LEFT):
            remedy = (
                "Leave out best=: whether a row has a match does not depend on it"
                if how in (SEMI, ANTI)
                else f"Use how={LEFT!r}, or swap the tables"
            )
            raise OptionError(f"{given} is not allowed with how={how!r}. {remedy}.")
        return resolved


@dataclass(frozen=True, kw_only=True)
class SetJoinRequest(TwoSetTables, BestMatch):
    """Asks for the pairs of rows of two tables whose sets match, or for left rows with
    or without a match.
    """

    other: Frame = field(
        kw_only=False, repr=False, compare=False, metadata=about("right table")
    )
    on: Hashable | None = field(default=None, kw_only=False, metadata=ON)
    threshold: Threshold | None = field(default=None, kw_only=False, metadata=THRESHOLD)
    how: How = field(default="inner", metadata=about(HOW_HELP, choices=HOW))

    def spec(self, left: Frame, right: Frame) -> SetSpec:
        check_how(self.how)
        if self.threshold is None:
            raise OptionTypeError(
                "threshold= is missing: use set_join(other, on, threshold, ...)."
            )
        spec = keeping(self, resolve_two(self, left, right, resolve), left, right)
        spec = self.with_matching(spec, self.how)
        return bare(spec) if self.how in (SEMI, ANTI) else spec


@dataclass(frozen=True, kw_only=True)
class SetPlanRequest(TwoSetTables, OneToOne):
    """Asks for the plan of a self-join of sets, or of a join of two tables."""

    on: Hashable | None = field(default=None, kw_only=False, metadata=ON)
    threshold: Threshold | None = field(default=None, kw_only=False, metadata=THRESHOLD)
    other: Frame | None = field(
        default=None, repr=False, compare=False, metadata=about("right table")
    )

    def planned(self) -> SetSelfJoinRequest | SetJoinRequest:
        if self.threshold is None:
            raise OptionTypeError(
                "threshold= is missing: use set_plan(on, threshold, ...)."
            )
        found: SetSelfJoinRequest | SetJoinRequest = planned(
            self, SetSelfJoinRequest, SetJoinRequest
        )
        return found
