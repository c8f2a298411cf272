"""One-to-one joins of plain and lazy tables."""

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import DuplicateIdError, OptionError
from tests.support.frames import split
from tests.support.profiles import examples
from tests.tasks.test_matching import by_definition

POINTS = st.lists(st.tuples(*[st.integers(0, 4)] * 2), min_size=1, max_size=15)


@settings(max_examples=examples(60))
@given(
    left=POINTS,
    right=POINTS,
    how=st.sampled_from(["inner", "left", "right", "outer"]),
    data=st.data(),
)
def test_matches_are_those_of_the_definition(left, right, how, data):
    x, y = np.array(left, float), np.array(right, float)
    total = ((x[:, None] - y) ** 2).sum(-1)
    near = [(total[i, j], i, j) for i, j in np.argwhere(total <= 2).tolist()]
    wanted = [(i, j) for _, i, j in by_definition(near)]
    alone = [
        sorted({*range(len(s))} - {p[k] for p in wanted}) for k, s in ((0, x), (1, y))
    ]
    a, b = (pd.DataFrame(side, columns=["x", "y"]) for side in (x, y))
    a.loc[len(a)] = np.nan  # a row without coordinates has no partner
    alone[0].append(len(x))
    cuts = [data.draw(st.lists(st.integers(0, len(s)), max_size=2)) for s in (x, y)]
    kinds = st.sampled_from(["entity", "spatial", "auto"])
    for one, other, more in (
        (a, b, {}),
        (split(a, cuts[0]), split(b, cuts[1]), {"partitioning": data.draw(kinds)}),
    ):
        lazy = one.simjoin.join(
            other,
            2**0.5,
            how=how,
            matching="greedy",
            dropna=True,
            keep="x",
            return_distance=True,
            **more,
        )
        (found,) = dask.compute(lazy)
        assert list(found.dtypes) == list(lazy.dtypes)
        pairs = found[found["left"].notna() & found["right"].notna()]
        assert list(zip(pairs["left"], pairs["right"], strict=True)) == wanted
        squares = [round(distance**2) for distance in pairs["distance"]]
        assert squares == [total[pair] for pair in wanted]
        assert pairs["x_left"].tolist() == [x[i, 0] for i, _ in wanted]
        assert pairs["x_right"].tolist() == [y[j, 0] for _, j in wanted]
        for k, (side, away) in enumerate((("left", "right"), ("right", "left"))):
            rows = sorted(found[side][found[away].isna()])
            assert rows == (alone[k] if how in (side, "outer") else [])


@pytest.mark.parametrize("lazy", [False, True])
def test_own_distances_units_and_ids(lazy):
    left = pd.DataFrame({"lat": [0.0, 0.001, 0.01], "lon": 0.0, "r": [500.0, 1.0, 2e3]})
    right = pd.DataFrame({"lat": [0.0011, 0.0, 0.02], "lon": 0.0}, index=list("abc"))
    a, b = (split(left, [1]), split(right, [2])) if lazy else (left, right)
    how = {"on": ["lat", "lon"], "metric": "haversine", "matching": "greedy"}
    how |= {"return_distance": True, "distance_unit": "km", "how": "outer"}
    (found,) = dask.compute(a.simjoin.join(b, "r", **how))
    pairs = found.dropna()
    assert pairs[["left", "right"]].to_numpy().tolist() == [[0, "b"], [2, "a"]]
    assert pairs["distance"].round(2).tolist() == [0.0, 0.99]
    assert len(found) == 4


def test_what_is_refused():
    frame = pd.DataFrame({"x": [0.0, 1.0], "id": [7, 7]})
    with pytest.raises(
        OptionError, match="how='leftanti' is not allowed with matching"
    ):
        frame.simjoin.join(frame, 1, on="x", how="leftanti", matching="greedy")
    with pytest.raises(DuplicateIdError, match="In the left table"):
        frame.simjoin.join(frame, 1, on="x", left_id="id", matching="greedy")


