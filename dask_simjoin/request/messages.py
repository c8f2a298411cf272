"""Format values, names and suggestions in messages."""

from __future__ import annotations

import datetime
import decimal
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeGuard

import numpy as np
from dask.base import is_dask_collection
from pandas.api.types import is_datetime64_any_dtype

from dask_simjoin.errors import OptionTypeError

MOST_SHOWN = 100
"""Values in messages are shortened to this many characters."""


def shown(value: object) -> str:
    """Format a value for a message.

    Long texts are cut. Tables and large arrays are replaced by their type and shape.
    NumPy's scalars are formatted like Python's.
    """
    try:
        text = (
            str(value)
            if isinstance(value, np.generic) and value.dtype.kind in "biufM"
            else repr(str(value) if isinstance(value, np.str_) else value)
        )
    except ValueError:  # raised by Python for ints with very many digits
        return f"<{type(value).__name__}>"
    shape = getattr(value, "shape", None)
    if ("\n" in text or len(text) > MOST_SHOWN) and isinstance(shape, tuple):
        sizes = " x ".join(str(size) for size in shape if isinstance(size, int))
        return f"<{type(value).__name__}{f' of {sizes}' if sizes else ''}>"
    text = " ".join(text.split("\n"))
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def counted(number: int, thing: str) -> str:
    """Format a number with a noun in the singular or the plural: "1 row", "2 rows"."""
    return f"{number:,} {thing}" + "s" * (number != 1)


def about_many(number: float) -> str:
    """Format an estimated lower bound, rounded down to three digits.

    Examples
    --------
    >>> about_many(1_997_154_338_296), about_many(64_329_755), about_many(12_345.6)
    ('1.99 trillion', '64.3 million', '12,300')
    """
    for size, word in LARGE_NUMBERS:
        if number >= size:
            count = decimal.Decimal(int(number)) / size
            digits = max(0, 2 - count.adjusted())
            unit = decimal.Decimal(1).scaleb(-digits)
            return f"{count.quantize(unit, decimal.ROUND_FLOOR):,f} {word}"
    step = 10 ** max(0, len(str(int(number))) - 3)
    return f"{int(number) // step * step:,}"


LARGE_NUMBERS = (
    (10**18, "quintillion"),
    (10**15, "quadrillion"),
    (10**12, "trillion"),
    (10**9, "billion"),
    (10**6, "million"),
)
"""Numbers that have a name, from the largest."""


def size_text(size: float, like: float = 1, up: bool = False) -> str:
    """Format a number of bytes in the units that users write: "400 MB", "64 MiB".

    Other numbers are rounded to three digits, in the units of `like`: decimal ones if a
    user would write it with them, else binary ones. `up`: round up, for sizes that a
    message recommends.

    Examples
    --------
    >>> size_text(400_000_000), size_text(64 * 2**20), size_text(123_456_789)
    ('400 MB', '64 MiB', '118 MiB')
    >>> size_text(123_456_789, like=400_000_000), size_text(1_000_001, up=True)
    ('123 MB', '977 kiB')
    """
    size = math.ceil(size)
    short = _in_few_digits(size, DECIMAL[0]) and not _in_few_digits(size, BINARY[0])
    step, prefixes = DECIMAL if short or _in_few_digits(like, DECIMAL[0]) else BINARY
    power = 0
    while power < len(prefixes) - 1 and size >= 1000 * step**power:
        power += 1
    number = decimal.Decimal(size) / step**power
    digits = min(2, max(0, 2 - number.adjusted())) if power else 0
    rounding = decimal.ROUND_CEILING if up else decimal.ROUND_HALF_EVEN
    text = str(number.quantize(decimal.Decimal(1).scaleb(-digits), rounding))
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {prefixes[power]}B"


BINARY = 1024, ("", "ki", "Mi", "Gi", "Ti", "Pi")
DECIMAL = 1000, ("", "k", "M", "G", "T", "P")
"""How many units make the next larger one, and the prefixes of the units."""


def _in_few_digits(size: float, step: int) -> bool:
    """Return whether at most three digits and a unit larger than a byte give exactly
    this size, as in "1.5 GB".
    """
    if size < step or size != int(size):
        return False
    number = decimal.Decimal(int(size))
    while number >= step:
        number /= step
    return (
        number == number.quantize(decimal.Decimal("0.01"))
        and len(f"{number.normalize():f}".replace(".", "")) <= 3
    )


