"""Options of any type: every verb takes them, or refuses them with an error of the
package.
"""

import collections
import datetime
import decimal
import fractions
import inspect

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.cluster import HDBSCAN, choose_clusters, condensed_tree
from dask_simjoin.cluster import estimators as cluster
from dask_simjoin.errors import CoordinateError, OptionError, SimJoinError
from tests.support.profiles import every_nth, everything, in_turns

ODD = [
    np.int64(2),
    np.float32(1),
    np.bool_(True),
    np.str_("auto"),
    np.timedelta64(1, "s"),
    np.array(2),
    np.array([1.0]),
    np.array(["a", "b"]),
    np.array([]),
    np.zeros((2, 2)),
    None,
    True,
    -1,
    10**30,
    10**400,
    10**5000,
    float("nan"),
    float("inf"),
    2j,
    decimal.Decimal(2),
    fractions.Fraction(1, 2),
    pd.NA,
    pd.NaT,
    datetime.date(2020, 1, 1),
    "",
    "x",
    b"auto",
    [],
    (),
    {},
    {"a": 1},
    {1},
    ["x"],
    [["x"]],
    [None],
    object(),
    int,
    pd.Series([1, 2]),
    pd.DataFrame({"x": [1.0]}),
]

IGNORED = ("algorithm", "leaf_size")
"""Options that estimators take for scikit-learn's sake, whatever their values."""

FRAME = pd.DataFrame(
    {"x": np.arange(12.0), "y": np.arange(12.0) % 5, "t": list("abcdefghijkl")}
)

VERBS = {
    "self_join": {"eps": 1.0},
    "join": {"other": FRAME, "eps": 1.0, "on": ["x", "y"]},
    "knn_join": {},
    "neighbor_counts": {"eps": 1.0},
    "count_pairs": {"eps": 1.0},
    "dbscan": {"eps": 1.0},
    "near_duplicated": {"eps": 1.0},
    "optics": {"max_eps": 1.0},
    "hdbscan": {},
    "spanning_tree": {},
    "k_distances": {"k": 2},
    "neighbor_graph": {"eps": 1.0},
    "plan": {"eps": 1.0},
    "with_row_id": {},
}


def parameters(verb):
    """The names of a verb's options."""
    return inspect.signature(getattr(FRAME.simjoin, verb)).parameters


NUMBER = collections.Counter(name for verb in VERBS for name in parameters(verb))
"""Name of an option -> number of verbs that have it."""


def check(verb, given, turn=None):
    """Every option of a verb takes any value, or refuses it well.

    With `turn`, an option that most verbs share takes only a third of the values.
    """
    for name in inspect.signature(verb).parameters:
        values = ODD[::8] if name in IGNORED else ODD
        if turn is not None and NUMBER[name] > len(VERBS) / 2 and not everything():
            values = ODD[turn % 3 :: 3]
        for value in values:
            try:
                verb(**given | {name: value})
            except SimJoinError:
                pass
            except Exception as error:
                raise AssertionError(f"{name}={type(value)}: {error!r}") from error


@in_turns(1, verb=every_nth(4, VERBS), lazy=[False, True])
def test_every_option_of_every_verb(verb, lazy):
    frame = dd.from_pandas(FRAME, npartitions=2) if lazy else FRAME
    check(getattr(frame.simjoin, verb), VERBS[verb], list(VERBS).index(verb))


def test_every_option_of_functions():
    check(dask_simjoin.connected_components, {"pairs": FRAME.simjoin.self_join(1.0)})
    order = FRAME.simjoin.optics(1.0)
    check(cluster.cluster_optics_dbscan, {"optics": order, "eps": 1.0})
    check(cluster.cluster_optics_xi, {"optics": order, "min_samples": 2})


def test_every_option_of_condensed_trees():
    condensed = condensed_tree(FRAME.simjoin.spanning_tree(), 2)
    check(condensed_tree, {"tree": FRAME.simjoin.spanning_tree()})
    check(choose_clusters, {"condensed": condensed})


@pytest.mark.slow
def test_every_option_of_estimators():
    x = FRAME[["x", "y"]].to_numpy()
    kinds = (
        (cluster.DBSCAN, {"eps": 1.0}),
        (cluster.OPTICS, {"max_eps": 1.0}),
        (HDBSCAN, {}),
    )
    for turn, (kind, given) in enumerate(kinds):

        def fit(kind=kind, **given):
            kind(**given).fit(x)

        fit.__signature__ = inspect.signature(kind)
        check(fit, given, turn)


def test_sizes_of_numpy():
    lazy = dd.from_pandas(FRAME, npartitions=2)
    for size in (np.int64(100), np.uint8(100), np.float32(100)):
        one, other = (
            lazy.simjoin.self_join(1.0, blocksize=given) for given in (size, 100)
        )
        assert one.npartitions == other.npartitions > 1
    with pytest.raises(
        OptionError,
        match=r"blocksize=(np|numpy)\.timedelta64\(1,'s'\) is not allowed; use a number",
    ):
        lazy.simjoin.self_join(1.0, blocksize=np.timedelta64(1, "s"))


def test_chunks_are_for_the_samples_that_there_are():
    """Each row was a chunk of its own."""
    lazy = dd.from_pandas(FRAME, npartitions=2)
    for samples in (2, 10**30):
        assert (
            len(lazy.simjoin.optics(1.0, samples, mode="forest").expr.plan.chunks) == 1
        )


@pytest.mark.parametrize("mode", ["edges", "forest"])
def test_more_samples_than_numbers_have_bits(mode):
    for one in (FRAME, dd.from_pandas(FRAME, npartitions=2)):
        order = one.simjoin.optics(1.0, 10**30, mode=mode)
        order = order if one is FRAME else order.compute(scheduler="sync")
        assert np.isinf(order.core_distance).all() and order.ordering.tolist() == list(
            range(12)
        )
        labels = one.simjoin.dbscan(1.0, 10**30)
        assert set(labels if one is FRAME else labels.compute(scheduler="sync")) == {-1}
    with pytest.raises(
        OptionError, match=r"min_samples=13 is not allowed for 12 rows; use a smaller"
    ):
        cluster.cluster_optics_xi(FRAME.simjoin.optics(1.0), 13)


def test_choices_that_are_arrays():
    for verb, name in (("optics", "mode"), ("join", "how"), ("neighbor_graph", "mode")):
        with pytest.raises(
            OptionError,
            match=rf"{name}=array\(\['a', 'b'\].* is not allowed; use one of '",
        ):
            getattr(FRAME.simjoin, verb)(**VERBS[verb] | {name: np.array(["a", "b"])})


@pytest.mark.parametrize(
    "number", [decimal.Decimal("0.5"), 3, np.float64(1), fractions.Fraction(1, 2)]
)
def test_objects_that_are_numbers(number):
    frame = pd.DataFrame({"x": pd.Series([number] * 3, dtype=object)})
    message = rf"holds an? {type(number).__name__} in row 0 .*\.astype\('float64'\)"
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = dd.from_pandas(frame, npartitions=1)
    for one in (frame, lazy):
        with pytest.raises(CoordinateError, match=message):
            len(one.simjoin.self_join(1.0, on="x"))
    assert len(frame.astype("float64").simjoin.self_join(1.0, on="x")) == 3
