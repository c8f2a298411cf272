"""Nested loops: the pairs of the definition by either schedule, and each two blocks
once.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.errors import OptionError
from dask_simjoin.papers.cpu import nested
from dask_simjoin.papers.lists import BLOCKS, SCHEDULES, NestedLoop
from dask_simjoin.planning.sample import moments
from tests.engine.cpu.test_joiner import check
from tests.support.method_checks import check_cuts, check_labels, check_norm
from tests.support.points import cases, frame_of
from tests.support.profiles import chosen, examples, in_turns

partners = nested.partners.py_func

any_options = st.builds(
    NestedLoop, schedule=st.sampled_from(SCHEDULES), block=st.sampled_from(BLOCKS)
)


@settings(max_examples=examples(300))
@given(cases(), any_options)
def test_any_points_and_options(case, options):
    check(case.x, case.eps, case.cuts, method=options)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    cases(max_dims=4, max_points=100),
    any_options,
    st.sampled_from(chosen([1, 3, math.inf], [3])),
)
def test_other_norms(case, options, norm):
    check_norm(case.x, case.eps, options, norm, norm)


@settings(max_examples=examples(60))
@given(cases(max_dims=6), any_options, st.integers(0, 5), st.integers(0, 5))
def test_any_cut_of_queries_gives_each_pair_once(case, options, a, b):
    x = np.asarray(case.x, float)
    if not len(x):
        return
    m = moments(x)
    layout = JOINER.layout(options, m.lower, m.upper, m.mean, m.variance, case.eps**2)
    cuts = sorted({0, *(min(k * layout.grain, len(x)) for k in (a, b)), len(x)})
    check_cuts(JOINER, x, case.eps, layout, cuts)


@pytest.mark.slow
def test_dbscan_and_two_tables_are_those_of_other_methods(how):
    check_labels(how, [NestedLoop(schedule=schedule) for schedule in SCHEDULES])


def test_profile_and_plan():
    frame = frame_of(np.random.default_rng(0).uniform(size=(300, 4)))
    told = frame.simjoin.profile(0.3, method="nested_loop").numbers
    assert (
        told["candidates"] == told["comparisons"] == 300 * 299 // 2 == told["terms"] / 4
    )
    assert told["compared_ratio"] == 1.0 and told["pairs"] == frame.simjoin.count_pairs(
        0.3
    )
    assert frame.simjoin.profile(0.3, method="tiles").numbers["compared_ratio"] <= 1.0
    assert "nested loops, rotation of blocks of 64 rows" in repr(
        frame.simjoin.plan(0.3, method=NestedLoop(block=64))
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schedule", "square"),
        ("block", 48),
        ("block", True),
        ("precision", "int8"),
        ("batches", 0),
        ("streams", 65),
        ("buffer", 0),
        ("sample", 1),
    ],
)
def test_options_are_checked(name, value):
    with pytest.raises(OptionError, match=rf"NestedLoop\({name}="):
        NestedLoop(**{name: value})


def test_rows_and_parts_of_them_keep_their_order():
    x = np.asfortranarray(np.random.default_rng(0).normal(size=(50, 3)))
    index = nested.build(x, None)
    assert nested.points(index).tolist() == x.tolist() and index["y"].flags.c_contiguous
    assert (
        index["order"][:50].tolist() == list(range(50))
        and nested.end(index, 7, None) == 50
    )
    part = nested.part(index, 10, 30)
    assert part["y"].tolist() == x[10:30].tolist() and part["order"][
        :20
    ].tolist() == list(range(10, 30))
    # read as vectors
    assert len(part["order"]) - len(part["y"]) == len(index["order"]) - len(index["y"])


@in_turns(
    1, schedule=list(SCHEDULES), n=[0, 1, 2, 31, 32, 33, 63, 64, 65, 96, 128, 129, 160]
)
def test_around_the_width_of_blocks(schedule, n):
    """Odd and even numbers of blocks of 32 rows, the last one whole or not; half of the
    rows coincide.
    """
    x = np.random.default_rng(n).integers(0, 4, (n, 2)).astype(float)
    check(x, 1.0, (n // 2,), method=NestedLoop(schedule=schedule, block=32))


@pytest.mark.parametrize("blocks", range(1, 10))
def test_each_two_blocks_meet_once(blocks):
    met = [
        (b, (b + i) % blocks)
        for b in range(blocks)
        for i in range(partners(blocks * 32, 32, b))
    ]
    assert sorted({frozenset(two) for two in met}, key=sorted) == sorted(
        (
            frozenset(two)
            for two in itertools.combinations_with_replacement(range(blocks), 2)
        ),
        key=sorted,
    )
    assert len(met) == blocks * (blocks + 1) // 2
    loads = [partners(blocks * 32, 32, b) for b in range(blocks)]
    assert max(loads) - min(loads) <= 1


def test_without_the_rule_for_an_even_number_pairs_are_lost_or_repeated():
    """What the thesis avoids by padding to an odd number of blocks, with rows that pair
    with each other.
    """
    for most in (lambda n: n // 2, lambda n: n // 2 + 1):
        met = [frozenset((b, (b + i) % 6)) for b in range(6) for i in range(most(6))]
        assert len(set(met)) != 21 or len(met) != 21