def listed(names: Iterable[object], max_names: int = 12) -> str:
    """Format names for a message. Only the first `max_names` are listed, and the others
    are counted.
    """
    return joined([repr(name) for name in names], max_names)


def joined(texts: Sequence[str], max_texts: int) -> str:
    """Join texts by commas. Only the first `max_texts` are in the result, and the others
    are counted.
    """
    more = f" and {len(texts) - max_texts:,} more" if len(texts) > max_texts else ""
    return ", ".join(texts[:max_texts]) + more


Names = dict[str, tuple[str, ...]]
"""Type of the tables below: name in other libraries -> possible names in this package.
"""

OPTIONS: Names = {
    "max_distance": ("eps",),
    "n_neighbors": ("k",),
    "neighbors": ("k",),
    "radius": ("eps", "max_eps", "max_distance"),
    "r": ("eps", "max_eps", "max_distance"),
    "threshold": ("eps", "max_eps", "max_distance", "similarity"),
    "distance_upper_bound": ("max_distance",),
    "distance": ("eps", "max_distance"),
    "min_pts": ("min_samples",),
    "min_points": ("min_samples",),
    "columns": ("on",),
    "by": ("on",),
    "cols": ("on",),
    "include_columns": ("keep",),
    "right": ("other",),
    "chunksize": ("blocksize",),
    "similarity_threshold": ("threshold",),
    "min_similarity": ("threshold",),
    "eps": ("threshold", "max_distance", "max_eps"),
    "metric": ("similarity",),
    "measure": ("similarity",),
    "comp_op": ("comparison",),
    "tokenize": ("tokenizer",),
    "subset": ("on",),
    "features": ("on",),
    "group": ("by",),
    "groupby": ("by",),
    "on_attribute": ("by",),
    **dict.fromkeys(
        ("tolerance", "tol", "epsilon", "dist", "cutoff"),
        ("eps", "max_eps", "max_distance", "threshold"),
    ),
    "max_eps": ("eps",),
    "minpts": ("min_samples",),
    "return_distance": ("return_similarity",),
    "return_similarity": ("return_distance",),
    "max_dist": ("max_distance", "eps"),
    "distance_col": ("return_distance",),
    "lsuffix": ("suffixes",),
    "rsuffix": ("suffixes",),
    "left_suffix": ("suffixes",),
    "n_clusters": ("min_cluster_size",),
    "fillna": ("dropna",),
    **dict.fromkeys(
        ("n_jobs", "n_workers", "workers", "n_threads", "num_threads"), ("threads",)
    ),
}
"""Option of pandas, SciPy or scikit-learn -> possible names in this package."""

METRICS: Names = {
    "l2": ("euclidean",),
    "l1": ("manhattan",),
    "cityblock": ("manhattan",),
    "taxicab": ("manhattan",),
    "linf": ("chebyshev",),
    "linfinity": ("chebyshev",),
    "infinity": ("chebyshev",),
    "inf": ("chebyshev",),
    "max": ("chebyshev",),
    "maximum": ("chebyshev",),
    "l2sqr": ("sqeuclidean",),
    "angular": ("cosine",),
    "great_circle": ("haversine",),
    "geodesic": ("haversine",),
    **dict.fromkeys(
        ("bray-curtis", "bray_curtis", "bray", "sorensen"), ("braycurtis",)
    ),
    "matching": ("hamming",),
}
"""Metric of other libraries -> its name in this package."""

FUNCTIONS = {
    "dist": "euclidean",
    "cityblock": "manhattan",
    **{
        name + end: name
        for name in ("euclidean", "manhattan", "chebyshev", "cosine", "haversine")
        for end in ("", "_distance", "_distances")
    },
    **{name: name for name in ("hamming", "canberra", "braycurtis")},
}
"""Name of a function of Python, SciPy or scikit-learn -> metric."""

