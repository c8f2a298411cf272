"""Edit joins at random against brute force, of plain frames and of Dask's.

``python -m tests.checks.random_edits --cases 5000 --seed 0`` runs many; ``--seed 0
--case 17`` runs one.
"""

from __future__ import annotations

import argparse
import collections
import time
import traceback

from tests.support.edits import run_case


def main() -> int:
    """Run the cases; return 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int)
    given = parser.parse_args()
    begin, verbs, wrong = time.perf_counter(), collections.Counter[str](), 0
    for case in range(given.cases) if given.case is None else [given.case]:
        try:
            verbs[run_case(given.seed, case)] += 1
        except Exception:
            wrong += 1
            traceback.print_exc()
            print(
                f"repeat: python -m tests.checks.random_edits --seed {given.seed} "
                f"--case {case}",
                flush=True,
            )
    print(
        f"{sum(verbs.values())} cases in {time.perf_counter() - begin:.0f} s, {wrong} "
        f"wrong: {dict(verbs)}"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
