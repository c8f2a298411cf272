"""Define the tokenizers, which split texts into sets of tokens. Each call splits many
texts.

Tokenizers are small and do not change, so plans can contain them. A text without tokens
gives an empty set; a missing text gives no set.
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

from dask_simjoin.engine.base import splitting_kernels
from dask_simjoin.errors import OptionError, OptionTypeError, TokenError
from dask_simjoin.request.messages import NO_UNICODE, did_you_mean, is_unicode, shown
from dask_simjoin.sets.token_ids import (
    Occurrences,
    numbered_integers,
    of_integers,
    of_strings,
)
from dask_simjoin.sizes import BATCH


def byte_kinds(separators: bytes, leads: bytes = b"") -> np.ndarray:
    """Return the kind of each byte (256,), uint8.

    `leads`: the first bytes of white space of several bytes.
    """
    kinds = np.zeros(256, np.uint8)
    kinds[list(separators)] = 1
    kinds[list(leads)] = 2
    return kinds


SPACES = byte_kinds(b"\t\n\v\f\r\x1c\x1d\x1e\x1f ", b"\xc2\xe1\xe2\xe3")
"""Kinds of bytes to split texts at white space, as `str.split` of Python does."""

NO_WORDS = byte_kinds(bytes(c for c in range(128) if not chr(c).isalnum()))
"""Kinds of bytes to split texts at each ASCII character that is neither a letter nor a
digit.
"""


def bytes_of(texts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of an Arrow array of large strings, and the bounds of the
    texts (n + 1,).
    """
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    ends = np.frombuffer(offsets, np.int64)[
        texts.offset : texts.offset + len(texts) + 1
    ]
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]], ends - ends[0]


def split_at_bytes(
    data: np.ndarray, ends: np.ndarray, kinds: np.ndarray
) -> Occurrences:
    """Split texts at certain bytes, and assign a number to each token. `data`, `ends`:
    see `bytes_of`. `kinds`: see `byte_kinds`.
    """
    texts = len(ends) - 1
    max_tokens = (len(data) + texts) // 2 + 1
    keys, pool = np.empty(max_tokens, np.uint64), np.empty(len(data), np.uint8)
    pool_ends, codes = (
        np.zeros(max_tokens + 1, np.int64),
        np.empty(max_tokens, np.int32),
    )
    offsets, done = np.zeros(texts + 1, np.int64), np.zeros(4, np.int64)
    # `number_tokens` looks up 32 tokens as a group
    heads, hashed = np.empty((32, 3), np.int64), np.empty(32, np.uint64)
    size, number_tokens = 4096, splitting_kernels().number_tokens
    out = keys, pool, pool_ends, codes, offsets, heads, hashed, done
    while not number_tokens(data, ends, kinds, np.full(size, -1, np.int32), *out):
        size *= 4
    _, _, number, differ = done.tolist()
    if not differ:
        return Occurrences(offsets, codes[:0].copy(), None)
    used = pool_ends[: differ + 1].copy()
    buffers = [None, pa.py_buffer(used), pa.py_buffer(pool[: used[-1]].tobytes())]
    tokens = pa.LargeStringArray.from_buffers(differ, buffers[1], buffers[2])
    return Occurrences(offsets, codes[:number].copy(), tokens)