NEAR_IN_TIME = (
    "With a column of times, here called 'time', use within={'time': '10 min'} for rows "
    "that are at most this far apart in time"
)
TIMES_ALONE = (
    "For rows that are near in time alone, use seconds as the coordinate, such as "
    "(df['time'] - df['time'].min()).dt.total_seconds(). With two tables, subtract the "
    "same time from both."
)
IN_ORDER = (
    "With a column of times, here called 'time', use within={'time': ('-1 h', '0 h')}. "
    "The right row is then at most one hour earlier than the left row. For later rows, "
    "use ('0 h', '1 h'). knn_join() then also needs max_distance="
)
IN_BOX = (
    "For a periodic box from 0 to L, use box=L, or a length for each column, such as "
    "box=[10, 10, None]"
)
OF_OTHER_GROUPS = (
    "With a column of groups, here called 'group', use different='group' for pairs of "
    "rows in different groups"
)
ONE_TABLE = (
    "join(), knn_join() and neighbor_counts() compare two tables. For the number of "
    "pairs, use neighbor_counts(eps, other=...).sum()"
)
OF_TEXTS = "set_join() and edit_join() compare two tables"
OF_COLUMNS = (
    "Multiply each column by a factor first: w ** 0.5 with metric='euclidean', w with "
    "'manhattan', and w ** (1 / p) with 'minkowski'"
)
ONE_TO_ONE = (
    "join(), set_join() and edit_join() use each row at most once with "
    "matching='greedy'. For rows that are each other's nearest rows, use knn_join(other, "
    "1, mutual=True)"
)
BITS = (
    "metric='hamming' counts unequal columns, not bits. For the bits of integers, use "
    "one column per bit: x = numpy.unpackbits(df[{name!r}].to_numpy('uint64')"
    ".view('uint8').reshape(-1, 8), axis=1). Then eps=6/64 allows 6 of 64 different bits"
)
KEEP_BY_SIDE = (
    "Name the columns of each table with keep=, as in keep={'left': 'name', 'right': "
    "['id', 'name']}"
)
"""Texts of `NO_OPTIONS` for several options each."""

CONDITIONS = (NEAR_IN_TIME, IN_ORDER, OF_OTHER_GROUPS, IN_BOX)
"""The texts that name the options `within`, `different` and `box`."""

CONDITIONED = (
    "self_join(), join(), knn_join(), k_distances(), count_pairs(), "
    "neighbor_counts(), neighbor_graph(), dbscan(), optics(), near_duplicated() and "
    "drop_near_duplicates()"
)
"""The verbs that have these options."""

NO_OPTIONS: dict[str, str] = {
    **dict.fromkeys(
        ("within", "window", "time_window", "time", "times", "tolerance", "max_time"),
        NEAR_IN_TIME,
    ),
    **dict.fromkeys(("eps2", "eps_time"), NEAR_IN_TIME),
    **dict.fromkeys(("direction", "allow_exact_matches", "before", "after"), IN_ORDER),
    **dict.fromkeys(
        ("boxsize", "box_size", "box", "period", "periods", "periodic", "pbc"),
        IN_BOX,
    ),
    **dict.fromkeys(
        ("unless", "exclude", "exclude_by", "not_by", "different", "differ"),
        OF_OTHER_GROUPS,
    ),
    **dict.fromkeys(("other", "right", "right_df"), ONE_TABLE),
    "similarity": "With metric='cosine', eps= is one minus the minimum similarity",
    **dict.fromkeys(
        ("ignore_case", "case", "case_sensitive", "lower"),
        "Texts are compared as they are; convert both columns first, as in "
        "df['name'] = df['name'].str.casefold()",
    ),
    "inplace": "Verbs return a new object, and the frame does not change",
    "algorithm": "Use method= to choose the algorithm; all methods find the same pairs",
    **dict.fromkeys(("max_rows", "nrows"), "Take .head(n) of the result"),
    "limit": "Take .head(n) of the result. For the n nearest rows of each row, use "
    "knn_join(other, n). For its n most similar sets or texts, use best=n in set_join(), "
    "edit_join(), set_self_join() and edit_self_join()",
    "best": "Only set_join(), edit_join(), set_self_join() and edit_self_join() have it. "
    "For the nearest row of each row by coordinates, use knn_join(other, 1), or within "
    "one table knn_join(k=1)",
    **dict.fromkeys(("one_to_one", "matching"), ONE_TO_ONE),
    **dict.fromkeys(
        ("predicate", "op"),
        "Leave it out: the rows of a pair are always within the distance eps=",
    ),
    **dict.fromkeys(
        ("left_keep", "right_keep", "left_columns", "right_columns"), KEEP_BY_SIDE
    ),
    "sort": "Sort the result, for example with .sort_values(['left', 'right'])",
    "keep": "It returns one value per row, which you can add to the frame: "
    "frame.assign(n=...)",
    "return_distance": "Only verbs that return pairs have it; knn_join() always returns "
    "distances",
    "metric_params": "For metric='minkowski', use p=. For other metrics, scale the "
    "columns first",
    "crs": "With metric='haversine', coordinates are in degrees, and eps= is in meters",
    "lat": "Name both coordinates with on=, as in on=['lat', 'lon']",
    "unit": "Pass eps= as text with a unit, such as '2 km'",
    **dict.fromkeys(
        ("left_by", "right_by"),
        "For columns with different names, use pairs of names: by=[('left', 'right')]",
    ),
    "sample_weight": "Only an estimator takes weights of rows: "
    "dask_simjoin.cluster.DBSCAN(eps).fit(frame, sample_weight=...)",
    **dict.fromkeys(
        ("w", "weight", "weights", "feature_weights", "column_weights"),
        OF_COLUMNS,
    ),
    "lower": "To ignore case, use tokenizer=dask_simjoin.sets.Words(lower=True)",
}
"""Option that only other libraries have -> what to use instead."""

