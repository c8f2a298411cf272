"""Requests of edit joins, checked against the frames they apply to, and their predicate.

With a similarity of p/q, strings of a and b code points match if 1 - distance / max(a, b) >= p/q.  So the
distance is at most (q - p) * max(a, b) // q.  Two empty strings have the distance 0, and match.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dask_simjoin.catalog.frames import HOME, library
from dask_simjoin.errors import TABLES, ColumnError, OptionError, OptionTypeError, in_table
from dask_simjoin.metrics.norms import DType, Frame
from dask_simjoin.request.clusters import OneStays, check_kept_row, with_representative
from dask_simjoin.request.columns import (
    as_names,
    check_column_exists,
    check_columns,
    groups_of,
    has_column,
)
from dask_simjoin.request.messages import shown
from dask_simjoin.request.options import (
    Kept,
    Settings,
    Size,
    Within,
    about,
    current_settings,
    on_cluster,
    parse_size,
)
from dask_simjoin.request.requests import ANTI, HOW, SEMI, How, check_how
from dask_simjoin.request.resolve import check_choices, check_flag, check_one_table, id_dtype, keeping
from dask_simjoin.request.spec import RowSpec
from dask_simjoin.sets.columns import OBJECTS, TEXTS, held_by
from dask_simjoin.sets.predicate import NEVER
from dask_simjoin.sets.requests import check_threshold, without_names


@dataclass(frozen=True)
class EditRule:
    """The largest number of edits between two strings that match, in whole numbers.

    A size is a length plus the tail, the codes that name the string's group (`dask_simjoin.strings.codes`).

    Parameters
    ----------
    k : int or None
        The largest distance.
    similarity : Fraction or None
        The smallest similarity, above 0 and up to 1; given instead of `k`.
    transpositions : bool
        Whether a transposition of adjacent code points is one edit.
    tail : int
        Number of codes after each string.
    """

    k: int | None
    similarity: Fraction | None = None
    transpositions: bool = False
    tail: int = 1

    def limit(self, length: int) -> int:
        """Return the largest distance of a pair whose longer string has this length."""
        if self.similarity is None:
            assert self.k is not None
            return min(self.k, length)  # no distance is larger
        p, q = self.similarity.numerator, self.similarity.denominator
        return (q - p) * length // q

    def longest(self, length: int) -> int | None:
        """Return the largest length that a string of this length may match."""
        if self.similarity is None:
            assert self.k is not None
            return length + self.k
        return length * self.similarity.denominator // self.similarity.numerator

    def limits(self, longest: int) -> np.ndarray:
        """Return `limit` for each length (longest + 1,), int64."""
        if self.similarity is None:
            assert self.k is not None
            return np.minimum(np.arange(longest + 1), min(self.k, longest))
        p, q = self.similarity.numerator, self.similarity.denominator
        if q * (longest + 1) >= 1 << 63:
            return np.array([self.limit(length) for length in range(longest + 1)], np.int64)
        found: np.ndarray = (q - p) * np.arange(longest + 1) // q
        return found

    def smallest(self, size: int) -> int:
        """Return the smallest size of a string that may match one of this size."""
        length = max(size - self.tail, 0)
        return max(length - self.limit(length), 0) + self.tail

    def largest(self, size: int) -> int | None:
        """Return the largest size of a string that may match one of this size."""
        found = self.longest(max(size - self.tail, 0))
        return None if found is None else found + self.tail

    def need(self, a: int, b: int) -> int:
        """Return 0: unlike sets, matching strings need no overlap."""
        return 0

    def beyond(self, a: int, b: int) -> int:
        """Return a number that no overlap reaches: no string is too near."""
        return NEVER

    def score(self, a: np.ndarray, b: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Return the distances of pairs (pairs,), float64."""
        return found.astype(np.float64)

    def score_of_equals(self, sizes: np.ndarray) -> np.ndarray:
        """Return the distances of equal strings (n,), float64."""
        return np.zeros(len(sizes))


PLAIN, GROUPED = 1, 4
"""Count of codes after each string: one that ends it, or four with the 64 bits of its group's number."""


@dataclass(frozen=True)
class EditSpec(RowSpec):
    """The options of an edit join; see also `RowSpec`.

    Attributes
    ----------
    rule : EditRule
        The predicate.
    given : str
        The option that limits pairs, in messages.
    by : tuple
        Columns that must be equal in both rows.
    code : str or None
        The column with the numbers of groups.
    return_distance : bool
    """

    on: tuple[Hashable, ...]
    rule: EditRule
    given: str
    by: tuple[Hashable, ...] = ()
    code: str | None = None
    return_distance: bool = False
    id: Hashable | None = None
    id_dtype: DType = None
    keep: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()
    blocksize: int | None = None
    settings: Settings = field(default_factory=current_settings)
    library: str = HOME
    other: EditSpec | None = None

    allow_missing: ClassVar[bool] = False
    empty_match: ClassVar[bool] = False
    method: ClassVar[str] = "auto"

    @property
    def request(self) -> str:
        """The option that limits pairs, for messages."""
        return self.given

    @property
    def score(self) -> str | None:
        """The column of the pairs' distances."""
        return "distance" if self.return_distance else None

    @property
    def columns(self) -> list[Hashable]:
        """The columns of the frame that the join reads."""
        return list(dict.fromkeys([*super().columns, *([] if self.code is None else [self.code])]))


