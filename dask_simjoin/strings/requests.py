"""Check requests for joins by edit distance, and compute the largest distance that a
pair may have.

With a similarity of p/q, strings of a and b code points match if 1 - distance / max(a,
b) >= p/q. So the distance is at most (q - p) * max(a, b) // q. Two empty strings have
the distance 0, and match.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dask_simjoin.catalog import HOME, library
from dask_simjoin.errors import ColumnError, OptionError, OptionTypeError
from dask_simjoin.metrics.norms import Array, Frame, Series
from dask_simjoin.request.clusters import OneStays, check_kept_row, with_representative
from dask_simjoin.request.columns import groups_of
from dask_simjoin.request.messages import shown
from dask_simjoin.request.options import IdsOfTwo, Kept, RowIds, Threaded, Within, about
from dask_simjoin.request.requests import (
    ANTI,
    HOW,
    HOW_HELP,
    SEMI,
    How,
    OneToOne,
    check_how,
)
from dask_simjoin.request.resolve import check_choices, check_flag, keeping
from dask_simjoin.request.spec import bare
from dask_simjoin.sets.columns import OBJECTS, TEXTS, content_of
from dask_simjoin.sets.predicate import NEVER
from dask_simjoin.sets.requests import (
    BestMatch,
    BlockOptions,
    CountedRows,
    MostSimilar,
    Threshold,
    ValueSpec,
    check_threshold,
    counted_spec,
    planned,
    resolve_two,
    shared_options,
    the_column,
)


@dataclass(frozen=True)
class EditRule:
    """The largest edit distance of two matching strings, computed with integers.

    A size is the length of a string plus the length of its tail. The tail consists of
    codes that identify its group (see `dask_simjoin.strings.blocks`).
    """

    k: int | None  # the largest distance; None: `similarity` is given instead
    similarity: Fraction | None = None
    """The smallest similarity, above 0 and up to 1; None: `k` is given instead."""
    # whether a transposition of adjacent code points counts as one edit
    transpositions: bool = False
    tail: int = 1  # codes per tail
    ranks: bool = False  # whether `score` returns what `rank` does

    def limit(self, length: int) -> int:
        """Return the largest distance of a matching pair whose longer string has this
        length.
        """
        if self.similarity is None:
            assert self.k is not None
            # no distance is larger than the length of the longer string
            return min(self.k, length)
        p, q = self.similarity.numerator, self.similarity.denominator
        return (q - p) * length // q

    def longest(self, length: int) -> int | None:
        """Return the largest length of a string that can match a string of this length;
        None if there is no limit.
        """
        if self.similarity is None:
            assert self.k is not None
            return length + self.k
        return length * self.similarity.denominator // self.similarity.numerator

    def limits(self, longest: int) -> np.ndarray:
        """Return `limit` for each length from 0 to `longest` (longest + 1,), int64."""
        if self.similarity is None:
            assert self.k is not None
            return np.minimum(np.arange(longest + 1), min(self.k, longest))
        p, q = self.similarity.numerator, self.similarity.denominator
        if q * (longest + 1) >= 1 << 63:
            return np.array(
                [self.limit(length) for length in range(longest + 1)], np.int64
            )
        found: np.ndarray = (q - p) * np.arange(longest + 1) // q
        return found

    def smallest(self, size: int) -> int:
        """Return the smallest size of a string that can match a string of this size."""
        length = max(size - self.tail, 0)
        return max(length - self.limit(length), 0) + self.tail

    def largest(self, size: int) -> int | None:
        """Return the largest size of a string that can match a string of this size;
        None if there is no limit.
        """
        found = self.longest(max(size - self.tail, 0))
        return None if found is None else found + self.tail

    def need(self, a: int, b: int) -> int:
        """Return 0, because two matching strings need not have a code in common."""
        return 0

    def beyond(self, a: int, b: int) -> int:
        """Return a number that is larger than any overlap, because no overlap is too
        large.
        """
        return NEVER

    def score(self, a: np.ndarray, b: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Return the distance of each pair (pairs,), float64; or its rank, if `ranks`."""
        distance = found.astype(np.float64)
        return self.rank(a, b, distance) if self.ranks else distance

    def rank(self, a: np.ndarray, b: np.ndarray, distance: np.ndarray) -> np.ndarray:
        """Return a number for each pair (pairs,), float64, which is smaller for more
        similar strings: the distance, or with `similarity` its share of the length.

        `a`, `b`: sizes of both strings.
        """
        if self.similarity is None:
            return distance
        length: np.ndarray = np.maximum(np.maximum(a, b) - self.tail, 1)
        return distance / length

    def score_of_equals(self, sizes: np.ndarray) -> np.ndarray:
        """Return the distance of equal strings, which is 0, for each (n,), float64."""
        return np.zeros(len(sizes))