NO_METRICS: dict[str, str] = (
    dict.fromkeys(
        ("inner_product", "innerproduct", "ip", "dot", "dot_product"),
        "An inner product is not a distance. If all rows have norm 1, an inner product "
        "of at least s is metric='cosine' with eps=1-s. For s=0.9, use eps=0.1. For "
        "rows of other norms, joins by inner product are not supported",
    )
    | dict.fromkeys(
        (
            "jaccard",
            "dice",
            "overlap",
            "levenshtein",
            "edit",
            "edit_distance",
            "jaro_winkler",
            "minhash",
        ),
        "Use set_self_join() to compare sets of tokens, and edit_self_join() to compare "
        "texts by edit distance",
    )
    | dict.fromkeys(
        ("seuclidean", "standardized_euclidean", "standardised_euclidean"),
        "Divide each column by its standard deviation first, and use metric='euclidean'",
    )
    | dict.fromkeys(("wminkowski", "weighted_minkowski"), OF_COLUMNS)
    | {
        "mahalanobis": "Whiten the columns first, and use metric='euclidean'; for an "
        "array x: x @ numpy.linalg.cholesky(numpy.linalg.inv(numpy.cov(x.T)))",
        "correlation": "Subtract from each row its mean first, and use metric='cosine'",
        "precomputed": "Distances are computed from the columns of on=. If you have "
        "pairs, use connected_components()",
    }
)
"""Metric that only other libraries have -> what to use instead."""

NO_CHOICES: dict[str, dict[str, str]] = {
    "similarity": dict.fromkeys(
        ("levenshtein", "edit", "edit_distance", "jaro", "jaro_winkler", "hamming"),
        "Texts that differ by few letters share most q-grams: use tokenizer=('qgrams', "
        "3)",
    )
    | dict.fromkeys(
        ("euclidean", "haversine", "manhattan"),
        "To compare numbers, use self_join() or join()",
    ),
    "method": dict.fromkeys(
        (
            "kd_tree",
            "kdtree",
            "ball_tree",
            "balltree",
            "brute",
            "bruteforce",
            "rtree",
            "hnsw",
            "faiss",
            "exact",
        ),
        "All methods find the same pairs, and 'auto' is usually the fastest",
    ),
}
"""Option -> value that other libraries support -> what to use instead."""

VERBS: Names = {
    "query_pairs": ("self_join",),
    "sjoin": ("join",),
    "merge": ("join",),
    "sjoin_nearest": ("knn_join",),
    "kneighbors": ("knn_join",),
    "nearest": ("knn_join",),
    "kneighbors_graph": ("neighbor_graph",),
    "radius_neighbors_graph": ("neighbor_graph",),
    "explain": ("plan",),
    "jaccard_join": ("set_self_join",),
    "set_sim_join": ("set_join",),
    "near_duplicates": ("near_duplicated",),
    "duplicated": ("near_duplicated",),
    **dict.fromkeys(
        ("drop_duplicates", "deduplicate", "dedupe", "dedup"), ("drop_near_duplicates",)
    ),
    **dict.fromkeys(
        ("fuzzy_join", "fuzzy_merge", "fuzzy_match", "string_join", "levenshtein_join"),
        ("edit_join",),
    ),
}
"""Verb of other libraries -> possible names in this package."""

ANY_JOIN = (
    "radius_join",
    "radius_neighbors",
    "similarity_join",
    "distance_join",
    "range_join",
    "near_join",
    "neighbors",
    "simjoin",
)
"""Verbs of other libraries that may have one table or two."""