def check_k(value: Any) -> int:
    """Return a largest number of edits; refuse other values."""
    # NumPy counts timedelta64 among its integers
    is_number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_, np.timedelta64))
    if not is_number:
        raise OptionTypeError(f"k={shown(value)} is not a number; use a whole number of edits, such as 2.")
    if not 0 <= value < math.inf or value != value // 1:
        such = f" (or similarity={shown(value)})" if 0 < value < 1 else ""
        raise OptionError(
            f"k={shown(value)} is not allowed; use a whole number of edits of at least 0, such as 2{such}."
        )
    return int(value)


def rule_of(request: Any, called: str) -> tuple[EditRule, str]:
    """Return the predicate of a request without its groups, and the option that gave it."""
    k, similarity = request.k, request.similarity
    if (k is None) == (similarity is None):
        which = "are both given; use one of them" if k is not None else "are both missing; use one of them"
        raise OptionTypeError(f"k= and similarity= {which}: {called}(..., k=2), or similarity=0.9.")
    swaps = check_flag("transpositions", request.transpositions)
    if similarity is None:
        return EditRule(check_k(k), None, swaps), f"k={shown(k)}"
    return EditRule(
        None, check_threshold(similarity, "jaccard", "similarity"), swaps
    ), f"similarity={shown(similarity)}"


def check_texts(meta: Frame, on: object) -> Hashable:
    """Return the column of texts that `on` names; refuse other values."""
    names = [on] if isinstance(on, tuple) and has_column(meta.columns, on) else as_names(on)
    if len(names) != 1 or on is None:
        raise ColumnError(
            f"on={shown(on)} names {len(names) if on is not None else 'no'} columns; name the one that holds "
            "texts."
        )
    (name,) = names
    check_column_exists("on", name, [meta])
    if held_by(meta[name].dtype) not in (TEXTS, OBJECTS):
        raise ColumnError(
            f"on={name!r} is of dtype {meta[name].dtype}, which holds no texts. Use a column of strings, for "
            f"example df[{name!r}].astype('str')."
        )
    return name


def resolve(request: Any, meta: Frame, on: object, id: Hashable | None, called: str) -> EditSpec:
    """Check the options of a request, except `keep`, for one frame like its empty example `meta`."""
    settings, name = current_settings(on_cluster()), library(meta)
    if name != HOME:
        raise OptionError(
            f"Strings are joined on the CPU, and the frame is of {name!r}; use frame.to_pandas(), or "
            "ddf.to_backend('pandas')."
        )
    check_choices(request)
    rule, given = rule_of(request, called)
    by, code = groups_of(request.by)
    if by:
        rule = replace(rule, tail=GROUPED)
    blocksize = None if request.blocksize is None else parse_size("blocksize", request.blocksize)
    check_columns(meta)
    dtype = id_dtype(meta, id)
    column = check_texts(meta, on)
    flag = check_flag("return_distance", getattr(request, "return_distance", False))
    spec = EditSpec(
        (column,), rule, given, by, code[0] if code else None, flag, id=id, id_dtype=dtype,
        blocksize=blocksize, settings=settings, library=name,
    )  # fmt: skip
    return spec if request.names_rows else without_names(spec)


def resolve_two(request: Any, left: Frame, right: Frame, called: str) -> EditSpec:
    """Check the options of a request, except `keep`, for two frames like these empty examples."""
    own = request.left_on, request.right_on
    ids = request.left_id, request.right_id
    if request.on is not None and own != (None, None):
        raise OptionError("on= names the column of both tables; use it, or left_on= and right_on=, not both.")
    if request.on is None and None in own:
        which = "on" if own == (None, None) else "left_on" if own[0] is None else "right_on"
        raise OptionError(f"{which}= is missing; name the columns of both tables, or use on= for both.")
    specs = []
    for which, table, on, id in zip(TABLES, (left, right), own, ids, strict=True):
        with in_table(which):
            name = request.id if id is None else id
            specs.append(resolve(request, table, request.on if on is None else on, name, called))
    return replace(specs[0], other=specs[1])


Threshold = float | Fraction | Decimal
"""Taken as the exact fraction of its text: .9 is 9/10."""

ON = about("column of texts")
LARGEST = about("largest number of edits")


