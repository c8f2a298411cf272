"""Gates: conditions on further columns of both rows of a pair, besides the distance.

A gate compares one value of each row: ``within=`` sets how far two values may be apart,
and ``different=`` that they differ. The decision uses only operations that have the
same result on every machine:

- times are integers, in the finest unit of both tables; their difference is exact;
- numbers are float64, and their difference is rounded to float64;
- a relative tolerance `r` allows ``|b - a| <= r * max(|a|, |b|)``, where the difference
  and the product are rounded to float64.

Values travel with the coordinates of their row, as words. The 64 bits of a value are two
whole numbers below 2**32, and a word is such a number times 2**-600. This is exact, and
so small that two words differ by less than `WORD_TERM`.

A tolerance also makes a coordinate, so that boxes and cells exclude rows that are too
far apart. It is the value times a power of two, such that values within the tolerance
differ by at most a given width. So a pair is also a pair within a slightly larger
threshold, in all coordinates: see `widened`. These pairs are candidates, and the gates
decide them.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.metrics.norms import Array, Norm, add, reach

TIMES, NUMBERS, RELATIVE, UNLIKE = range(4)
"""Kinds of gates."""

OPEN = 2**63 - 1
"""Bound of times without a limit on this side. It is also the largest difference of two
times that is computed, and larger ones count as this one.
"""

WORD_SCALE = 2.0**-600
"""Words are multiplied by this number."""

WORD_TERM = 2.0**-560
"""Two words of a row differ by less than this in a coordinate."""

LEAST_WIDTH = 2.0**-400
"""Widths of tolerances are chosen above this, because their powers would underflow."""

MOST = 2.0**500
"""Coordinates of gates are at most this large, so that no total overflows."""

SMALLEST = 2.0**-1000
"""Relative tolerances compare all numbers below this as equal, to choose candidates."""


class Gate(NamedTuple):
    """A condition on a value `a` of the left row and a value `b` of the right row.

    `kind`: "TIMES" and "NUMBERS" allow ``low <= b - a <= high``, "RELATIVE" allows ``|b
    - a| <= high * max(|a|, |b|)``, "UNLIKE" allows ``a != b``.
    """

    kind: int
    low: float = 0
    high: float = 0

    @property
    def one_sided(self) -> bool:
        """Whether it matters which row is the left one."""
        return self.kind in (TIMES, NUMBERS) and self.low != -self.high

    @property
    def mirrored(self) -> Gate:
        """The gate with left and right exchanged."""
        return self._replace(low=-self.high, high=-self.low) if self.one_sided else self

    @property
    def two_sided(self) -> Gate:
        """The gate that allows a pair if this one allows it in either direction."""
        most = max(abs(self.low), abs(self.high))
        return self._replace(low=-most, high=most) if self.one_sided else self


class Gates(NamedTuple):
    """The gates of a join, and the columns that were added to its tables for them."""

    within: tuple[Hashable, ...] = ()  # the columns with a tolerance
    different: tuple[Hashable, ...] = ()  # the columns that must differ
    rules: tuple[Gate, ...] = ()
    # for each column of `within`: how far values within the tolerance differ in the
    # added coordinate. None: as far as `width_for` says
    widths: tuple[float | None, ...] = ()
    dims: int = 1  # the number of coordinates that `width_for` expects
    # the added columns: a coordinate for each column of `within`, then two columns with
    # the words of each rule
    columns: tuple[str, ...] = ()
    # the columns of the right table that `within` and then `different` name; empty: the
    # same columns
    others: tuple[Hashable, ...] = ()

    @property
    def swapped(self) -> Gates:
        """The same gates, which name the columns of the right table."""
        others, n = self.others or self.conditions, len(self.within)
        return self._replace(
            within=others[:n], different=others[n:], others=self.conditions
        )

    @property
    def conditions(self) -> tuple[Hashable, ...]:
        """The columns of the table that the gates compare."""
        return (*self.within, *self.different)

    @property
    def words(self) -> int:
        """Number of added columns with words."""
        return 2 * len(self.rules)

    def in_words(self) -> str | None:
        """Name the columns for reports; None: there are no gates."""
        pairs = zip(self.conditions, self.others or self.conditions, strict=True)
        names = [repr(a) if a == b else f"{a!r} and {b!r}" for a, b in pairs]
        n = len(self.within)
        named = [f"{name} within a tolerance" for name in names[:n]]
        if self.different:
            named.append(f"different {', '.join(names[n:])}")
        return ", ".join(named) or None

    @property
    def one_sided(self) -> bool:
        """Whether it matters for some gate which row is the left one."""
        return any(rule.one_sided for rule in self.rules)

    def allow(self, left: Array, right: Array) -> Array:
        """Return for pairs of values (n, gates) whether all gates allow them (n,)."""
        return functools.reduce(
            operator.and_,
            [
                allows(rule, left[:, g], right[:, g])
                for g, rule in enumerate(self.rules)
            ],
        )

    @property
    def mirrored(self) -> Gates:
        """The gates with left and right exchanged."""
        return self._replace(rules=tuple(rule.mirrored for rule in self.rules))

    @property
    def two_sided(self) -> Gates:
        """Gates that allow a pair if these allow it in either direction."""
        return self._replace(rules=tuple(rule.two_sided for rule in self.rules))


class Compared(NamedTuple):
    """The first columns of the metric, if their own numbers decide which rows are pairs,
    and not only their coordinates. Their numbers follow as words.
    """

    numbers: int = 0  # how many columns; 0: coordinates decide
    coordinates: int = 0  # how many coordinates of the index stand for them
    box: tuple[float, ...] = ()  # length of each column if it is periodic; 0: open
    # how numbers are compared: see `dask_simjoin.metrics.formulas`
    formula: int = 0


def width_for(norm: Norm, threshold: float, dims: int) -> float:
    """Return how far values within a tolerance should differ in the added coordinate.

    With fewer candidates in space there are more in time. This width has the fewest
    for points that are spread evenly.
    """
    share = 1.0 if norm == math.inf else dims ** (-1 / norm)
    return max(reach(norm, threshold) * share, LEAST_WIDTH)


def scale_for(width: float, tolerance: float) -> float:
    """Return the power of two that values are multiplied by, so that values within a
    tolerance differ by at most `width`. It is 0 for an infinite tolerance.
    """
    if not tolerance:
        return 1.0
    if tolerance == math.inf:
        return 0.0
    wide, near = math.frexp(width), math.frexp(tolerance)
    exponent = wide[1] - near[1] - (wide[0] < near[0])
    return math.ldexp(1.0, min(max(exponent, -1000), 1000))


def widened(norm: Norm, threshold: float, widths: Sequence[float], words: int) -> float:
    """Return the largest total of a pair in all coordinates, with the ones of gates.

    Rounding is monotone, and the coordinates of gates are added last. So no computed
    total of a pair exceeds it.
    """
    total: float = np.float64(threshold)
    with np.errstate(over="ignore"):
        for width in (*widths, *[WORD_TERM] * words):
            total = add(total, width, norm)
    return float(total)


def coordinates(values: Array, scale: float) -> Array:
    """Return the coordinates of numbers or times (n,), float64; NaN stays NaN."""
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float64)
        found = numbers * scale
    return np.where(np.isfinite(numbers), np.clip(found, -MOST, MOST), found)


def logarithms(values: Array) -> Array:
    """Return a coordinate (n,) for relative tolerances of float64 numbers.

    It is like the logarithm to base 2, but linear between powers of two. So it has the
    same result on every machine. Negative numbers have the negative coordinate of their
    absolute value.
    """
    size, exponent = np.frexp(np.maximum(np.abs(values), SMALLEST))
    least = math.frexp(SMALLEST)
    away = (exponent - least[1]) + (2 * size - 2 * least[0])
    return np.where(np.isfinite(values), np.copysign(away, values), values)


def log_tolerance(share: float) -> float:
    """Return how far `logarithms` of two numbers within a relative tolerance differ at
    most.

    The numbers' ratio is at least ``1 - share``. `logarithms` are at most 2 ln 2 times
    as steep as a logarithm to base 2. The margins cover all rounding.
    """
    return -2 * math.log1p(-share) * (1 + 2.0**-30) + 2.0**-30


def words_of(values: Array) -> Array:
    """Convert values (n,), int64 or float64, to two columns of words (n, 2)."""
    bits = values.view(np.uint64)
    halves = bits >> np.uint64(32), bits & np.uint64(2**32 - 1)
    return np.stack([half * WORD_SCALE for half in halves], axis=1)


def values_of(words: Array) -> Array:
    """Convert columns of words (n, 2 * gates) to values (n, gates), int64."""
    halves = (words * (1 / WORD_SCALE)).astype(np.uint64)
    found = (halves[:, ::2] << np.uint64(32)) | halves[:, 1::2]
    return found.copy(order="C").view(np.int64)


def allows(rule: Gate, left: Array, right: Array) -> Array:
    """Return for pairs of values (n,), int64 as in `values_of`, whether a gate allows
    them.
    """
    if rule.kind == UNLIKE:
        return left != right
    if rule.kind == TIMES:
        with np.errstate(over="ignore"):
            apart = right - left
        earlier = right < left
        # the difference overflows if it has the wrong sign
        fits = earlier == (apart < 0)
        apart = np.maximum(apart, -OPEN)
        beyond = (earlier & (rule.low == -OPEN)) | (~earlier & (rule.high == OPEN))
        return np.where(fits, (rule.low <= apart) & (apart <= rule.high), beyond)
    a, b = left.view(np.float64), right.view(np.float64)
    with np.errstate(over="ignore"):
        if rule.kind == NUMBERS:
            apart = b - a
            return (rule.low <= apart) & (apart <= rule.high)
        return np.abs(b - a) <= rule.high * np.maximum(np.abs(a), np.abs(b))
