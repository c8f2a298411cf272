"""Tokenizers: how texts become sets of tokens.  Each is frozen and small, and may be kept in a plan.

A text without any token is an empty set, which is not the same as a missing text.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.errors import OptionError, OptionTypeError, TokenError
from dask_simjoin.request.messages import NO_UNICODE, did_you_mean, is_unicode, shown
from dask_simjoin.sets.texts import (
    NO_WORDS,
    SPACES,
    byte_kinds,
    bytes_of,
    code_points,
    grams_of,
    split_at_bytes,
)
from dask_simjoin.sets.token_ids import Occurrences, of_integers, of_strings

MAX_Q = 32
"""Characters of a q-gram, at most."""


class Tokenizer(Protocol):
    """Splits texts; the fields of its class are its options."""

    def split(self, texts: Any) -> Occurrences:
        """Split an Arrow array of strings, none of them missing, into tokens."""


def _of_lists(lists: Any) -> Occurrences:
    """Number the strings between separators, in an Arrow array of lists that begins at its first.

    Empty strings lie between two separators in a row, and at the ends of texts: they are left out.
    """
    offsets, codes, tokens = of_strings(np.asarray(lists.offsets), lists.values)
    empty = pc.index(tokens, pa.scalar("", tokens.type)).as_py()
    kept = codes != empty
    before = np.concatenate([[0], np.cumsum(kept)])
    codes = codes[kept]
    if empty >= 0:
        codes -= codes > empty
    return Occurrences(before[offsets], codes, tokens.filter(pc.not_equal(tokens, "")))


@dataclass(frozen=True)
class Whitespace:
    """Split texts at white space, as ``str.split()`` does: no token is empty."""

    def split(self, texts: Any) -> Occurrences:
        """Split texts; see `Tokenizer`."""
        return split_at_bytes(*bytes_of(texts), SPACES)


@dataclass(frozen=True)
class Delimiter:
    """Split texts at a delimiter; what lies between is kept as it is, unless it is empty.

    So ``"a,,b,"`` has the tokens "a" and "b" only.  Use ``Custom(lambda text: text.split(","))`` if the empty
    string is to be a token.

    Attributes
    ----------
    delimiter : str
    """

    delimiter: str

    def __post_init__(self) -> None:
        if not isinstance(self.delimiter, str):
            raise OptionTypeError(
                f"Delimiter(delimiter={shown(self.delimiter)}) is not text; use such as Delimiter(',')."
            )
        if not self.delimiter:
            raise OptionError(
                "Delimiter(delimiter='') splits nothing; use such as Delimiter(','), or QGrams(1, "
                "padding=False) for single characters."
            )

    def split(self, texts: Any) -> Occurrences:
        """Split texts; see `Tokenizer`."""
        one = self.delimiter.encode()
        if len(one) == 1:
            return split_at_bytes(*bytes_of(texts), byte_kinds(one))
        return _of_lists(pc.split_pattern(texts, pattern=self.delimiter))


@dataclass(frozen=True)
class Words:
    """Take words: letters, marks and digits of Unicode that follow each other; no word is empty.

    Attributes
    ----------
    lower : bool
        Whether letters become lower case first.
    """

    lower: bool = False

    def __post_init__(self) -> None:
        _check_flag("Words(lower", self.lower)

    def split(self, texts: Any) -> Occurrences:
        """Split texts; see `Tokenizer`."""
        texts = pc.utf8_lower(texts) if self.lower else texts
        data, ends = bytes_of(texts)
        if data.max(initial=0) < 0x80:
            return split_at_bytes(data, ends, NO_WORDS)
        return _of_lists(pc.split_pattern_regex(texts, pattern=r"[^\p{L}\p{M}\p{N}]+"))


@dataclass(frozen=True)
class QGrams:
    """Take all q characters that follow each other; an empty text has none.

    Attributes
    ----------
    q : int
        Characters of each gram, 1 to 32.
    padding : bool
        Whether q - 1 times "#" is put before a text first, and "$" after it, so that each character is in q
        grams.  Without it a text of fewer characters has no gram.
    lower : bool
        Whether letters become lower case first.
    """

    q: int
    padding: bool = True
    lower: bool = False

    PADS: ClassVar[tuple[str, str]] = ("#", "$")

    def __post_init__(self) -> None:
        whole = isinstance(self.q, numbers.Integral) and not isinstance(self.q, (bool, np.timedelta64))
        if not whole or not 1 <= self.q <= MAX_Q:
            raise OptionError(
                f"QGrams(q={shown(self.q)}) is not allowed; use a whole number from 1 to {MAX_Q}."
            )
        _check_flag("QGrams(padding", self.padding)
        _check_flag("QGrams(lower", self.lower)

    def split(self, texts: Any) -> Occurrences:
        """Split texts; see `Tokenizer`."""
        texts = pc.utf8_lower(texts) if self.lower else texts
        pads = (ord(self.PADS[0]), ord(self.PADS[1])) if self.padding else None
        offsets, points = code_points(texts, int(self.q) - 1, pads)
        return grams_of(offsets, points, int(self.q))


@dataclass(frozen=True)
class Custom:
    """Take what a function gives of each text: strings or integers; the empty string is one of them.

    Attributes
    ----------
    function : callable
        Of one text; it must give the same each time, and workers must be able to unpickle it.
    """

    function: Callable[[str], Iterable[Any]]

    def split(self, texts: Any) -> Occurrences:
        """Split texts; see `Tokenizer`."""
        found = [self._tokens(text) for text in texts.to_pylist()]
        offsets = np.cumsum([0, *map(len, found)])
        flat = list(itertools.chain.from_iterable(found))
        return of_values(offsets, flat, f"tokenizer={shown(self.function)} gave")

    def _tokens(self, text: str) -> list[Any]:
        found = self.function(text)
        if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
            raise TokenError(
                f"tokenizer={shown(self.function)} gave {shown(found)} of {shown(text)}, which is no list; "
                "it must give a list of strings or integers."
            )
        return list(found)


def of_values(offsets: np.ndarray, flat: list[Any], what: str) -> Occurrences:
    """Number values of Python: all strings, or all integers; `what`: who gave them, in messages."""
    kinds = set(map(type, flat))
    if all(issubclass(kind, str) for kind in kinds):
        try:
            return of_strings(offsets, pa.array(flat, pa.large_string()))
        except UnicodeEncodeError:
            bad = next(text for text in flat if not is_unicode(text))
            raise TokenError(f"{what} the token {shown(bad)}, {NO_UNICODE}.") from None
    # asking each of Python's own integers takes ten times as long as copying them
    others = [] if kinds == {int} else [value for value in flat if not _is_whole(value)]
    if others:
        raise TokenError(
            f"{what} the token {shown(others[0])} among others; tokens are all strings or all integers: "
            "convert them, for example with str()."
        )
    return of_integers(offsets, whole_numbers(flat, kinds == {int}))


def whole_numbers(flat: list[Any], plain: bool = False) -> np.ndarray:
    """Return integers as int64; refuses those that are none; `plain`: all are of Python's own type."""
    try:
        return np.fromiter(flat if plain else map(int, flat), np.int64, len(flat))
    except OverflowError:
        far = next(value for value in flat if not -(2**63) <= int(value) < 2**63)
        raise TokenError(
            f"The token {shown(far)} is no integer of 64 bits; convert tokens to strings, for example with "
            "str()."
        ) from None


