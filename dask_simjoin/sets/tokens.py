"""Tokenizers split texts into sets of tokens.  They are small and frozen, so plans can hold them.

A text without tokens is an empty set, which differs from a missing text.
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
"""Largest number of characters of a q-gram."""


class Tokenizer(Protocol):
    """Splits texts; the fields of its class are its options."""

    def split(self, texts: Any) -> Occurrences:
        """Split an Arrow array of strings, none of them missing, into tokens."""


def _of_lists(lists: Any) -> Occurrences:
    """Number the strings between separators; `lists` is an Arrow array of lists without an offset.

    Empty strings between adjacent separators, and at the ends of texts, are left out.
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
                f"Delimiter(delimiter={shown(self.delimiter)}) is not a text; use one, as in Delimiter(',')."
            )
        if not self.delimiter:
            raise OptionError(
                "Delimiter(delimiter='') splits nothing; use a text, such as Delimiter(','), or QGrams(1, "
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
    """Take words, which are runs of Unicode letters, marks and digits; no word is empty.

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
    """Take all runs of q characters; an empty text has none.

    Attributes
    ----------
    q : int
        Characters of each gram, 1 to 32.
    padding : bool
        Whether to put q - 1 times "#" before a text, and "$" after it, so that each character is in q grams.
        Without padding, a text of fewer than q characters has no gram.
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
    """Take the tokens that a function returns for each text: strings or integers; "" is also a token.

    Attributes
    ----------
    function : callable
        Takes a text.  It must be deterministic, and workers must be able to unpickle it.
    """

    function: Callable[[str], Iterable[Any]]

    def split(self, texts: Any) -> Occurrences:
        """Split texts; see `Tokenizer`."""
        found = [self._tokens(text) for text in texts.to_pylist()]
        offsets = np.cumsum([0, *map(len, found)])
        flat = list(itertools.chain.from_iterable(found))
        return of_values(offsets, flat, f"tokenizer={shown(self.function)} returned")

    def _tokens(self, text: str) -> list[Any]:
        found = self.function(text)
        if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
            raise TokenError(
                f"tokenizer={shown(self.function)} returned {shown(found)} for {shown(text)}, which is not a "
                "list. It must return a list of strings or integers."
            )
        return list(found)


def of_values(offsets: np.ndarray, flat: list[Any], what: str) -> Occurrences:
    """Number Python values, all strings or all integers; `what`: beginning of messages about them."""
    kinds = set(map(type, flat))
    if all(issubclass(kind, str) for kind in kinds):
        try:
            return of_strings(offsets, pa.array(flat, pa.large_string()))
        except UnicodeEncodeError:
            bad = next(text for text in flat if not is_unicode(text))
            raise TokenError(f"{what} the token {shown(bad)}, {NO_UNICODE}.") from None
    # checking each Python integer takes ten times as long as copying it
    others = [] if kinds == {int} else [value for value in flat if not _is_whole(value)]
    if others:
        raise TokenError(
            f"{what} the token {shown(others[0])} among others. Tokens must be all strings or all integers: "
            "convert them, for example with str()."
        )
    return of_integers(offsets, whole_numbers(flat, kinds == {int}))


def whole_numbers(flat: list[Any], plain: bool = False) -> np.ndarray:
    """Return integers as int64; refuse integers that do not fit.  `plain`: all have Python's type int."""
    try:
        return np.fromiter(flat if plain else map(int, flat), np.int64, len(flat))
    except OverflowError:
        far = next(value for value in flat if not -(2**63) <= int(value) < 2**63)
        raise TokenError(
            f"The token {shown(far)} is not an integer of 64 bits; convert tokens to strings, for example "
            "with str()."
        ) from None


def _is_whole(value: object) -> bool:
    # NumPy counts timedelta64 among its integers
    return isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.timedelta64))


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise OptionTypeError(f"{name}={shown(value)}) is not allowed; use True or False.")


NAMED: dict[str, Tokenizer] = {"whitespace": Whitespace(), "words": Words()}
"""Tokenizers by name."""

WITH_VALUE: dict[str, Callable[[Any], Tokenizer]] = {"delimiter": Delimiter, "qgrams": QGrams}
"""Tokenizers by name with a value, such as ("delimiter", ",")."""

KINDS = (Whitespace, Delimiter, Words, QGrams, Custom)

ALLOWED = "'whitespace', 'words', ('delimiter', ','), ('qgrams', 3), a function, or one of dask_simjoin.sets"


def tokenizer_of(value: object) -> Tokenizer | None:
    """Return the tokenizer for an option; refuse other values.  None: columns hold lists."""
    if value is None or isinstance(value, KINDS):
        return value
    if isinstance(value, type):
        raise OptionTypeError(f"tokenizer={value.__name__} is a class; use an object of it, or {ALLOWED}.")
    if callable(value):
        return Custom(value)
    if isinstance(value, (tuple, list)) and len(value) == 2 and isinstance(value[0], str):
        name, option = value
        if name in WITH_VALUE:
            return WITH_VALUE[name](option)
    names = [*NAMED, *WITH_VALUE]
    if isinstance(value, str) and value in NAMED:
        return NAMED[value]
    if isinstance(value, str) and value in WITH_VALUE:
        raise OptionError(
            f"tokenizer={value!r} needs a value; use ({value!r}, {'3' if value == 'qgrams' else repr(',')})."
        )
    kind = OptionError if isinstance(value, (str, tuple, list)) else OptionTypeError
    name = value[0] if isinstance(value, (tuple, list)) and value else value
    raise kind(f"tokenizer={shown(value)} is not allowed; use {ALLOWED}{did_you_mean(name, names)}.")