@dataclass(frozen=True, kw_only=True)
class EditOptions(Within):
    """Options for the predicate.

    Attributes
    ----------
    names_rows : bool
        Whether the result names rows by their ids; otherwise ids are not read, so they may repeat.
    groups_need_bound : bool
        False, because numbers of groups are compared directly, not used as coordinates.
    """

    names_rows: ClassVar[bool] = True
    groups_need_bound: ClassVar[bool] = False

    similarity: Threshold | None = field(
        default=None, metadata=about("smallest similarity, 1 - edits / longer length, instead of k")
    )
    transpositions: bool = field(
        default=False, metadata=about("count a swap of adjacent characters as one edit")
    )
    blocksize: Size = field(default=None, metadata=about("size of a block and of a partition", unit="bytes"))


@dataclass(frozen=True, kw_only=True)
class OneTextTable(EditOptions):
    """Options of requests about the rows of one table."""

    on: Hashable = field(kw_only=False, metadata=ON)
    k: int | None = field(default=None, kw_only=False, metadata=LARGEST)


@dataclass(frozen=True, kw_only=True)
class EditSelfJoinRequest(OneTextTable, Kept):
    """Ask for the pairs of one table whose texts are within a distance."""

    id: Hashable | None = field(default=None, metadata=about("column of unique row ids"))
    return_distance: bool = field(default=False, metadata=about("add the distance of each pair"))

    def spec(self, meta: Frame) -> EditSpec:
        """Resolve it for frames like `meta`."""
        return keeping(self, resolve(self, meta, self.on, self.id, "edit_self_join"), meta)


@dataclass(frozen=True, kw_only=True)
class CountEditPairsRequest(OneTextTable):
    """Ask for the number of pairs of one table whose texts are within a distance."""

    names_rows: ClassVar[bool] = False

    def spec(self, meta: Frame) -> EditSpec:
        """Resolve it for frames like `meta`."""
        return resolve(self, meta, self.on, None, "count_edit_pairs")


@dataclass(frozen=True, kw_only=True)
class EditNeighborCountsRequest(CountEditPairsRequest):
    """Ask for the number of rows that each row's text is near."""


@dataclass(frozen=True, kw_only=True)
class EditNearDuplicatedRequest(OneStays, OneTextTable):
    """Ask which rows' texts are near the text of a row that stays."""

    def spec(self, meta: Frame) -> EditSpec:
        """Resolve it for frames like `meta`."""
        spec = resolve(self, meta, self.on, None, "edit_near_duplicated")
        return with_representative(check_kept_row(meta, self.keep), spec)


@dataclass(frozen=True, kw_only=True)
class EditProfileRequest(CountEditPairsRequest):
    """Ask for a profile of an edit self-join."""


@dataclass(frozen=True, kw_only=True)
class TwoTextTables(EditOptions, Kept):
    """Options of requests about two tables, whose columns may have different names."""

    left_on: Hashable | None = field(default=None, metadata=about("column of texts of the left table"))
    right_on: Hashable | None = field(default=None, metadata=about("column of texts of the right table"))
    id: Hashable | None = field(default=None, metadata=about("column of unique row ids"))
    left_id: Hashable | None = field(default=None, metadata=about("column of unique ids of the left table"))
    right_id: Hashable | None = field(default=None, metadata=about("column of unique ids of the right table"))
    return_distance: bool = field(default=False, metadata=about("add the distance of each pair"))


@dataclass(frozen=True, kw_only=True)
class EditJoinRequest(TwoTextTables):
    """Ask for the pairs of two tables whose texts are near, or for left rows in some pair or in none."""

    other: Frame = field(kw_only=False, repr=False, compare=False, metadata=about("right table"))
    on: Hashable | None = field(default=None, kw_only=False, metadata=ON)
    k: int | None = field(default=None, kw_only=False, metadata=LARGEST)
    how: How = field(default="inner", metadata=about("which rows the result has", choices=HOW))

    def spec(self, left: Frame, right: Frame) -> EditSpec:
        """Resolve it for frames like `left` and `right`."""
        check_how(self.how, "other.simjoin.edit_join(frame, on, k, how='left')")
        spec = keeping(self, resolve_two(self, left, right, "edit_join"), left, right)
        return without_names(spec) if self.how in (SEMI, ANTI) else spec


@dataclass(frozen=True, kw_only=True)
class EditPlanRequest(TwoTextTables):
    """Ask for the plan of an edit self-join, or of a join of two tables."""

    on: Hashable | None = field(default=None, kw_only=False, metadata=ON)
    k: int | None = field(default=None, kw_only=False, metadata=LARGEST)
    other: Frame | None = field(default=None, repr=False, compare=False, metadata=about("right table"))

    def planned(self) -> EditSelfJoinRequest | EditJoinRequest:
        """The request to plan."""
        kind: type[EditSelfJoinRequest] | type[EditJoinRequest] = (
            EditSelfJoinRequest if self.other is None else EditJoinRequest
        )
        if self.other is None:
            check_one_table(self)
        own = {option.name for option in fields(self)}
        shared: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(kind) if f.name in own}
        return kind(**shared)