CLUSTERS = ("cluster", "clusters", "clustering", "cluster_rows")
"""Verbs of other libraries for clusters."""


def no_verb(name: str, verbs: Collection[str], module: str = "") -> str:
    """Return the end of a message about an unknown verb: which one to use instead.

    `module`: the module where the verb was looked up; "": the accessor.
    """
    lister = f"dir({module or 'frame.simjoin'})"
    if name.lower() in ANY_JOIN:
        start, table = (f"{module}.", "frame, ") if module else ("", "")
        return (
            f". For pairs within one table use {start}self_join({table}eps), for pairs "
            f"of two tables {start}join({table}other, eps), for the k nearest rows "
            f"{start}knn_join({table}k=10). {lister} lists all verbs."
        )
    if name.lower() in CLUSTERS:
        return (
            ". For clusters use dbscan(eps), or hdbscan() without a distance. "
            f"{lister} lists all verbs."
        )
    hint = elsewhere(name, VERBS, verbs)
    every = f"{lister} lists all verbs" if hint else f"use one of {', '.join(verbs)}"
    return f"{hint}; {every}."


def not_an_option(
    name: object,
    known: Collection[object],
    given: Mapping[str, Any] | None = None,
    verb: str = "",
    frame: object = None,
) -> str:
    """Return the end of a message about an unknown option: the name that it has in this
    package, or what to use instead.

    `given`: options of the call with their values. Some explanations need one of them.
    `verb`: the verb that was called.  `frame`: the table of the call.
    """
    given = {} if given is None else given
    value = given.get(str(name))
    options = f"; its options are {', '.join(map(str, known)) or 'none'}."
    key = name.lower() if isinstance(name, str) else ""
    if key == "how" and verb in UNIQUE_ROWS:
        return (
            ". It is for two tables. For the rows of one table without a partner, use "
            f"{UNIQUE_ROWS[verb]}(..., keep=False)."
        )
    if key == "distance" and isinstance(value, bool) and "return_distance" in known:
        return f" (did you mean 'return_distance'?){options}"
    if key in ("weight", "weights") and "min_samples" in known:
        key = "sample_weight"
    if key == "by" and "suffixes" in known:
        return f". {_filtered(value, key, known)}."
    if key == "by" and "other" not in known:
        return (
            f". Call {verb}() for the rows of each group of frame.groupby({value!r})."
        )
    if NO_OPTIONS.get(key) == KEEP_BY_SIDE and "keep" not in known:
        key = "keep"
    meant = [own for own in OPTIONS.get(key, ()) if own in known]
    if key in NO_OPTIONS and all(own in given for own in meant):
        if key == "keep" and verb.startswith("count_"):
            return f". {OF_COUNTS[verb]}."
        if key == "similarity" and is_share(value):
            return (
                f". For a similarity of at least {value}, use metric='cosine' and "
                f"eps={1 - float(value):.6g}, which is one minus it. For sets of tokens, "
                f"use set_self_join(..., threshold={value})."
            )
        of_conditions = NO_OPTIONS[key] in CONDITIONS
        if of_conditions and not {"within", "different"} & {*map(str, known)}:
            named = {OF_OTHER_GROUPS: "different", IN_BOX: "box"}
            option = named.get(NO_OPTIONS[key], "within")
            remedy = ""
            if option == "box" and verb == "closest_pairs":
                remedy = (
                    " For distances in a box, use knn_join(k=10, max_distance=..., "
                    "box=...)."
                )
            elif option != "box" and "suffixes" in known:
                remedy = f" {_filtered(value, option, known)}."
            elif option != "box" and verb.endswith(("duplicates", "duplicated")):
                remedy = f" {_one_of_each_group(value, option, verb)}."
            return f". Only {CONDITIONED} take {option}=.{remedy}"
        text = _with_column(NO_OPTIONS[key], "time", time_column(frame))
        group = value if NO_OPTIONS[key] is OF_OTHER_GROUPS else None
        text = _with_column(text, "group", group if isinstance(group, str) else None)
        return f". {text}."
    distance = key != "threshold" and (key == "eps" or "eps" in OPTIONS.get(key, ()))
    if distance and "transpositions" in known:
        return f" (did you mean 'k'?){options}"  # between texts, a number of edits
    return elsewhere(name, OPTIONS, known) + options