def code_points(
    texts: Any, pad: int, pads: tuple[int, int] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of the texts (n + 1,), and the characters of all texts as code
    points.

    `pads`: the characters to insert `pad` times before and after each nonempty text;
    None: insert nothing.
    """
    texts = pc.cast(texts, pa.large_string())
    sizes = pc.utf8_length(texts).to_numpy(zero_copy_only=False).astype(np.int64)
    points = _points(texts)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if pads is None or not pad:
        return offsets, points
    padded = np.where(sizes > 0, sizes + 2 * pad, 0)
    ends = np.cumsum(padded)
    found = np.full(int(ends[-1]) if len(ends) else 0, pads[0], np.uint32)
    begins = (ends - padded)[sizes > 0]
    own = sizes[sizes > 0]
    found[
        np.repeat(begins + pad - offsets[:-1][sizes > 0], own) + np.arange(len(points))
    ] = points
    tails = (begins + pad + own)[:, None] + np.arange(pad)
    found[tails.ravel()] = pads[1]
    return np.concatenate([[0], ends]), found


def _points(texts: Any) -> np.ndarray:
    data, _ = bytes_of(texts)
    if not (data & 0x80).any():
        return data.astype(np.uint32)
    return np.frombuffer(str(data.data, "utf-8").encode("utf-32-le"), np.uint32)


def grams_of(offsets: np.ndarray, points: np.ndarray, q: int) -> Occurrences:
    sizes = np.diff(offsets)
    grams = np.maximum(sizes - (q - 1), 0)
    ends = np.concatenate([[0], np.cumsum(grams)])
    if not ends[-1]:
        return Occurrences(ends, np.zeros(0, np.int32), None)
    bits = int(points.max()).bit_length()
    if bits * q < 64:
        codes, firsts = _numbered(offsets, points, q, bits, int(ends[-1]))
        return Occurrences(ends, codes, _written(points, firsts, q))
    starts = np.repeat(offsets[:-1] - ends[:-1], grams) + np.arange(ends[-1])
    letters, alphabet = numbered_integers(points)
    base, above = len(alphabet), len(alphabet)
    numbers = letters.astype(np.int64)
    for k in range(1, q):
        # replace the numbers by consecutive ones before a step exceeds int64
        if above * base >= 2**62:
            numbers, some = numbered_integers(numbers)
            numbers, above = numbers.astype(np.int64), len(some)
        # a q-gram that crosses the end of a text also gets a number here, but it is
        # never read
        numbers[: len(numbers) - 1] = numbers[: len(numbers) - 1] * base + letters[k:]
        numbers = numbers[: len(numbers) - 1]
        above *= base
    codes, kinds = numbered_integers(numbers[starts])
    one = np.empty(len(kinds), np.int64)
    one[codes] = starts
    return Occurrences(ends, codes, _written(points, one, q))


def _numbered(
    offsets: np.ndarray, points: np.ndarray, q: int, bits: int, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Assign a number to each q-gram. Return the numbers, and where each distinct
    q-gram occurs first.

    `number`: how many q-grams the texts have. The characters of a q-gram have `bits`
    bits each. Together they must fit in one uint64.
    """
    codes, keys, firsts = (
        np.empty(number, np.int32),
        np.empty(number, np.uint64),
        np.empty(number, np.int64),
    )
    ends, done = np.zeros(len(offsets), np.int64), np.zeros(4, np.int64)
    offsets, points = np.asarray(offsets, np.int64), np.require(points, np.uint32, "W")
    size, number_grams = 4096, splitting_kernels().number_grams
    while not number_grams(
        points,
        offsets,
        q,
        bits,
        np.full(size, -1, np.int32),
        keys,
        firsts,
        codes,
        ends,
        done,
    ):
        size *= 4
    return codes, firsts[: done[3]].copy()


def _written(points: np.ndarray, places: np.ndarray, q: int) -> Any:
    """Return the q-gram at each position as an Arrow string. Strings are made in
    batches to limit memory.
    """
    some = max(1, BATCH // q)
    steps = range(0, len(places), some)
    return pa.concat_arrays(
        [_strings(points[places[at : at + some, None] + np.arange(q)]) for at in steps]
    )


def _strings(points: np.ndarray) -> Any:
    """Convert code points to Arrow strings. Each row of `points` (n, q) gives one
    string.
    """
    widths = (
        1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    )
    ends = np.concatenate([[0], np.cumsum(widths.sum(1))])
    data = (
        np.ascontiguousarray(points.astype("<u4"))
        .tobytes()
        .decode("utf-32-le")
        .encode()
    )
    buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(data)]
    return pa.LargeStringArray.from_buffers(len(points), buffers[1], buffers[2])


MAX_Q = 32
"""A q-gram has at most this many characters."""


class Tokenizer(Protocol):
    """Splits texts into tokens. The fields of a subclass are its options."""

    def split(self, texts: Any) -> Occurrences:
        """Split the texts in an Arrow array of strings, which has no missing values."""


def _of_lists(lists: Any) -> Occurrences:
    """Assign a number to each nonempty string in Arrow lists. The Arrow array must not
    be a slice.
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
    """Split texts at white space, as ``str.split()`` does."""

    def split(self, texts: Any) -> Occurrences:
        """Split texts; see `Tokenizer`."""
        return split_at_bytes(*bytes_of(texts), SPACES)


@dataclass(frozen=True)
class Delimiter:
    """Split texts at a delimiter; spaces around it are kept, and empty tokens are
    dropped.

    So ``"a,,b,"`` has the tokens "a" and "b" only. To keep empty tokens, use
    ``Custom(lambda text: text.split(","))``.

    Attributes
    ----------
    delimiter : str
    """

    delimiter: str

    def __post_init__(self) -> None:
        if not isinstance(self.delimiter, str):
            raise OptionTypeError(
                f"Delimiter(delimiter={shown(self.delimiter)}) is not text; use a text, "
                "as in Delimiter(',')."
            )
        if not self.delimiter:
            raise OptionError(
                "Delimiter(delimiter='') splits nothing; use a text, such as "
                "Delimiter(','), or QGrams(1, "
                "padding=False) for single characters."
            )

    def split(self, texts: Any) -> Occurrences:
        """Split texts; see `Tokenizer`."""
        one = self.delimiter.encode()
        if len(one) == 1:
            return split_at_bytes(*bytes_of(texts), byte_kinds(one))
        return _of_lists(pc.split_pattern(texts, pattern=self.delimiter))


SAME_CAPITAL = {
    chr(code): chr(code).casefold()
    for code in (
        *(0xB5, 0x17F, 0x345, 0x3C2, 0x3D0, 0x3D1, 0x3D5, 0x3D6, 0x3F0, 0x3F1, 0x3F5),
        *range(0x1C80, 0x1C89),
        *(0x1E9B, 0x1FBE),
    )
}
"""Lower-case letter, such as the final sigma -> the lower-case form of its capital
letter.
"""

ODD_LETTERS = f"[{''.join(SAME_CAPITAL)}]"


def lowered(texts: Any) -> Any:
    """Return Arrow texts in lower case, such that letters with the same capital letter
    become one.
    """
    texts = pc.utf8_lower(texts)
    data, _ = bytes_of(texts)
    if data.max(initial=0) < 0x80:
        return texts
    if not pc.any(pc.match_substring_regex(texts, ODD_LETTERS)).as_py():
        return texts
    for letter, other in SAME_CAPITAL.items():
        if pc.any(pc.match_substring(texts, letter)).as_py():
            texts = pc.replace_substring(texts, letter, other)
    return texts


@dataclass(frozen=True)
class Words:
    """Take words: runs of Unicode letters, marks and digits.

    Attributes
    ----------
    lower : bool
        Whether letters become lower case first. Letters with the same capital letter
        become one, such as the two small sigmas. A sharp s differs from "ss", and a
        capital I with a dot becomes "i".
    """

    lower: bool = False

    def __post_init__(self) -> None:
        _check_flag("Words(lower", self.lower)

    def split(self, texts: Any) -> Occurrences:
        """Split texts; see `Tokenizer`."""
        texts = lowered(texts) if self.lower else texts
        data, ends = bytes_of(texts)
        if data.max(initial=0) < 0x80:
            return split_at_bytes(data, ends, NO_WORDS)
        return _of_lists(pc.split_pattern_regex(texts, pattern=r"[^\p{L}\p{M}\p{N}]+"))


@dataclass(frozen=True)
class QGrams:
    """Take q-grams, which are all runs of q characters; an empty text has none.

    Attributes
    ----------
    q : int
        Number of characters of a q-gram, 1 to 32.
    padding : bool
        Whether to insert q - 1 times "#" before a text, and "$" after it, so that each
        character is in q q-grams. Without padding, a text of fewer than q characters
        has no q-gram.
    lower : bool
        Whether letters become lower case first. Letters with the same capital letter
        become one, such as the two small sigmas. A sharp s differs from "ss", and a
        capital I with a dot becomes "i".
    """

    q: int
    padding: bool = True
    lower: bool = False

    PADS: ClassVar[tuple[str, str]] = ("#", "$")

    def __post_init__(self) -> None:
        if not _is_whole(self.q) or not 1 <= self.q <= MAX_Q:
            raise OptionError(
                f"QGrams(q={shown(self.q)}) is not allowed; use a whole number from 1 "
                f"to {MAX_Q}."
            )
        _check_flag("QGrams(padding", self.padding)
        _check_flag("QGrams(lower", self.lower)

    def split(self, texts: Any) -> Occurrences:
        """Split texts; see `Tokenizer`."""
        texts = lowered(texts) if self.lower else texts
        pads = (ord(self.PADS[0]), ord(self.PADS[1])) if self.padding else None
        offsets, points = code_points(texts, int(self.q) - 1, pads)
        return grams_of(offsets, points, int(self.q))


@dataclass(frozen=True)
class Custom:
    """Take the list of strings or integers that a function returns for each text; "" is
    also a token.

    Attributes
    ----------
    function : callable
        Called with a text. It must be deterministic, and workers must be able to
        unpickle it.
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
                f"tokenizer={shown(self.function)} must return a list of strings or "
                "integers, but for the "
                f"text {shown(text)} it returned {shown(found)}."
            )
        return list(found)


