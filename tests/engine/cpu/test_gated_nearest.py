"""Searches with gates find the nearest rows that the definition allows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.gated_nearest import FAN_OUT
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.cpu.nearest import SEARCHER
from dask_simjoin.engine.gated import GatedSearch, PairsSearch, totals_of
from dask_simjoin.metrics import gates
from dask_simjoin.metrics.formulas import (
    BRAY_CURTIS,
    CANBERRA,
    DIFFERENCES,
    HAMMING,
)
from dask_simjoin.metrics.gates import (
    NUMBERS,
    OPEN,
    RELATIVE,
    TIMES,
    UNLIKE,
    Compared,
    Gate,
    Gates,
)
from tests.engine.cpu import test_gated as joins
from tests.support.oracle import squared_distances
from tests.support.profiles import examples

RULES = [
    Gate(TIMES, -5, 0),
    Gate(TIMES, -OPEN, -1),
    Gate(TIMES, -(2**62), OPEN),
    Gate(NUMBERS, -2.0, 0.5),
    Gate(NUMBERS, 1.0, np.inf),
    Gate(RELATIVE, high=0.25),
    Gate(UNLIKE),
]

EXTREMES = np.array([-(2**63), 2**63 - 1, -1, 0])


def values_for(rule, rows, rng):
    """Return values of a gate, as int64, with many ties."""
    if rule.kind == TIMES:
        found = rng.integers(0, 20, rows)
        return np.where(rng.random(rows) < 0.1, rng.choice(EXTREMES, rows), found)
    if rule.kind == UNLIKE:
        return rng.integers(0, 3, rows)
    return (rng.integers(-6, 7, rows) / 2).view(np.int64)


def points(x, values, rules, compared):
    """Return the columns of an index: see `GatedLayout`."""
    within = sum(rule.kind != UNLIKE for rule in rules)
    columns = [x, np.zeros((len(x), within))]
    columns += [gates.words_of(some) for some in values]
    columns += [gates.words_of(x[:, k].copy()) for k in range(compared.numbers)]
    return np.concatenate(columns, axis=1)


def gates_of(rules):
    within = tuple(f"t{g}" for g, rule in enumerate(rules) if rule.kind != UNLIKE)
    # tolerances have a coordinate, and come first
    return Gates(within, rules=tuple(rules))


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from(RULES), max_size=2),
    st.sampled_from(
        [
            Compared(),
            Compared(2, 2, (4.0, 0.0)),
            Compared(2, 2, (), HAMMING),
            Compared(2, 2, (), CANBERRA),
            Compared(2, 2, (), BRAY_CURTIS),
        ]
    ),
    st.integers(0, 2**32),
    st.sampled_from([1, 3, 40]),
    st.booleans(),
    st.sampled_from([(0.0, np.inf), (0.25, 3.0), (0.0, 0.0)]),
)
def test_neighbors(rules, compared, seed, k, is_self_join, limits):
    rng = np.random.default_rng(seed)
    rules = sorted(rules, key=lambda rule: rule.kind == UNLIKE)
    norm = 2 if compared.formula == DIFFERENCES else 1
    layout = GatedSearch(gates_of(rules), compared, norm)
    sizes = [int(rng.integers(0, 5 * FAN_OUT)) for _ in range(2)]
    rows = [rng.integers(0, 4, (n, 2)) / rng.choice([1, 2]) for n in sizes]
    values = [[values_for(rule, len(x), rng) for rule in rules] for x in rows]
    built = [
        JOINER.build(points(x, own, rules, compared), layout)
        for x, own in zip(rows, values, strict=True)
    ]
    # the queries are the first table; the data is both, or the second one with names
    names = rng.permutation(sizes[1]) + sizes[0]
    query = SEARCHER.renamed(built[0], 0)
    data = [SEARCHER.renamed(built[1], names.astype(np.int64))]
    data += [query] if is_self_join else []
    n = sizes[0]
    best, found = SEARCHER.fresh(n, k)
    for one in data:
        for start, stop in ((0, min(n, 64)), (min(n, 64), n)):
            part = SEARCHER.part(query, start, stop)
            SEARCHER.nearest(
                part,
                one,
                layout,
                best,
                found,
                is_self_join=is_self_join,
                least2=limits[0],
                bound2=limits[1],
            )
    want = [[] for _ in range(n)]
    for side, own in enumerate((np.arange(n), names)):
        if not side and not is_self_join:
            continue
        i, j = (some.ravel() for some in np.indices((n, sizes[side])))
        pairs = (rows[0][i], rows[side][j])
        total = totals_of(
            zip(pairs[0].T, pairs[1].T, strict=True), compared, norm
        ) * np.ones(len(i))
        allowed = (limits[0] <= total) & (total <= limits[1])
        if rules:
            one, other = (
                np.stack([some[at] for some in values[s]], axis=1)
                for s, at in ((0, i), (side, j))
            )
            allowed &= layout.gates.allow(one, other)
        allowed &= bool(side) | (i != j)
        for a, b, far in zip(i[allowed], own[j[allowed]], total[allowed], strict=True):
            want[a].append((far, b))
    for row, expected in enumerate(want):
        nearest = sorted(expected)[:k]
        number = len(nearest)
        assert found[row, :number].tolist() == [name for _, name in nearest]
        assert best[row, :number].tolist() == [far for far, _ in nearest]
        assert (found[row, number:] == -1).all()


@pytest.mark.parametrize(
    "rules",
    [
        [Gate(TIMES, -OPEN, -1)],
        [Gate(UNLIKE)],
        [Gate(TIMES, 1, 10), Gate(RELATIVE, high=0.5)],
    ],
)
def test_a_box_whose_rows_no_gate_allows_is_not_visited(rules):
    # 50,000 equal rows: all pairs would take minutes
    n = 50_000
    values = [np.ones(n, np.int64) for _ in rules]
    x = points(np.zeros((n, 2)), values, rules, Compared())
    layout = GatedSearch(gates_of(rules), Compared())
    index = SEARCHER.renamed(JOINER.build(x, layout), 0)
    best, found = SEARCHER.fresh(n, 1)
    SEARCHER.nearest(index, index, layout, best, found, is_self_join=True)
    assert (found == -1).all()


def test_of_equal_rows_the_first_ones_are_found():
    n, k = 50_000, 2
    x = points(np.zeros((n, 2)), [np.arange(n)], [Gate(TIMES, -OPEN, -1)], Compared())
    layout = GatedSearch(gates_of([Gate(TIMES, -OPEN, -1)]), Compared())
    index = SEARCHER.renamed(JOINER.build(x, layout), 0)
    best, found = SEARCHER.fresh(n, k)
    SEARCHER.nearest(index, index, layout, best, found, is_self_join=True)
    assert found[0].tolist() == [-1, -1] and found[1].tolist() == [0, -1]
    assert (found[2:] == [0, 1]).all()


def test_nearest_rows_among_the_pairs():
    rng = np.random.default_rng(6)
    one = joins.points(rng, 150)
    layout = PairsSearch(joins.layout_of(one[3], "tiles"))
    assert layout.in_words(str).endswith("rows search among their pairs")
    index = SEARCHER.renamed(JOINER.build(one[3], layout), 0)
    best, names = SEARCHER.fresh(150, 2)
    for start, stop in ((0, 64), (64, 150)):
        part = SEARCHER.part(index, start, stop)
        SEARCHER.nearest(
            part, index, layout, best, names, is_self_join=True, bound2=joins.LIMIT
        )
    total = squared_distances(one[0], one[0])
    total[~joins.allowed(one, one) | np.eye(150, dtype=bool)] = np.inf
    for i in range(150):
        order = np.argsort(total[i], kind="stable")[:2]
        want = [int(j) if total[i, j] < np.inf else -1 for j in order]
        assert names[i].tolist() == want
