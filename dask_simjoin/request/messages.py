"""Format values, names and suggestions in messages."""

from __future__ import annotations

import datetime
import decimal
import os
from collections.abc import Collection, Iterable
from difflib import get_close_matches

import numpy as np
from dask.base import is_dask_collection

MOST_SHOWN = 100
"""Characters of a value that a message shows."""


def shown(value: object) -> str:
    """A value for a message, cut short; of tables and large arrays their kind and shape."""
    try:
        text = repr(value)
    except ValueError:  # an int of very many digits
        return f"<{type(value).__name__}>"
    shape = getattr(value, "shape", None)
    if ("\n" in text or len(text) > MOST_SHOWN) and isinstance(shape, tuple):
        sizes = " x ".join(str(size) for size in shape if isinstance(size, int))
        return f"<{type(value).__name__}{f' of {sizes}' if sizes else ''}>"
    text = " ".join(text.split("\n"))
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def counted(number: int, thing: str) -> str:
    """A number of things, as English has it."""
    return f"{number:,} {thing}" + "s" * (number != 1)


def listed(names: Iterable[object], most: int = 12) -> str:
    """Names for a message, the first ones if there are many."""
    texts = [repr(name) for name in names]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


Names = dict[str, tuple[str, ...]]
"""What other libraries call something, and what that is called here."""

OPTIONS: Names = {
    "n_neighbors": ("k",), "neighbors": ("k",), "radius": ("eps", "max_eps", "max_distance"),
    "r": ("eps", "max_eps", "max_distance"), "threshold": ("eps", "max_eps", "max_distance"),
    "distance_upper_bound": ("max_distance",), "distance": ("return_distance",), "min_pts": ("min_samples",),
    "columns": ("on",), "by": ("on",), "cols": ("on",), "include_columns": ("keep",),
    "right": ("other",), "chunksize": ("blocksize",), "similarity_threshold": ("threshold",),
    "min_similarity": ("threshold",), "eps": ("threshold",), "metric": ("similarity",),
    "measure": ("similarity",), "comp_op": ("comparison",), "tokenize": ("tokenizer",),
    "subset": ("on",), "features": ("on",), "group": ("by",), "groupby": ("by",), "on_attribute": ("by",),
    "max_eps": ("eps",), "minpts": ("min_samples",),
    "return_distance": ("return_similarity",), "max_dist": ("max_distance", "eps"),
    "distance_col": ("return_distance",), "lsuffix": ("suffixes",), "rsuffix": ("suffixes",),
    "left_suffix": ("suffixes",), "n_clusters": ("min_cluster_size",), "fillna": ("dropna",),
}  # fmt: skip
"""What pandas, SciPy and scikit-learn call options, and what those are called here."""

METRICS: Names = {
    "l2": ("euclidean",), "l1": ("manhattan",), "cityblock": ("manhattan",), "taxicab": ("manhattan",),
    "linf": ("chebyshev",), "linfinity": ("chebyshev",), "infinity": ("chebyshev",), "inf": ("chebyshev",),
    "max": ("chebyshev",), "maximum": ("chebyshev",), "l2sqr": ("sqeuclidean",), "angular": ("cosine",),
    "great_circle": ("haversine",), "geodesic": ("haversine",),
}  # fmt: skip
"""What other libraries call metrics, and what those are called here."""

NO_OPTIONS: dict[str, str] = {
    "similarity": "with metric='cosine' eps= is one minus the least similarity",
    "inplace": "the result is a new one, and the frame stays as it is",
    "n_jobs": "a Dask DataFrame is joined by all cores, dd.from_pandas(df, npartitions=...)",
    "n_workers": "a Dask DataFrame is joined by all cores, dd.from_pandas(df, npartitions=...)",
    "workers": "a Dask DataFrame is joined by all cores, dd.from_pandas(df, npartitions=...)",
    "algorithm": "method= chooses the engine, and all give the same",
    "max_rows": "take .head(n) of the result",
    "limit": "take .head(n) of the result",
    "nrows": "take .head(n) of the result",
    "sort": "sort the result, as by .sort_values(['left', 'right'])",
    "keep": "joins keep columns; a value for each row has the frame's index, for df.assign(n=...)",
    "return_distance": "knn_join() always tells distances, and what makes no pairs has none",
    "crs": "metric='haversine' takes degrees, and gives metres",
    "lat": "on= names both: on=['lat', 'lon']",
    "unit": "eps= takes text with a unit, such as '2 km'",
}
"""What options that there are not would be for, and how that is done here."""

NO_METRICS: dict[str, str] = dict.fromkeys(
    ("inner_product", "innerproduct", "ip", "dot", "dot_product"),
    "an inner product is no distance: that of rows of length 1 is one minus metric='cosine'",
) | dict.fromkeys(
    ("jaccard", "dice", "overlap", "levenshtein", "edit", "edit_distance", "jaro_winkler", "minhash"),
    "sets and texts are compared by set_self_join() and set_join(), by their tokens",
)
"""What other libraries call metrics that are none here, and what serves in their place."""