def of_values(offsets: np.ndarray, flat: list[Any], what: str) -> Occurrences:
    """Assign numbers to Python values, which are all strings or all integers. `what`:
    how messages begin.
    """
    kinds = set(map(type, flat))
    if all(issubclass(kind, str) for kind in kinds):
        try:
            return of_strings(offsets, pa.array(flat, pa.large_string()))
        except UnicodeEncodeError:
            bad = next(text for text in flat if not is_unicode(text))
            raise TokenError(f"{what} the token {shown(bad)}, {NO_UNICODE}.") from None
    # ints of Python are not checked one by one, which would take ten times as long as
    # copying them
    others = [] if kinds == {int} else [value for value in flat if not _is_whole(value)]
    if others:
        # of strings and a missing token, the missing one is the mistake
        wrong = next((one for one in others if not isinstance(one, str)), others[0])
        raise TokenError(
            f"{what} the token {shown(wrong)} among others. Tokens must be all "
            "strings or all integers: "
            "convert them, for example with str()."
        )
    return of_integers(offsets, whole_numbers(flat, kinds == {int}))


def whole_numbers(flat: list[Any], plain: bool = False) -> np.ndarray:
    """Convert integers to int64. Raise an error if one does not fit. `plain`: whether
    all of them are ints of Python.
    """
    try:
        return np.fromiter(flat if plain else map(int, flat), np.int64, len(flat))
    except OverflowError:
        far = next(value for value in flat if not -(2**63) <= int(value) < 2**63)
        raise TokenError(
            f"The token {shown(far)} does not fit in a signed 64-bit integer; convert "
            "tokens to strings, "
            "for example with str()."
        ) from None