@pytest.mark.parametrize("metric", ["canberra", "braycurtis", "hamming", "cosine"])
def test_metrics(metric):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(1, 5, (n, 3)).astype(float) for n in (20, 15))
    a, b = (pd.DataFrame(side, columns=["x", "y", "z"]) for side in (x, y))
    how = {"on": ["x", "y", "z"], "metric": metric, "return_distance": True}
    every = a.simjoin.join(b, 0.5, **how)
    rows = every[["distance", "left", "right"]].itertuples(index=False, name=None)
    wanted = {(i, j) for _, i, j in by_definition(list(rows))}
    for one, other in ((a, b), (split(a, [5]), split(b, [9]))):
        found = one.simjoin.join(other, 0.5, matching="greedy", **how)
        (found,) = dask.compute(found)
        assert set(zip(found["left"], found["right"], strict=True)) == wanted


TEXTS = st.lists(
    st.one_of(st.none(), st.text("ab", max_size=4)), min_size=1, max_size=12
)


@settings(max_examples=examples(40))
@given(left=TEXTS, right=TEXTS, how=st.sampled_from(["inner", "outer"]), data=st.data())
def test_texts_and_sets_are_matched_like_numbers(left, right, how, data):
    a, b = (pd.DataFrame({"t": pd.Series(side, dtype="str")}) for side in (left, right))
    verbs = {
        "distance": lambda one, other, **more: one.simjoin.edit_join(
            other, "t", 2, return_distance=True, **more
        ),
        "share": lambda one, other, **more: one.simjoin.edit_join(
            other, "t", similarity=0.4, return_distance=True, **more
        ),
        "similarity": lambda one, other, **more: one.simjoin.set_join(
            other, "t", 0.3, tokenizer=("qgrams", 2), return_similarity=True, **more
        ),
    }
    cuts = [data.draw(st.lists(st.integers(0, len(s)), max_size=2)) for s in (a, b)]
    for kind, verb in verbs.items():
        pairs = verb(a, b)
        score = pairs.columns[-1]
        rank = pairs[score] if kind == "distance" else -pairs[score]
        if kind == "share":
            sizes = [
                frame["t"].str.len()[pairs[side]].tolist()
                for side, frame in (("left", a), ("right", b))
            ]
            rank = pairs[score] / np.maximum(np.maximum(*sizes), 1)
        ranked = zip(rank, pairs["left"], pairs["right"], strict=True)
        wanted = [(i, j) for _, i, j in by_definition(list(ranked))]
        scores = dict(
            zip(
                zip(pairs["left"], pairs["right"], strict=True),
                pairs[score],
                strict=True,
            )
        )
        for one, other in ((a, b), (split(a, cuts[0]), split(b, cuts[1]))):
            lazy = verb(one, other, how=how, matching="greedy", keep="t")
            (found,) = dask.compute(lazy)
            assert list(found.dtypes) == list(lazy.dtypes)
            both = found.dropna(subset=["left", "right"])
            assert list(zip(both["left"], both["right"], strict=True)) == wanted
            assert both[score].tolist() == [scores[pair] for pair in wanted]
            assert both["t_left"].tolist() == a["t"].iloc[both["left"]].tolist()
            alone = len(a) + len(b) - 2 * len(wanted)
            assert len(found) == len(wanted) + (alone if how == "outer" else 0)


def test_what_texts_and_sets_refuse():
    frame = pd.DataFrame({"t": ["a", "b"]})
    for verb, limit in (("edit_join", 1), ("set_join", 0.5)):
        join = getattr(frame.simjoin, verb)
        tokens = {"tokenizer": "words"} if verb == "set_join" else {}
        with pytest.raises(OptionError, match="best=True is not allowed with matching"):
            join(frame, "t", limit, best=True, matching="greedy", **tokens)
        with pytest.raises(OptionError, match="how='leftsemi' is not allowed with"):
            join(frame, "t", limit, how="leftsemi", matching="greedy", **tokens)
        with pytest.raises(OptionError, match="matching='best' is not allowed"):
            join(frame, "t", limit, matching="best", **tokens)
