"""Some cases of the programs `tests.checks.neighbor_cases`, `tree_cases` and
`unit_cases`.
"""

import dask
import numpy as np
import pytest

from tests.checks import neighbor_cases, tree_cases, unit_cases
from tests.support.profiles import every_nth, in_turns

SEED = 2026


@pytest.mark.filterwarnings("ignore")
@in_turns(
    1,
    case=every_nth(4, range(12)),
    program=[neighbor_cases, tree_cases, unit_cases],
)
def test_random_cases(program, case):
    name = program.__name__
    with dask.config.set(scheduler="sync"):
        covered = program.run_case(np.random.default_rng([SEED, case]))
    assert covered, f"python -m {name} --seed {SEED} --case {case}"