def _filtered(columns: Any, option: str, known: Collection[object]) -> str:
    """Return advice to filter pairs by the columns that `by`, `different` or `within`
    names. `known`: the options of the verb.
    """
    names, test = _filter(columns, option)
    first = " (without best=, which chooses before the filter)" * ("best" in known)
    return f"Keep the columns with keep={names!r}, and filter the pairs{first}: {test}"


def _filter(columns: Any, option: str) -> tuple[list[Any], str]:
    """Return the columns that an option names, and code that filters pairs by them."""
    several = isinstance(columns, (list, tuple, Mapping)) and len(columns) > 0
    names = list(columns) if several else [columns]
    if not all(isinstance(name, str) for name in names):
        names = ["column"]
    left, right = (f"pairs['{names[0]}_{side}']" for side in ("left", "right"))
    test = {"by": f"{left} == {right}", "different": f"{left} != {right}"}.get(
        option, f"({left} - {right}).abs() <= {_tolerance(columns, names, left, right)}"
    )
    return names, f"pairs[{test}]"


def _tolerance(within: Any, names: list[str], left: str, right: str) -> str:
    """Return the tolerance of the first column of `within` as code that filters pairs."""
    value = within.get(names[0]) if isinstance(within, Mapping) else None
    if isinstance(value, str) and value.strip().endswith("%"):
        share = value.strip()[:-1].strip()
        largest = f"numpy.maximum({left}.abs(), {right}.abs())"
        return f"{share} / 100 * {largest}"
    if isinstance(value, str):
        return f"pandas.Timedelta({value!r})"
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return shown(value)
    return "..."


def _one_of_each_group(columns: Any, option: str, verb: str) -> str:
    """Return advice to keep one row of each group of pairs that are filtered."""
    kind = re.sub("(drop_)?(.*?_)?near_.*", r"\2", verb)
    names, test = _filter(columns, option)
    return (
        f"Or filter pairs = df.simjoin.{kind}self_join(..., keep={names!r}): "
        f"pairs = {test}. Then keep one row of each group: groups = "
        "dask_simjoin.connected_components(pairs), and df.drop(groups['id'][groups."
        "duplicated('component')])"
    )


def time_column(frame: Any) -> str | None:
    """Return the name of the only column of dates and times in a table; None if there
    is none, or several.
    """
    dtypes = getattr(frame, "dtypes", None)
    if not hasattr(dtypes, "items"):  # a table of another library
        return None
    found = [
        name
        for name, dtype in dtypes.items()  # type: ignore[union-attr]
        if isinstance(name, str) and is_datetime64_any_dtype(dtype)
    ]
    return found[0] if len(found) == 1 else None


def _with_column(text: str, name: str, column: str | None) -> str:
    """Replace the column "time" or "group" (`name`) in advice by a column of the table,
    if there is one.
    """
    if column is None:
        return text
    text = text.replace(
        f"a column of {name}s, here called {name!r}", f"the {name}s in {column!r}"
    )
    return text.replace(repr(name), repr(column))


UNIQUE_ROWS = {
    "self_join": "drop_near_duplicates",
    "set_self_join": "drop_set_near_duplicates",
    "edit_self_join": "drop_edit_near_duplicates",
}
"""Verb that finds pairs of one table -> the verb that drops their rows."""

OF_COUNTS = {
    f"count_{kind}pairs": "It returns a single number. For columns of both rows of each "
    f"pair, use {join}_join(..., keep=...). For a number per row, use "
    f"{counts}neighbor_counts()"
    for kind, join, counts in (
        ("", "self", ""),
        ("set_", "set_self", "set_"),
        ("edit_", "edit_self", "edit_"),
    )
}
"""Verb that counts pairs -> what to use if columns are to be kept."""


def is_share(value: Any) -> TypeGuard[float]:
    """Return whether a value is a number from 0 to 1."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value <= 1
    )


def elsewhere(name: object, names: Names, known: Collection[object]) -> str:
    """Return a hint for a name of another library: its name in this package, or a
    similar one.
    """
    same = (
        [own for own in names.get(name.lower(), ()) if own in known]
        if isinstance(name, str)
        else []
    )
    return f" (did you mean {same[0]!r}?)" if same else did_you_mean(name, known)


def did_you_mean(name: object, known: Iterable[object], cutoff: float = 0.6) -> str:
    """Return a hint with the most similar known name; "" if no name is similar."""
    names = [other for other in known if isinstance(other, str)]
    close = (
        get_close_matches(name, names, n=1, cutoff=cutoff)
        if isinstance(name, str)
        else []
    )
    return f" (did you mean {close[0]!r}?)" if close else ""


NO_UNICODE = (
    "which is not valid Unicode, as it has half of a surrogate pair (replace it, for "
    "example with "
    ".encode(errors='replace').decode())"
)
"""End of a message about a text that Arrow does not accept."""


def is_unicode(text: str) -> bool:
    """Return whether a text is valid Unicode: it has no lone surrogate."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