def _is_whole(value: object) -> bool:
    # NumPy counts timedelta64 among its integers
    return isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.timedelta64))


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise OptionTypeError(f"{name}={shown(value)}) is not allowed; use True or False.")


NAMED: dict[str, Tokenizer] = {"whitespace": Whitespace(), "words": Words()}
"""What names alone stand for."""

WITH_VALUE: dict[str, Callable[[Any], Tokenizer]] = {"delimiter": Delimiter, "qgrams": QGrams}
"""What names with a value stand for, such as ("delimiter", ",")."""

KINDS = (Whitespace, Delimiter, Words, QGrams, Custom)

ALLOWED = "'whitespace', 'words', ('delimiter', ','), ('qgrams', 3), a function, or one of dask_simjoin.sets"


def tokenizer_of(asked: object) -> Tokenizer | None:
    """Return the tokenizer that was asked for; refuses what is none.  None: columns hold lists."""
    if asked is None or isinstance(asked, KINDS):
        return asked
    if isinstance(asked, type):
        raise OptionTypeError(f"tokenizer={asked.__name__} is a class; use one with its options: {ALLOWED}.")
    if callable(asked):
        return Custom(asked)
    if isinstance(asked, (tuple, list)) and len(asked) == 2 and isinstance(asked[0], str):
        name, value = asked
        if name in WITH_VALUE:
            return WITH_VALUE[name](value)
    names = [*NAMED, *WITH_VALUE]
    if isinstance(asked, str) and asked in NAMED:
        return NAMED[asked]
    if isinstance(asked, str) and asked in WITH_VALUE:
        raise OptionError(
            f"tokenizer={asked!r} needs a value; use ({asked!r}, {'3' if asked == 'qgrams' else repr(',')})."
        )
    kind = OptionError if isinstance(asked, (str, tuple, list)) else OptionTypeError
    name = asked[0] if isinstance(asked, (tuple, list)) and asked else asked
    raise kind(f"tokenizer={shown(asked)} is not allowed; use {ALLOWED}{did_you_mean(name, names)}.")
