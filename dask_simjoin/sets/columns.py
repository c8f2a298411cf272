"""Read columns of sets from pandas and cuDF: lists of tokens, or texts that a tokenizer
splits.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.catalog import arrow_type, is_text
from dask_simjoin.engine.columns import a_value
from dask_simjoin.engine.compat import on_gpu
from dask_simjoin.engine.native import cast_arrow
from dask_simjoin.errors import ColumnError, ListError, TokenError
from dask_simjoin.metrics.norms import DType, Series
from dask_simjoin.request.columns import of_dask
from dask_simjoin.request.messages import NO_UNICODE, is_unicode, shown
from dask_simjoin.sets.token_ids import Occurrences, of_integers, of_strings
from dask_simjoin.sets.tokens import ALLOWED, Tokenizer, of_values

LISTS, TEXTS, OBJECTS = "lists", "texts", "objects"
"""The content of a column, as far as its dtype shows it. Objects may be lists or texts.
"""

NO_UTF8 = "whose bytes are not valid UTF-8 (read them in their own encoding, such as encoding='latin-1')"
"""End of messages about texts that are not valid."""


def content_of(dtype: DType) -> str | None:
    """Return what columns of this dtype hold: `LISTS`, `TEXTS`, `OBJECTS` (either of
    them), or None for neither.
    """
    if isinstance(dtype, pd.CategoricalDtype):
        return TEXTS if content_of(dtype.categories.dtype) in (TEXTS, OBJECTS) else None
    if isinstance(dtype, pd.StringDtype):
        return TEXTS
    if isinstance(dtype, np.dtype):
        return OBJECTS if dtype.kind == "O" else None
    arrow = arrow_type(dtype)
    if arrow is None:
        return None
    if is_text(arrow.value_type if pa.types.is_dictionary(arrow) else arrow):
        return TEXTS
    return LISTS if _is_list(arrow) and _are_tokens(arrow.value_type) else None


def check_holds(name: Hashable, dtype: DType, tokenizer: Tokenizer | None) -> None:
    """Raise an error if a dtype cannot hold sets, if texts have no tokenizer, or if
    lists have one.
    """
    content = content_of(dtype)
    if content is None:
        raise ColumnError(
            f"on={name!r} is of dtype {dtype}, which holds no sets. Use a column of "
            "lists of strings or of "
            "integers (lists in a pandas column, or Arrow's list<int64>), or of texts "
            "with tokenizer=."
        )
    if content == TEXTS and tokenizer is None:
        raise ColumnError(
            f"on={name!r} is of dtype {dtype}, which holds texts; say with tokenizer= "
            "how they become "
            f"sets of tokens: {ALLOWED}. {of_dask(dtype, name)}".rstrip()
        )
    if content == LISTS and tokenizer is not None:
        raise ColumnError(
            f"on={name!r} is of dtype {dtype}, which holds lists of tokens already; "
            "leave out tokenizer=."
        )


def presence(column: Series, tokenizer: Tokenizer | None) -> np.ndarray:
    """Return a mask (rows,) of the rows that have a set. Raise `ListError` for a value
    that is not a set.
    """
    values = _objects(column)
    if values is None:
        found = _arrow(column)
        _check_unicode(found)
        return _validity(found)
    return _present_lists(values) if tokenizer is None else _present_texts(values)


def occurrences(
    column: Series, tokenizer: Tokenizer | None
) -> tuple[np.ndarray, Occurrences]:
    """Return a mask (rows,) of the rows that have a set, and the tokens of these rows.

    Raises
    ------
    ListError
        A row holds neither a set nor a missing value.
    TokenError
        Tokens are missing, or neither strings nor integers.
    """
    if tokenizer is not None:
        present, texts = texts_of(column)
        return present, tokenizer.split(texts)
    values = _objects(column)
    if values is not None:
        return _of_objects(values)
    lists = _arrow(column)
    _check_unicode(lists)
    if _is_list(lists.type) and pa.types.is_string_view(lists.type.value_type):
        # convert the lists, because Arrow cannot filter lists of string views
        lists = cast_arrow(lists, pa.large_list(pa.large_string()))
    present = _validity(lists)
    if not present.all():
        lists = lists.filter(pa.array(present))
    if pa.types.is_fixed_size_list(lists.type):
        lists = lists.cast(pa.large_list(lists.type.value_type))
    if not _is_list(lists.type):
        raise TokenError(
            f"The column holds {lists.type}, which is not a list. Use tokenizer= for "
            "texts."
        )
    ends = np.asarray(lists.offsets).astype(np.int64)
    offsets, flat = ends - ends[0], lists.flatten()
    if pa.types.is_dictionary(flat.type):
        flat = flat.dictionary_decode()
    if flat.null_count:
        row = (
            int(
                np.searchsorted(
                    offsets, pc.index(flat.is_null(), True).as_py(), side="right"
                )
            )
            - 1
        )
        raise ListError.at(
            int(np.flatnonzero(present)[row]), "a list with a missing token"
        )
    return present, _numbered(offsets, flat)


def _numbered(offsets: np.ndarray, flat: Any) -> Occurrences:
    """Assign numbers to the tokens in Arrow lists. No token may be missing."""
    if is_text(flat.type):
        return of_strings(offsets, flat.cast(pa.large_string()))
    if pa.types.is_null(flat.type):
        return of_integers(offsets, np.zeros(0, np.int64))
    if not pa.types.is_integer(flat.type):
        raise TokenError(
            f"Tokens are of type {flat.type}; use lists of strings or of integers, for "
            "example by converting "
            "them to strings."
        )
    try:
        return of_integers(
            offsets, flat.cast(pa.int64()).to_numpy(zero_copy_only=False)
        )
    except pa.ArrowInvalid:
        raise TokenError(
            f"The token {pc.max(flat)} does not fit in a signed 64-bit integer; "
            "convert tokens to strings."
        ) from None


LISTS_OF_PYTHON = (list, tuple, set, frozenset)


def _present_lists(values: np.ndarray) -> np.ndarray:
    """Return a mask of the rows that have a list. Raise `ListError` if another row has
    a value that is not missing.
    """
    present = np.ones(len(values), np.bool_)
    kinds = set(map(type, values))
    if kinds.issubset(LISTS_OF_PYTHON) or (
        kinds == {np.ndarray} and {value.ndim for value in values} == {1}
    ):
        return present
    for row, value in enumerate(values):
        if isinstance(value, LISTS_OF_PYTHON) or (
            isinstance(value, np.ndarray) and value.ndim == 1
        ):
            continue
        if not _is_missing(value):
            what = f"{a_value(value)}, which is not a list, tuple, set or array (n,)"
            raise ListError.at(
                row, what + " (use tokenizer= for texts)" * isinstance(value, str)
            )
        present[row] = False
    return present


def _of_objects(values: np.ndarray) -> tuple[np.ndarray, Occurrences]:
    """Assign numbers to the tokens in lists, tuples, sets and arrays of Python."""
    present = _present_lists(values)
    rows = values if present.all() else values[present]
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    filled = rows if sizes.all() else rows[sizes > 0]
    arrays = len(filled) and set(map(type, filled)) == {np.ndarray}
    # arrays of other kinds are read value by value below: NumPy would turn bools into
    # integers, and it cannot concatenate dates with other values
    if arrays and {row.dtype.kind for row in filled} <= {"i", "u"}:
        flat = np.concatenate(filled)
        # together, int64 and uint64 would become float64; then values are read one by
        # one below
        if flat.dtype.kind == "i" or (flat.dtype.kind == "u" and flat.max() < 2**63):
            return present, of_integers(offsets, flat.astype(np.int64))
    return present, of_values(
        offsets, list(itertools.chain.from_iterable(rows)), "A row of the column has"
    )


def _is_missing(value: Any) -> bool:
    return (
        value is None
        or value is pd.NA
        or (isinstance(value, float) and math.isnan(value))
    )


LEAVE_OUT = "; leave out tokenizer= for lists"
"""Advice in messages if a column holds lists, although it should hold texts."""


def _present_texts(values: np.ndarray, hint: str = LEAVE_OUT) -> np.ndarray:
    """Return a mask of the rows that have a text.

    `hint`: advice to add to the message if a value is a list.
    """
    if set(map(type, values)) == {str}:
        return np.ones(len(values), np.bool_)
    for row, value in enumerate(values):
        if not isinstance(value, str) and not _is_missing(value):
            is_list = isinstance(value, (list, tuple, set, np.ndarray))
            kind = type(value).__name__
            what = a_value(value) if is_list else f"{shown(value)} ({kind})"
            raise ListError.at(row, f"{what}, which is not text{hint * is_list}")
    return np.fromiter(
        (isinstance(value, str) for value in values), np.bool_, len(values)
    )


def texts_of(column: Series, hint: str = LEAVE_OUT) -> tuple[np.ndarray, Any]:
    """Return a mask of the rows that have a text, and these texts as an Arrow array.
    `hint`: see `_present_texts`.
    """
    values = _objects(column)
    if values is not None:
        present = _present_texts(values, hint)
        try:
            return present, pa.array(values[present], pa.large_string())
        except UnicodeEncodeError:
            row = next(
                row for row in np.flatnonzero(present) if not is_unicode(values[row])
            )
            raise ListError.at(
                int(row), f"{shown(values[row])}, {NO_UNICODE}"
            ) from None
    texts = _arrow(column)
    _check_unicode(texts)
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    texts = cast_arrow(texts, pa.large_string())
    present = _validity(texts)
    return present, texts if present.all() else texts.filter(pa.array(present))


def longest_row(column: Series) -> tuple[int, int]:
    """Return the position of the longest list or text, and its length. The length of a
    text may be in bytes.
    """
    values = _objects(column)
    if values is not None:
        lengths = np.fromiter(
            (len(value) if hasattr(value, "__len__") else 0 for value in values),
            np.int64,
            len(values),
        )
    else:
        found = _arrow(column)
        if pa.types.is_dictionary(found.type):
            known = pc.binary_length(found.dictionary).take(found.indices)
        else:
            is_list = _is_list(found.type) or pa.types.is_fixed_size_list(found.type)
            known = (pc.list_value_length if is_list else pc.binary_length)(found)
        lengths = pc.fill_null(known, 0).to_numpy(zero_copy_only=False)
    row = int(lengths.argmax()) if len(lengths) else 0
    return row, int(lengths[row]) if len(lengths) else 0


def _objects(column: Series) -> np.ndarray | None:
    """Return the values of a column as Python objects if the column, or its categories,
    have the dtype object. Otherwise return None.
    """
    if on_gpu(column):
        return None
    dtype = column.dtype
    content = (
        dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
    )
    return column.to_numpy() if content_of(content) == OBJECTS else None


def _arrow(column: Series) -> Any:
    found = column.to_arrow() if on_gpu(column) else pa.array(column, from_pandas=True)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)
    if pa.types.is_dictionary(found.type) and found.dictionary.null_count:
        found = found.dictionary_decode()
    return found


def _check_unicode(found: Any) -> None:
    """Raise an error if a text is not valid UTF-8. Arrow itself does not check this."""
    row = _first_broken(found)
    if row is None:
        return
    one, holds = found.slice(row, 1), ""
    if _is_list(found.type):
        one, holds = one.flatten(), "a list with the token "
        one = one.slice(_first_broken(one), 1)
    if pa.types.is_dictionary(one.type):
        one = one.dictionary_decode()
    raise ListError.at(
        row, f"{holds}{shown(one[0].as_buffer().to_pybytes())}, {NO_UTF8}"
    )


def _first_broken(found: Any) -> int | None:
    """Return the position of the first row with invalid UTF-8; None if there is no such
    row.
    """

    def broken(stop: int) -> bool:
        some = found.slice(0, stop)
        if _is_list(some.type):
            some = some.flatten()
        if pa.types.is_dictionary(some.type):
            some = some.dictionary_decode()
        try:
            some.validate(full=True)
        except pa.ArrowInvalid:
            return True
        return False

    if not broken(len(found)):
        return None
    return bisect.bisect_left(range(1, len(found) + 1), True, key=broken)


def _validity(found: Any) -> np.ndarray:
    valid: np.ndarray = found.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _is_list(arrow: Any) -> bool:
    return bool(
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
    )


def _are_tokens(arrow: Any) -> bool:
    inner = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
    return is_text(inner) or bool(pa.types.is_integer(inner) or pa.types.is_null(inner))