COMMA = re.compile(r"\s*([+-]?\d+),(\d+)((?:[eE][+-]?\d+)?\s*(?:[^\W\d_]+|[°'\"])?)\s*")
"""Pattern for a number with a comma, and perhaps a unit, such as "0,25 km"."""


def check_comma(name: str, value: object) -> None:
    """Raise an error for a distance whose text has a comma instead of a decimal point.

    `name`: the option.
    """
    comma = COMMA.fullmatch(value) if isinstance(value, str) else None
    if comma is None:
        return
    before, after, rest = comma.groups()
    unit = bool(rest.strip())
    point, thousands = (
        repr(text) if unit else text
        for text in (f"{before}.{after}{rest}", before + after + rest)
    )
    other = (
        f" (or {name}={thousands} if the comma separates thousands)"
        if len(after) == 3
        else ""
    )
    texts = (
        f". With metric='haversine' it is in meters, or text with a unit, such as {point}"
        if unit
        else ""
    )
    raise OptionTypeError(
        f"{name}={shown(value)} has a decimal comma; use a decimal point: "
        f"{name}={point}{other}. A distance is a finite number >= 0{texts}."
    )


def instead_of_distance(name: str, value: object, by_row: bool = False) -> str:
    """Return a hint for a distance that is not a number, as the end of a message.

    `by_row`: whether the option may name a column of distances.
    """
    if isinstance(value, decimal.Decimal):
        return f", such as float({name})"
    if isinstance(value, (datetime.timedelta, np.timedelta64)):
        return (
            " in the unit of the column, such as seconds. For a tolerance in time, use "
            "within= with the column of times, and other columns as coordinates"
        )
    if is_dask_collection(value) and not _dims(value):
        return f", such as {name}.compute()"
    if by_row and _holds_several(value):
        return (
            f". For one distance per row, make it a column: frame = frame.assign(r={name}), then "
            f"{name}='r' (in self_join() with pairs='both')"
        )
    return number_in_text(value) if isinstance(value, str) else ""


def number_in_text(value: str) -> str:
    """Return a hint for a text that contains a number, to end a message.

    Examples
    --------
    >>> number_in_text("5")
    ', such as 5 without quotes'
    """
    try:
        number = float(value)
    except ValueError:
        return ""
    if not 0 <= number < math.inf:
        return ""
    short = f"{number:g}"
    return f", such as {short if float(short) == number else number} without quotes"


def instead_of_frame(value: object) -> str:
    """Return a sentence that explains how to make a frame from a value, to end a
    message.
    """
    if isinstance(value, os.PathLike) or (
        isinstance(value, str) and ("." in value or "/" in value)
    ):
        return (
            " Read files first, for example with dask.dataframe.read_parquet() or "
            "read_csv()."
        )
    if isinstance(value, (list, tuple)) and any(_is_table(one) for one in value):
        return " Combine tables first, with pandas.concat() or dask.dataframe.concat()."
    if _dims(value) == 1 and hasattr(value, "to_frame"):
        return (
            " Use .to_frame() to make a frame from one column; on= names its columns."
        )
    if hasattr(value, "tocsr"):
        return " Make a sparse matrix dense first: pandas.DataFrame(x.toarray())."
    if isinstance(value, (list, tuple)):
        return " Use pandas.DataFrame(...) to make a frame from lists."
    if type(value).__name__ == "LazyFrame" and hasattr(value, "collect"):
        return " Call collect() on a LazyFrame first."
    if isinstance(value, (int, float)):
        return " The frame comes first."
    return ""


def _holds_several(value: object) -> bool:
    return isinstance(value, (list, tuple, set, range)) or _dims(value) > 0


def _dims(value: object) -> int:
    dims = getattr(value, "ndim", 0)
    # Dask's Delayed objects have every attribute, so check the type
    return dims if isinstance(dims, int) else 0


def _is_table(value: object) -> bool:
    return _dims(value) == 2 and hasattr(value, "columns")
