"""The rules by which versions are made and removed, in every order of their steps: see
the program.
"""

import pytest

from tests.checks.versions_model import MUTANTS, SHORT, Rules, explore, mutant
from tests.support.profiles import every_nth


@pytest.mark.parametrize("name", every_nth(4, SHORT))
def test_the_guarantees_hold_in_every_order_of_steps(name):
    states, steps, broken = explore(Rules(), SHORT[name])
    assert broken is None
    assert 50 < states < steps


@pytest.mark.parametrize("name", MUTANTS)
def test_every_rule_is_needed(name):
    assert mutant(name)[2] is not None


def test_every_rule_is_left_out_once():
    assert set(MUTANTS) == set(Rules.__annotations__)