def _is_whole(value: object) -> bool:
    # for NumPy, timedelta64 is an integer, so exclude it by name
    return isinstance(value, numbers.Integral) and not isinstance(
        value, (bool, np.timedelta64)
    )


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise OptionTypeError(
            f"{name}={shown(value)}) is not allowed; use True or False."
        )


NAMED: dict[str, Tokenizer] = {"whitespace": Whitespace(), "words": Words()}
"""Name of a tokenizer -> the tokenizer."""

WITH_VALUE: dict[str, Callable[[Any], Tokenizer]] = {
    "delimiter": Delimiter,
    "qgrams": QGrams,
}
"""Name of a tokenizer that takes a value, as in ("delimiter", ","), -> its class."""

KINDS = (Whitespace, Delimiter, Words, QGrams, Custom)

ALLOWED = "'whitespace', 'words', ('delimiter', ','), ('qgrams', 3), a function, or one of dask_simjoin.sets"


def tokenizer_of(value: object) -> Tokenizer | None:
    """Return the tokenizer that an option names; None if the column has lists. Raise an
    error for any other value.
    """
    if value is None or isinstance(value, KINDS):
        return value
    if isinstance(value, type):
        raise OptionTypeError(
            f"tokenizer={value.__name__} is a class; use an object of it, or {ALLOWED}."
        )
    if callable(value):
        return Custom(value)
    if (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and isinstance(value[0], str)
    ):
        name, option = value
        if name in WITH_VALUE:
            return WITH_VALUE[name](option)
    names = [*NAMED, *WITH_VALUE]
    if isinstance(value, str) and value in NAMED:
        return NAMED[value]
    if isinstance(value, str) and value in WITH_VALUE:
        raise OptionError(
            f"tokenizer={value!r} needs a value; use ({value!r}, "
            f"{'3' if value == 'qgrams' else repr(',')})."
        )
    kind = OptionError if isinstance(value, (str, tuple, list)) else OptionTypeError
    name = value[0] if isinstance(value, (tuple, list)) and value else value
    raise kind(
        f"tokenizer={shown(value)} is not allowed; use "
        f"{ALLOWED}{did_you_mean(name, names)}."
    )
