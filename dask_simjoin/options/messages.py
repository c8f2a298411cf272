"""Show values and names in messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

MOST_SHOWN = 100
"""Characters of a value that a message shows."""


def shown(value: object) -> str:
    """A value for a message, cut short."""
    try:
        text = repr(value)
    except ValueError:  # an int of very many digits
        return f"<{type(value).__name__}>"
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
}  # fmt: skip
"""What pandas, SciPy and scikit-learn call options, and what those are called here."""

METRICS: Names = {
    "l2": ("euclidean",), "l1": ("manhattan",), "cityblock": ("manhattan",), "taxicab": ("manhattan",),
    "linf": ("chebyshev",), "linfinity": ("chebyshev",), "infinity": ("chebyshev",), "inf": ("chebyshev",),
    "max": ("chebyshev",), "maximum": ("chebyshev",), "l2sqr": ("sqeuclidean",), "angular": ("cosine",),
    "great_circle": ("haversine",), "geodesic": ("haversine",),
}  # fmt: skip
"""What other libraries call metrics, and what those are called here."""

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


def elsewhere(name: object, names: Names, known: Collection[object]) -> str:
    """Which of the known names is what another library calls so; else one that is spelt alike."""
    same = [own for own in names.get(name.lower(), ()) if own in known] if isinstance(name, str) else []
    return f" (did you mean {same[0]!r}?)" if same else did_you_mean(name, known)


def did_you_mean(name: object, known: Iterable[object], cutoff: float = 0.6) -> str:
    names = [other for other in known if isinstance(other, str)]
    close = get_close_matches(name, names, n=1, cutoff=cutoff) if isinstance(name, str) else []
    return f" (did you mean {close[0]!r}?)" if close else ""
