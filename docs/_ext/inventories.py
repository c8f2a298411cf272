"""Lead names of other projects to their lists of names, or without a network to the few
given here.
"""

import zlib
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "_inventories"

PROJECTS = {
    "python": ("https://docs.python.org/3/", {}),
    "dask": (
        "https://docs.dask.org/en/stable/",
        {
            "dask.dataframe.DataFrame": ("class", "generated/dask.dataframe.DataFrame.html#$"),
            "dask.delayed.Delayed": ("class", "delayed-api.html#$"),
        },
    ),
    "distributed": ("https://distributed.dask.org/en/stable/", {}),
    "pandas": (
        "https://pandas.pydata.org/docs/",
        {
            "pandas.DataFrame": ("class", "reference/api/$.html#$"),
            "pandas.Series": ("class", "reference/api/$.html#$"),
            "pandas.Index": ("class", "reference/api/$.html#$"),
        },
    ),
    "numpy": (
        "https://numpy.org/doc/stable/",
        {"numpy.ndarray": ("class", "reference/generated/$.html#$")},
    ),
    "scipy": (
        "https://docs.scipy.org/doc/scipy/",
        {
            "scipy.sparse.csr_matrix": ("class", "reference/generated/$.html#$"),
            "scipy.sparse.csr_array": ("class", "reference/generated/$.html#$"),
        },
    ),
    "scikit-learn": ("https://scikit-learn.org/stable/", {}),
    "cudf": ("https://docs.rapids.ai/api/cudf/stable/", {}),
    "matplotlib": (
        "https://matplotlib.org/stable/",
        {"matplotlib.axes.Axes": ("class", "api/_as_gen/$.html#$")},
    ),
}
"""The address of each project's documentation, and the names of it that this one refers
to: kind and page.
"""

HEAD = """# Sphinx inventory version 2
# Project: {}
# Version:\x20
# The remainder of this file is compressed using zlib.
"""


def inventories():
    """Return the settings of intersphinx: each project's address, its list, and the one
    made here.
    """
    FOLDER.mkdir(exist_ok=True)
    return {name: (url, (None, str(_written(name, names)))) for name, (url, names) in PROJECTS.items()}


def _written(name, names):
    path = FOLDER / f"{name}.inv"
    # Sphinx itself would put the name in the place of a last $ only
    lines = [f"{key} py:{kind} 1 {page.replace('$', key)} -\n" for key, (kind, page) in names.items()]
    path.write_bytes(HEAD.format(name).encode() + zlib.compress("".join(lines).encode()))
    return path
