"""Work for NVIDIA's compute-sanitizer: every kernel of set joins, on few sets, by every
method.

compute-sanitizer --tool memcheck python -m tests.sets.gpu.sanitized compute-sanitizer
--tool racecheck --kernel-name-exclude kernel_substring=cupy_ python -m ...

Two numbers may follow, `FIRST STEP`: every STEP-th method from FIRST on, so that parts
run side by side.
"""

import sys
from fractions import Fraction

import cupy
import numpy as np

from dask_simjoin.sets.gpu.joiner import JOINER
from dask_simjoin.sets.predicate import Rule
from tests.sets.gpu.cases import METHODS
from tests.support.sets_joins import check, random_sets


def main(first: int = 0, step: int = 1) -> None:
    """Join by the methods, and compare with the definition."""
    rng = np.random.default_rng(0)
    left, right = (random_sets(rng, 120, 60, 40) for _ in range(2))
    for method in METHODS[first::step]:
        for similarity, comparison in (
            ("jaccard", ">="),
            ("cosine", "="),
            ("overlap", ">"),
        ):
            threshold = Fraction(4) if similarity == "overlap" else Fraction("0.6")
            for other in (None, right):
                check(
                    JOINER,
                    left,
                    other,
                    Rule(similarity, threshold, comparison),
                    method,
                    cupy,
                )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
