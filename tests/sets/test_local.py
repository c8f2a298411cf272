"""Plans and profiles of joins of sets, and joins of sets and texts by several threads."""

import threading

import dask.dataframe as dd
import numpy as np
import pytest

from dask_simjoin.errors import BudgetError, DeprecatedWarning
from dask_simjoin.planning import budget
from dask_simjoin.sets import near_duplicates, pairs
from dask_simjoin.sets.cpu import joiner
from dask_simjoin.sets.local import LocalSets
from dask_simjoin.sets.methods import CHOICES, METHODS
from dask_simjoin.sets.requests import CountSetPairsRequest
from tests.support.gates import PATIENCE, until
from tests.support.profiles import chosen, every_nth

HOW = {"on": "text", "threshold": 0.7, "tokenizer": "whitespace"}


@pytest.mark.parametrize("method", CHOICES)
def test_profiles_count_what_a_method_does(frame, method):
    found = frame.simjoin.profile(**HOW, method=method)
    truth = frame.simjoin.count_set_pairs(**HOW)
    numbers = found.numbers
    distinct = {frozenset(text.split()) for text in frame["text"]}
    assert numbers["values"] == len(distinct)
    assert numbers["pairs"] == truth
    compared = numbers["comparisons"]
    assert numbers["candidates"] >= compared >= numbers["distinct_pairs"] > 0
    assert list(found.seconds) == ["read", "index", "join"]
    assert found.method == method and found.rows == 4000
    assert repr(found).startswith("Profile of a self-join of sets\n")
    assert "candidates" in found.to_frame().index and found.svg().startswith("<svg")


def test_a_profile_of_a_lazy_frame_with_options(frame):
    ddf = dd.from_pandas(frame, npartitions=2)
    found = ddf.simjoin.profile(**HOW, method=METHODS["ppjoin"])
    assert found.numbers == frame.simjoin.profile(**HOW, method="ppjoin").numbers
    with pytest.warns(DeprecatedWarning, match=r"use profile\(threshold=\.\.\.\)"):
        assert frame.simjoin.set_profile(**HOW, method="ppjoin").rows == found.rows


# --- threads ------------------------------------------------------------------------


@pytest.fixture
def little(monkeypatch):
    """Give threads so little work that small tables are joined by several."""
    monkeypatch.setattr(joiner, "MIN_PART", 64)
    monkeypatch.setattr(joiner, "BATCH", 256)


@pytest.fixture
def tables(frame):
    """Two tables of texts, with empty and missing ones, groups and labels."""
    rng = np.random.default_rng(1)
    frame = frame.iloc[:1500].copy()
    frame.loc[rng.integers(0, 1500, 20), "text"] = ""
    frame.loc[rng.integers(0, 1500, 20), "text"] = None
    frame["group"] = [f"g{k % 3}" for k in range(1500)]
    frame.index = rng.permutation(1500) * 3
    return frame, frame.sample(frac=0.4, random_state=2)


SETS = HOW | {"threshold": 0.6}
EDITS = {"on": "text", "k": 3}
VERBS = {
    "pairs": lambda f, g, how: f.simjoin.set_self_join(
        **SETS, return_similarity=True, keep="group", **how
    ),
    "special": lambda f, g, how: g.simjoin.set_join(
        f, **SETS, allow_empty=True, allow_missing=True, return_similarity=True, **how
    ),
    "left": lambda f, g, how: f.simjoin.set_join(g, **SETS, how="left", **how),
    "anti": lambda f, g, how: f.simjoin.set_join(g, **SETS, how="leftanti", **how),
    "equal": lambda f, g, how: f.simjoin.set_self_join(**SETS, comparison="=", **how),
    "number": lambda f, g, how: f.simjoin.count_set_pairs(**SETS, **how),
    "counts": lambda f, g, how: f.simjoin.set_neighbor_counts(**SETS, **how),
    "marks": lambda f, g, how: f.simjoin.set_near_duplicated(**SETS, **how),
    "any": lambda f, g, how: f.simjoin.set_near_duplicated(**SETS, keep=False, **how),
    "connected": lambda f, g, how: f.simjoin.drop_set_near_duplicates(
        **SETS, grouping="connected", keep="last", **how
    ),
    **{
        method: lambda f, g, how, method=method: f.simjoin.set_self_join(
            **SETS, method=method, **how
        )
        for method in METHODS
    },
    "edits": lambda f, g, how: f.simjoin.edit_self_join(
        **EDITS, by="group", return_distance=True, **how
    ),
    "edits of two": lambda f, g, how: g.simjoin.edit_join(
        f, "text", similarity=0.8, transpositions=True, how="left", **how
    ),
    "number of edits": lambda f, g, how: f.simjoin.count_edit_pairs(**EDITS, **how),
    "counts of edits": lambda f, g, how: f.simjoin.edit_neighbor_counts(**EDITS, **how),
    "marks of edits": lambda f, g, how: f.simjoin.edit_near_duplicated(**EDITS, **how),
}


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("verb", every_nth(4, VERBS))
def test_any_number_of_threads_gives_the_same(verb, tables):
    expected = VERBS[verb](*tables, {"threads": 1})
    for threads in chosen([2, 7, 32], [2, 7]):
        found = VERBS[verb](*tables, {"threads": threads})
        if verb.startswith("number"):
            assert found == expected > 100
        else:
            assert found.equals(expected) and len(found) > 50  # in the same order


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("verb", ["pairs", "marks"])
def test_several_threads_refuse_what_does_not_fit(verb, frame, monkeypatch):
    made = []
    real = pairs._matches_of

    def noted(*how):
        for found in real(*how):
            made.append(len(found.left))
            yield found

    monkeypatch.setattr(pairs, "_matches_of", noted)
    frame = frame.assign(group=0)
    VERBS[verb](frame, None, {"threads": 3})
    every = sum(made)
    made.clear()
    monkeypatch.setattr(budget, "SPARE_BYTES", 0)
    for module in (budget, near_duplicates):
        monkeypatch.setattr(module, "free_memory", lambda: 40_000)
    with pytest.raises(BudgetError):
        VERBS[verb](frame, None, {"threads": 3})
    assert sum(made) < every / 2


def test_an_error_of_a_thread_ends_the_searches_of_others(frame, little):
    block = LocalSets([frame], CountSetPairsRequest(**HOW).spec(frame)).chunks()[0]
    rule = CountSetPairsRequest(**HOW).spec(frame).rule
    main = threading.main_thread()

    for error, by_main in ((KeyboardInterrupt, True), (MemoryError, False)):
        search, others = joiner.JOINER.search(block, None, rule, "auto"), []
        begun = threading.Event()

        def work(own, by_main=by_main, error=error, begun=begun, others=others):
            if (threading.current_thread() is main) == by_main:
                assert begun.wait(PATIENCE)
                raise error("here")
            assert own.next is not None
            begun.set()
            until(lambda: own.next is None, "the other search goes on")
            others.append(own.part)

        with pytest.raises(error, match="here"):
            search.by_threads(2, work)
        assert len(others) == 1