NO_CHOICES: dict[str, dict[str, str]] = {"similarity": dict.fromkeys(
    ("levenshtein", "edit", "edit_distance", "jaro", "jaro_winkler", "hamming"),
    "texts that differ by few letters have most of tokenizer=('qgrams', 3) in common",
) | dict.fromkeys(
    ("euclidean", "haversine", "manhattan"), "numbers are compared by self_join() and join()"
), "method": dict.fromkeys(
    ("kd_tree", "kdtree", "ball_tree", "balltree", "brute", "bruteforce", "rtree", "hnsw", "faiss", "exact"),
    "all give the same pairs, 'auto' mostly first",
)}  # fmt: skip
"""Values of options that are none here, and what serves in their place."""

VERBS: Names = {
    "radius_join": ("self_join",), "similarity_join": ("self_join",), "radius_neighbors": ("self_join",),
    "query_pairs": ("self_join",), "sjoin": ("join",), "merge": ("join",), "sjoin_nearest": ("knn_join",),
    "kneighbors": ("knn_join",), "nearest": ("knn_join",), "kneighbors_graph": ("neighbor_graph",),
    "radius_neighbors_graph": ("neighbor_graph",), "explain": ("plan",),
    "jaccard_join": ("set_self_join",), "set_sim_join": ("set_join",),
    "near_duplicates": ("near_duplicated",), "duplicated": ("near_duplicated",),
    "drop_duplicates": ("drop_near_duplicates",),
}  # fmt: skip
"""What other libraries call verbs, and what those are called here."""


def not_an_option(name: object, known: Collection[object]) -> str:
    """What to say of an option that there is not: what it is called here, or how it is done without one."""
    called_so = isinstance(name, str) and any(own in known for own in OPTIONS.get(name.lower(), ()))
    told = NO_OPTIONS.get(name) if isinstance(name, str) and not called_so else None
    return f" ({told})" if told else elsewhere(name, OPTIONS, known)


def elsewhere(name: object, names: Names, known: Collection[object]) -> str:
    """Which of the known names is what another library calls so; else one that is spelt alike."""
    same = [own for own in names.get(name.lower(), ()) if own in known] if isinstance(name, str) else []
    return f" (did you mean {same[0]!r}?)" if same else did_you_mean(name, known)


def did_you_mean(name: object, known: Iterable[object], cutoff: float = 0.6) -> str:
    names = [other for other in known if isinstance(other, str)]
    close = get_close_matches(name, names, n=1, cutoff=cutoff) if isinstance(name, str) else []
    return f" (did you mean {close[0]!r}?)" if close else ""


NO_UNICODE = (
    "which is no Unicode text, as it has half of a surrogate pair (put another character there, such as by "
    ".encode(errors='replace').decode())"
)
"""What is wrong with texts that Arrow does not take, in messages."""


def is_unicode(text: str) -> bool:
    """Tell whether a text has no lone surrogate."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def instead_of_distance(name: str, value: object) -> str:
    """What may serve in place of a distance that is no number, as the end of a message."""
    if isinstance(value, decimal.Decimal):
        return f", such as float({name})"
    if isinstance(value, (datetime.timedelta, np.timedelta64)):
        return " in the unit of the column, such as seconds"
    if is_dask_collection(value) and not _dims(value):
        return f", such as {name}.compute()"
    if name == "eps" and _holds_several(value):
        return ", several of them in counts, or the name of a column of each row's own distance"
    return ""


def number_in_text(value: str) -> str:
    """Which number a text holds, as a part of a message."""
    try:
        number = float(value)
    except ValueError:
        return ""
    return f", such as {number:g} without quotes"


def instead_of_frame(value: object) -> str:
    """What makes a frame of a value that is none, as a sentence of a message."""
    if isinstance(value, os.PathLike) or (isinstance(value, str) and ("." in value or "/" in value)):
        return " Read files first, as by dask.dataframe.read_parquet() or read_csv()."
    if isinstance(value, (list, tuple)) and any(_is_table(one) for one in value):
        return " Put tables together first, as by pandas.concat() or dask.dataframe.concat()."
    if _dims(value) == 1 and hasattr(value, "to_frame"):
        return " Of one column .to_frame() makes a frame; on= names its columns."
    if isinstance(value, (list, tuple)):
        return " Of lists pandas.DataFrame(...) makes a frame."
    if isinstance(value, (int, float)):
        return " The frame comes first."
    return ""


def _holds_several(value: object) -> bool:
    return isinstance(value, (list, tuple, set, range)) or _dims(value) > 0


def _dims(value: object) -> int:
    dims = getattr(value, "ndim", 0)
    return dims if isinstance(dims, int) else 0  # Dask's delayed objects have every attribute


def _is_table(value: object) -> bool:
    return _dims(value) == 2 and hasattr(value, "columns")
