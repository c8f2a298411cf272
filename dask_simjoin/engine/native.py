"""Convert big-endian numbers, and Arrow's views of strings and lists: pandas and Arrow
cannot select rows of such columns, or cannot read them as numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.metrics.norms import DType, Frame


def is_native(frame: Frame) -> bool:
    """Return whether all columns and labels of a frame are native. Only frames of
    pandas can have others.
    """
    return not isinstance(frame, pd.DataFrame) or all(
        map(_is_native, {*frame.dtypes, frame.index.dtype})
    )


def native(frame: Frame) -> Frame:
    """Return a frame with native columns and labels.

    Big-endian numbers become numbers of this machine. String views become large
    strings, also within Arrow's lists and dictionaries. List views become lists.
    """
    if is_native(frame):
        return frame
    made = frame.copy(deep=False)
    for place, dtype in enumerate(frame.dtypes):
        if not _is_native(dtype):
            made.isetitem(place, native_values(frame.iloc[:, place]))
    if not _is_native(frame.index.dtype):
        made.index = pd.Index(native_values(frame.index), name=frame.index.name)
    return made


def native_values(values: pd.Series | pd.Index) -> Any:
    """Return the values of a column or an index as an array with a native dtype."""
    dtype = values.dtype
    if isinstance(dtype, np.dtype):
        return values.to_numpy().astype(dtype.newbyteorder("="))
    if isinstance(dtype, pd.CategoricalDtype):
        categories = pd.Index(native_values(dtype.categories))
        own = pd.CategoricalDtype(categories, dtype.ordered)
        return pd.Categorical.from_codes(_codes(values), dtype=own)
    if isinstance(dtype, pd.ArrowDtype):
        kind = without_views(dtype.pyarrow_dtype)
        arrow = cast_arrow(values.array.__arrow_array__(), kind)
        return pd.arrays.ArrowExtensionArray(arrow)
    return values.array


def without_views(kind: pa.DataType) -> pa.DataType:
    """Replace string views in a type by large strings, and list views by lists.

    Arrow cannot select rows from string views, and pandas cannot convert list views.
    """
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        inner = without_views(kind.value_type)
        if inner != kind.value_type:
            return pa.dictionary(kind.index_type, inner, kind.ordered)
    elif pa.types.is_struct(kind):
        fields = [kind.field(k) for k in range(kind.num_fields)]
        inner = [field.with_type(without_views(field.type)) for field in fields]
        if inner != fields:
            return pa.struct(inner)
    elif pa.types.is_map(kind):
        key, item = without_views(kind.key_type), without_views(kind.item_type)
        if (key, item) != (kind.key_type, kind.item_type):
            return pa.map_(key, kind.item_field.with_type(item))
    elif pa.types.is_nested(kind) and hasattr(kind, "value_field"):  # lists
        inner = without_views(kind.value_type)
        if inner != kind.value_type or _is_list_view(kind):
            field = kind.value_field.with_type(inner)
            fixed = pa.types.is_fixed_size_list(kind)
            return pa.list_(field, kind.list_size) if fixed else pa.large_list(field)
    return kind


def cast_arrow(array: Any, kind: pa.DataType) -> Any:
    """Cast an Arrow array. Older versions of Arrow cannot cast string views, so string
    views are converted by way of Python objects.
    """
    if _is_list_view(array.type):
        return pa.chunked_array(
            [_lists(chunk, kind) for chunk in getattr(array, "chunks", [array])], kind
        )
    if "list_view<" in str(array.type):
        return pa.array(array.to_pylist(), kind)
    try:
        return array.cast(kind)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.array(array.to_pylist(), kind)


def _is_native(dtype: DType) -> bool:
    if isinstance(dtype, np.dtype):
        return dtype.isnative
    if isinstance(dtype, pd.CategoricalDtype):
        return _is_native(dtype.categories.dtype)
    if isinstance(dtype, pd.ArrowDtype):
        return without_views(dtype.pyarrow_dtype) == dtype.pyarrow_dtype
    return True


def _is_list_view(kind: pa.DataType) -> bool:
    return str(kind).startswith(("list_view<", "large_list_view<"))


def _lists(views: pa.Array, kind: pa.DataType) -> pa.Array:
    # Arrow's own cast forgets the last offset (as of 26.0)
    lengths = pc.fill_null(pc.list_value_length(views), 0).to_numpy(
        zero_copy_only=False
    )
    return pa.LargeListArray.from_arrays(
        pa.array(np.r_[0, np.cumsum(lengths, dtype=np.int64)]),
        cast_arrow(views.flatten(), kind.value_type),
        type=kind,
        mask=views.is_null(),
    )


def _codes(values: Any) -> np.ndarray:
    codes: np.ndarray = values.cat.codes if hasattr(values, "cat") else values.codes
    return np.asarray(codes)
