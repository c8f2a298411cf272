"""The GPU's joins of sets without a GPU: their driver, and their CUDA C++, barriers and
all, on the host.
"""

from fractions import Fraction

import numpy as np
import pytest

from dask_simjoin.sets.methods import PPJoin
from dask_simjoin.sets.predicate import COMPARISONS, SIMILARITIES, Rule
from tests.sets.gpu.cases import METHODS
from tests.support import host_gpu
from tests.support.profiles import chosen
from tests.support.sets_joins import (
    THRESHOLDS,
    check,
    check_in_parts,
    on_device,
    pairs_of,
    random_sets,
    rule_values,
)
from tests.support.sets_oracle import block_of, matching

EVERY = [(method, two) for method in METHODS for two in (False, True)]
FEW = [(method, two) for k, (method, two) in enumerate(EVERY) if k % 16 in (0, 7)]
"""Methods in turns with one table and with two."""


@pytest.mark.parametrize(("method", "two"), chosen(EVERY, FEW), ids=str)
def test_pairs_are_those_by_definition(device, method, two):
    cupy, joiner = device
    rng = np.random.default_rng(1)
    rules = [(s, c) for s in SIMILARITIES for c in COMPARISONS]
    for k, (similarity, comparison) in enumerate(
        chosen(rules, rules[(METHODS.index(method) + two) % 12 :][:1])
    ):
        left, right = (
            random_sets(rng, 25, 20, (4, 12, 18)[METHODS.index(method) % 3])
            for _ in range(2)
        )
        threshold = rule_values(similarity, THRESHOLDS[k % len(THRESHOLDS)])
        rule = Rule(similarity, threshold, comparison)
        check(joiner, left, right if two else None, rule, method, cupy)


@pytest.mark.parametrize("method", chosen(METHODS, METHODS[4::8]), ids=str)
def test_pairs_in_parts_are_all_pairs(device, method):
    cupy, joiner = device
    rng = np.random.default_rng(2)
    q, sets = block_of(random_sets(rng, 40, 30, 12))
    rule = Rule("jaccard", Fraction("0.6"))
    check_in_parts(
        joiner, q, None, rule, method, matching(sets, None, rule), (1, 30), cupy
    )


def test_sets_larger_than_shared_memory(device):
    cupy, joiner = device
    first = list(range(13_000))
    q, _ = block_of([first, first[:-1], first[:12_000], [5, 13_000]])
    d, _ = block_of([first[1:], [5]])
    for method in (PPJoin(filter="cpu", verify=way, block=32) for way in "BC"):
        found = joiner.pairs(
            on_device(q, cupy), None, Rule("jaccard", Fraction("0.95")), method
        )
        assert pairs_of(found) == {(2, 3): 12_999}
        found = joiner.pairs(
            *(on_device(one, cupy) for one in (q, d)),
            Rule("overlap", Fraction(1)),
            method,
        )
        overlaps = [[1, 1], [1, 11_999], [1, 12_998], [1, 12_999]]
        assert pairs_of(found) == {
            (i, j): o for i, row in enumerate(overlaps) for j, o in enumerate(row)
        }


def test_buffers_are_filled_again_once_they_are_copied(device, monkeypatch):
    """A GPU copies when it comes to it: here, when something waits for what was asked
    of it before.
    """
    from dask_simjoin.sets.gpu.candidates import HostFilter, chunks, prefixes
    from dask_simjoin.sets.gpu.launches import Operands

    cupy, _ = device
    asked = []

    class Recorded(host_gpu.Event):
        def __init__(self):
            self.before = len(asked)

        def synchronize(self):
            for column, values in asked[: self.before]:
                column[...] = values
            asked[: self.before] = [
                (column, column.copy()) for column, _ in asked[: self.before]
            ]

    block, _ = block_of(random_sets(np.random.default_rng(3), 60, 30, 12))
    join = Operands.of(on_device(block, cupy), None, Rule("jaccard", Fraction("0.5")))
    monkeypatch.setattr(
        host_gpu.Array, "set", lambda column, values: asked.append((column, values))
    )
    monkeypatch.setattr(host_gpu.Stream, "record", lambda stream: Recorded())

    def found(room):
        asked.clear()
        filters = HostFilter(join, prefixes(join, groups=False), 0, positional=False)
        parts = [part.found for part in chunks(filters, len(join.left), room)]
        return [
            (probe, candidate)
            for part in parts
            for k, probe in enumerate(part.probes.tolist())
            for candidate in part.candidates[
                int(part.starts[k]) : int(part.starts[k + 1])
            ].tolist()
        ]

    whole = found(10**6)
    assert len(whole) > 100
    assert found(10) == whole