PLAIN, GROUPED = 1, 4
"""Number of codes in the tail of a string: without groups, and with groups.

Four codes have the 64 bits that identify a group.
"""


@dataclass(frozen=True, kw_only=True)
class EditSpec(ValueSpec):
    """The options of a join by edit distance. See also `ValueSpec`."""

    rule: EditRule
    by: tuple[Hashable, ...] = ()  # columns that must be equal in both rows
    code: str | None = None  # name of the column that identifies groups; None: no `by`
    return_distance: bool = False
    other: EditSpec | None = None

    kind: ClassVar[str] = "edit_"
    allow_missing: ClassVar[bool] = False
    empty_match: ClassVar[bool] = False
    method: ClassVar[str] = "auto"

    @property
    def request(self) -> str:
        """The option that limits the pairs, with its value, as messages show it."""
        return self.given

    @property
    def score(self) -> str | None:
        """Name of the result column with the distances; None if they were not
        requested.
        """
        return "distance" if self.return_distance else None

    def ranked(self, position: str | None) -> EditSpec:
        found: EditSpec = replace(
            super().ranked(position),
            return_distance=True,
            rule=replace(self.rule, ranks=True),
        )
        return found

    def scores(self, totals: Array, left: Series, right: Series) -> Array:
        if self.rule.similarity is None:
            return totals
        longest = [max(len(a), len(b), 1) for a, b in zip(left, right, strict=True)]
        return np.rint(totals * longest)

    @property
    def columns(self) -> list[Hashable]:
        return list(
            dict.fromkeys(
                [*super().columns, *([] if self.code is None else [self.code])]
            )
        )


def check_k(value: Any) -> int:
    """Return the largest number of edits as an int.

    Raise an error unless it is a whole number of at least 0.
    """
    # for NumPy, timedelta64 is an integer, so exclude it by name
    is_number = isinstance(value, numbers.Real) and not isinstance(
        value, (bool, np.bool_, np.timedelta64)
    )
    if not is_number:
        raise OptionTypeError(
            f"k={shown(value)} is not a number; use a whole number of edits, such as 2."
        )
    if not 0 <= value < math.inf or value != value // 1:
        such = f" (or similarity={shown(value)})" if 0 < value < 1 else ""
        raise OptionError(
            f"k={shown(value)} is not allowed; use a whole number of edits of at least "
            f"0, such as 2{such}."
        )
    return int(value)


def rule_of(request: Any) -> tuple[EditRule, str]:
    """Return the rule of a request, ignoring groups, and the option that sets it, as
    messages show it.
    """
    k, similarity = request.k, request.similarity
    if (k is None) == (similarity is None):
        which = "are both given" if k is not None else "are both missing"
        raise OptionTypeError(
            f"k= and similarity= {which}. Give one of them: {request.verb}(..., k=2) "
            f"for at most 2 edits, or {request.verb}(..., similarity=0.9)."
        )
    swaps = check_flag("transpositions", request.transpositions)
    if similarity is None:
        return EditRule(check_k(k), None, swaps), f"k={shown(k)}"
    return EditRule(
        None, check_threshold(similarity, "jaccard", "similarity"), swaps
    ), f"similarity={shown(similarity)}"


def resolve(request: Any, meta: Frame, on: object, id: Hashable | None) -> EditSpec:
    """Check all options of a request except `keep`. `meta`: an empty frame with the
    columns of the table.
    """
    if library(meta) != HOME:
        raise OptionError(
            f"Strings are joined on the CPU, but this frame is of {library(meta)!r}; "
            "use frame.to_pandas(), "
            "or ddf.to_backend('pandas')."
        )
    check_choices(request)
    rule, given = rule_of(request)
    by, code = groups_of(request.by)
    if by:
        rule = replace(rule, tail=GROUPED)
    shared = shared_options(request, meta, id)
    column = the_column(meta, on, "texts")
    if content_of(meta[column].dtype) not in (TEXTS, OBJECTS):
        raise ColumnError(
            f"on={column!r} is of dtype {meta[column].dtype}, which holds no texts. "
            "Use a column of strings, "
            f"for example df[{column!r}].astype('str')."
        )
    spec = EditSpec(
        on=(column,),
        rule=rule,
        given=given,
        by=by,
        code=code[0] if code else None,
        return_distance=check_flag(
            "return_distance", getattr(request, "return_distance", False)
        ),
        **shared,
    )
    return spec if request.names_rows else bare(spec)


ON = about("column of texts")
LARGEST = about("largest number of edits")


