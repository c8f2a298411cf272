"""The GPU's joins of sets against the definition: pure functions, no Dask, no data
frames.
"""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")

from dask_simjoin.sets.gpu.candidates import ANY
from dask_simjoin.sets.gpu.joiner import JOINER
from dask_simjoin.sets.gpu.verify import COLUMNS
from dask_simjoin.sets.methods import Bitmap, GroupJoin, PPJoin
from dask_simjoin.sets.predicate import COMPARISONS, SIMILARITIES, Rule
from tests.sets.gpu.cases import METHODS
from tests.support.profiles import examples
from tests.support.sets_joins import (
    THRESHOLDS,
    check,
    check_blocks,
    check_in_parts,
    dense_matching,
    rule_values,
)

pytestmark = pytest.mark.gpu

RULES = [
    {"KIND": kind, "EXACTLY": exactly} for exactly in range(2) for kind in range(3)
]


def programs():
    """Most of what is run: bitmaps have as many words as sets of these sizes get, or
    methods ask for.
    """
    any_sets = [
        ("sets/index", "look_up", ANY),
        ("sets/groups", "count_members", {"WORDS": 0}),
        ("sets/verify", "flatten", {}),
        *(("sets/verify", "take_pairs", {"SINK": k}) for k in range(3)),
        *(
            ("sets/bitmaps", "make_bitmaps", {"WORDS": w, "ROWS": 0})
            for w in (1, 2, 4, 8, 16, 32)
        ),
    ]
    found = [
        ("sets/verify", "verify_pairs", rule | {"SINK": k})
        for rule in RULES
        for k in range(3)
    ]
    for rule in RULES:
        tiles = {"COLUMNS": COLUMNS} | rule
        found += [
            ("sets/bitmaps", "survivors", tiles | {"WORDS": w, "ROWS": rows})
            for w, rows in ((2, 128), (1, 32), (32, 96), (2, 64))
        ]
        found += [
            ("sets/index", "meet", ANY | rule | {"WORDS": w, "POSITIONAL": p})
            for w, p in ((2, 1), (4, 1), (2, 0), (0, 1), (0, 0))
        ]
        found += [("sets/groups", "expand", rule | {"WORDS": w}) for w in (0, 2)]
    return any_sets + found


SETS = st.lists(st.frozensets(st.integers(0, 14), min_size=1, max_size=12), max_size=20)


@pytest.mark.parametrize("comparison", COMPARISONS)
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_pairs_are_those_by_definition(similarity, comparison):
    @settings(max_examples=examples(120), deadline=None)
    @given(
        SETS, st.none() | SETS, st.sampled_from(THRESHOLDS), st.sampled_from(METHODS)
    )
    def check_some(left, right, threshold, method):
        check(
            JOINER,
            left,
            right,
            Rule(similarity, rule_values(similarity, threshold), comparison),
            method,
            cupy,
        )

    check_some()


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("which", [(0, None), (0, 1), (2, None), (1, 2)], ids=str)
def test_many_sets(many, which, method):
    small = getattr(method, "chunk_bytes", None)
    if small is not None and small <= 1000:
        pytest.skip("for few sets")
    q, d = (None if k is None else many[k] for k in which)
    for similarity, threshold in (
        ("jaccard", "0.8"),
        ("cosine", "0.6"),
        ("jaccard", "0.5"),
    ):
        rule = Rule(similarity, Fraction(threshold))
        check_blocks(JOINER, q, d, rule, method, dense_matching(q, d, rule), cupy)


WAYS = ("auto", "thread", "warp", "A", "B", "C")


@pytest.mark.parametrize("block", [32, 64, 96, 128, 256])
@pytest.mark.parametrize("verify", WAYS)
def test_ways_to_verify_and_blocks(many, verify, block):
    rule = Rule("dice", Fraction("0.7"))
    for which in (0, 2):
        expected = dense_matching(many[which], None, rule)
        for kind, more in ((Bitmap, {}), (PPJoin, {}), (PPJoin, {"filter": "cpu"})):
            method = kind(verify=verify, block=block, **more)
            check_blocks(JOINER, many[which], None, rule, method, expected, cupy)


@pytest.mark.parametrize(
    "method",
    [
        Bitmap(),
        PPJoin(),
        GroupJoin(),
        PPJoin(filter="cpu"),
        GroupJoin(filter="cpu", members="cpu"),
    ],
)
def test_pairs_in_parts_are_all_pairs(many, method):
    rule = Rule("jaccard", Fraction("0.6"))
    for q, d in ((many[0], None), (many[0], many[1])):
        expected = dense_matching(q, d, rule)
        check_in_parts(JOINER, q, d, rule, method, expected, (3000, 10**7), cupy)