@dataclass(frozen=True, kw_only=True)
class EditOptions(BlockOptions, Within):
    """Options for the predicate."""

    verb: ClassVar[str]  # name of the verb, for messages
    # False, because numbers of groups are compared directly, not used as coordinates
    groups_need_bound: ClassVar[bool] = False

    similarity: Threshold | None = field(
        default=None,
        metadata=about(
            "instead of k: smallest similarity, 1 - edits / length of the longer text"
        ),
    )
    transpositions: bool = field(
        default=False, metadata=about("count a swap of adjacent characters as one edit")
    )


@dataclass(frozen=True, kw_only=True)
class OneTextTable(EditOptions):
    """The options of requests for one table."""

    on: Hashable = field(kw_only=False, metadata=ON)
    k: int | None = field(default=None, kw_only=False, metadata=LARGEST)

    def spec(self, meta: Frame) -> EditSpec:
        return resolve(self, meta, self.on, None)


@dataclass(frozen=True, kw_only=True)
class EditSelfJoinRequest(OneTextTable, RowIds, Kept, MostSimilar, Threaded):
    """Asks for the pairs of rows of one table whose texts are within a distance."""

    verb: ClassVar[str] = "edit_self_join"

    return_distance: bool = field(
        default=False, metadata=about("add the distance of each pair")
    )

    def spec(self, meta: Frame) -> EditSpec:
        spec = keeping(self, resolve(self, meta, self.on, self.id), meta)
        return self.with_best(spec)


@dataclass(frozen=True, kw_only=True)
class CountEditPairsRequest(OneTextTable, Threaded):
    """Asks for the number of pairs of rows of one table whose texts are within a
    distance.
    """

    verb: ClassVar[str] = "count_edit_pairs"
    names_rows: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class EditNeighborCountsRequest(CountedRows, EditOptions):
    """Asks for the number of rows whose texts are within a distance of each row's text,
    in the same table or in another.
    """

    verb: ClassVar[str] = "edit_neighbor_counts"
    names_rows: ClassVar[bool] = False

    on: Hashable | None = field(default=None, kw_only=False, metadata=ON)
    k: int | None = field(default=None, kw_only=False, metadata=LARGEST)

    def spec(self, left: Frame, right: Frame | None = None) -> EditSpec:
        return counted_spec(self, left, right, resolve)


@dataclass(frozen=True, kw_only=True)
class EditNearDuplicatedRequest(OneStays, OneTextTable, Threaded):
    """Asks which rows to drop, because their texts are near the text of a kept row."""

    verb: ClassVar[str] = "edit_near_duplicated"

    def spec(self, meta: Frame) -> EditSpec:
        return with_representative(check_kept_row(meta, self.keep), super().spec(meta))


@dataclass(frozen=True, kw_only=True)
class EditProfileRequest(OneTextTable):
    """Asks for a profile of a self-join by edit distance."""

    verb: ClassVar[str] = "edit_profile"
    names_rows: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class TwoTextTables(EditOptions, IdsOfTwo, Kept, Threaded):
    """The options of requests for two tables. Their columns may have different names."""

    left_on: Hashable | None = field(
        default=None, metadata=about("column of texts of the left table")
    )
    right_on: Hashable | None = field(
        default=None, metadata=about("column of texts of the right table")
    )
    return_distance: bool = field(
        default=False, metadata=about("add the distance of each pair")
    )


@dataclass(frozen=True, kw_only=True)
class EditJoinRequest(TwoTextTables, BestMatch):
    """Asks for the pairs of rows of two tables whose texts are near, or for left rows
    with or without a match.
    """

    verb: ClassVar[str] = "edit_join"

    other: Frame = field(
        kw_only=False, repr=False, compare=False, metadata=about("right table")
    )
    on: Hashable | None = field(default=None, kw_only=False, metadata=ON)
    k: int | None = field(default=None, kw_only=False, metadata=LARGEST)
    how: How = field(default="inner", metadata=about(HOW_HELP, choices=HOW))

    def spec(self, left: Frame, right: Frame) -> EditSpec:
        check_how(self.how)
        spec = keeping(self, resolve_two(self, left, right, resolve), left, right)
        spec = self.with_matching(spec, self.how)
        return bare(spec) if self.how in (SEMI, ANTI) else spec


@dataclass(frozen=True, kw_only=True)
class EditPlanRequest(TwoTextTables, OneToOne):
    """Asks for the plan of a join by edit distance, of one table with itself or of two
    tables.
    """

    on: Hashable | None = field(default=None, kw_only=False, metadata=ON)
    k: int | None = field(default=None, kw_only=False, metadata=LARGEST)
    other: Frame | None = field(
        default=None, repr=False, compare=False, metadata=about("right table")
    )

    def planned(self) -> EditSelfJoinRequest | EditJoinRequest:
        found: EditSelfJoinRequest | EditJoinRequest = planned(
            self, EditSelfJoinRequest, EditJoinRequest
        )
        return found
