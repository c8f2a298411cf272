"""Peers that join sets, and this package, each in a process of its own.

``python -m benchmarks.peers.sets TOOL FILE THRESHOLD PATIENCE`` measures one of them on
the JSON of FILE: "texts", "tokens" (a list of whole numbers of each row, none twice)
and "grams" (whether tokens are the texts' 2-grams, not their words).  Only what it
measures is imported, so that an interpreter with nothing but a peer runs it too.  A
join that needs more than PATIENCE CPU seconds is ended by the system.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

Given = dict[str, Any]
Job = Callable[[], Any]

RUNS, ENOUGH = 3, 1.0
"""Most runs of each way, and CPU seconds after which no other run begins."""

TICKS = 0.25
"""CPU seconds that a run takes at least, as often as that needs: some systems count in
steps of 10 ms.
"""

PERMUTATIONS = 128
"""Of MinHash."""

OURS = "dask_simjoin"


def split(text: str, grams: bool) -> list[str]:
    """Return the distinct tokens of a text, in the quickest way that Python has."""
    if grams:
        return list({text[i : i + 2] for i in range(len(text) - 1)})
    return list(set(text.split()))


def collapsed(tokens: list[list[int]]) -> tuple[list[tuple[int, ...]], list[int]]:
    """Return distinct sets, and how many rows have each."""
    weights = Counter(tuple(sorted(one)) for one in tokens)
    return list(weights), list(weights.values())


def within(weights: list[int]) -> int:
    """Return the number of pairs of rows with equal sets."""
    return sum(n * (n - 1) // 2 for n in weights)


def ours(
    given: Given, threshold: float
) -> Iterator[tuple[str, Job, Callable[[Any], int]]]:
    """Yield this package: counts and pairs, from Arrow lists, from Python's, and from
    texts.
    """
    import pandas as pd
    import pyarrow as pa

    import dask_simjoin  # noqa: F401 (registers the accessor)
    from dask_simjoin.sets.local import LocalSets
    from dask_simjoin.sets.requests import CountSetPairsRequest
    from dask_simjoin.sets.tokens import QGrams

    lists = pa.array(given["tokens"], pa.list_(pa.int32()))
    columns = {
        "tokens": pd.Series(lists, dtype=pd.ArrowDtype(lists.type)),
        "lists": pd.Series(given["tokens"]),
        "texts": pd.Series(given["texts"], dtype="str"),
    }
    for name, column in columns.items():
        frame = pd.DataFrame({"sets": column})
        how: dict[str, Any] = {}
        if name == "texts":
            how["tokenizer"] = (
                QGrams(2, padding=False) if given["grams"] else "whitespace"
            )
        spec = CountSetPairsRequest("sets", threshold, **how).spec(frame.iloc[:0])

        def encode(frame: Any = frame, spec: Any = spec) -> Any:
            return LocalSets([frame], spec).chunks()

        def count(frame: Any = frame, how: Any = how) -> Any:
            return frame.simjoin.count_set_pairs("sets", threshold, **how)

        def pairs(frame: Any = frame, how: Any = how) -> Any:
            return frame.simjoin.set_self_join("sets", threshold, **how)

        yield f"{name}, encode", encode, lambda _: -1
        yield f"{name}, count", count, int
        yield f"{name}, pairs", pairs, len


def set_similarity_search(
    given: Given, threshold: float
) -> Iterator[tuple[str, Job, Callable[[Any], int]]]:
    """Yield SetSimilaritySearch, which takes sets: of distinct ones, weighted, and as
    they are.
    """
    from SetSimilaritySearch import all_pairs

    def distinct() -> int:
        sets, weights = collapsed(given["tokens"])
        between = all_pairs(sets, "jaccard", threshold)
        return within(weights) + sum(weights[x] * weights[y] for x, y, _ in between)

    yield "distinct tokens", distinct, int
    yield (
        "tokens",
        lambda: sum(1 for _ in all_pairs(given["tokens"], "jaccard", threshold)),
        int,
    )


def py_stringsimjoin(
    given: Given, threshold: float
) -> Iterator[tuple[str, Job, Callable[[Any], int]]]:
    """Yield py_stringsimjoin, which takes texts alone and joins two tables: each pair
    is found twice.
    """
    import pandas as pd
    from py_stringmatching import QgramTokenizer, WhitespaceTokenizer
    from py_stringsimjoin import jaccard_join

    frame = pd.DataFrame({"id": range(len(given["texts"])), "text": given["texts"]})
    tokenizer = WhitespaceTokenizer(return_set=True)
    if given["grams"]:
        tokenizer = QgramTokenizer(qval=2, padding=False, return_set=True)

    def join() -> Any:
        return jaccard_join(
            frame,
            frame,
            "id",
            "id",
            "text",
            "text",
            tokenizer,
            threshold,
            n_jobs=1,
            show_progress=False,
            allow_empty=False,
            out_sim_score=False,
        )

    yield "texts", join, lambda found: (len(found) - len(frame)) // 2


def datasketch(
    given: Given, threshold: float
) -> Iterator[tuple[str, Job, Callable[[Any], int]]]:
    """Yield MinHash LSH: equal sets are collapsed for it, candidates checked outside of
    the clock.
    """
    import numpy as np
    from datasketch import MinHash, MinHashLSH

    sets, weights = collapsed(given["tokens"])
    as_bytes = [[token.to_bytes(4, "little") for token in one] for one in sets]
    limit = Fraction(str(threshold))

    def join() -> list[tuple[int, int]]:
        hashes = MinHash.bulk(as_bytes, num_perm=PERMUTATIONS)
        index, found = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS), []
        for i, one in enumerate(hashes):  # each set searches only earlier ones
            found += [(j, i) for j in index.query(one)]
            index.insert(i, one)
        return found

    def matching(found: list[tuple[int, int]]) -> int:
        numbers = within(weights)
        arrays = [frozenset(one) for one in sets]
        for i, j in found:
            common = len(arrays[i] & arrays[j])
            if common * limit.denominator >= limit.numerator * (
                len(arrays[i]) + len(arrays[j]) - common
            ):
                numbers += weights[i] * weights[j]
        return int(np.int64(numbers))

    yield "distinct tokens", join, matching


SQL = """
WITH ranks AS (
    SELECT token, row_number() OVER (ORDER BY count(*), token) AS rank FROM tokens GROUP BY token
), sets AS (
    SELECT row, list(rank ORDER BY rank) AS items FROM tokens JOIN ranks USING (token) GROUP BY row
), kinds AS MATERIALIZED (
    SELECT row_number() OVER () AS kind, items, len(items) AS size, count(*) AS weight
    FROM sets GROUP BY items
), prefixes AS MATERIALIZED (
    SELECT kind, size, unnest(items[1 : size - (size * $p + $q - 1) // $q + 1]) AS token FROM kinds
), candidates AS (
    SELECT DISTINCT a.kind AS i, b.kind AS j FROM prefixes AS a JOIN prefixes AS b USING (token)
    WHERE (a.size < b.size OR (a.size = b.size AND a.kind < b.kind)) AND a.size * $q >= b.size * $p
), scored AS (
    SELECT a.weight * b.weight AS pairs, a.size + b.size AS sizes,
        len(list_intersect(a.items, b.items)) AS common
    FROM candidates JOIN kinds AS a ON a.kind = i JOIN kinds AS b ON b.kind = j
)
SELECT (SELECT coalesce(sum(pairs), 0) FROM scored WHERE common * ($p + $q) >= $p * sizes)
    + (SELECT sum(weight * (weight - 1) // 2) FROM kinds)
"""


def duckdb(
    given: Given, threshold: float
) -> Iterator[tuple[str, Job, Callable[[Any], int]]]:
    """Yield DuckDB: prefixes joined, equal sets collapsed, decided in whole numbers;
    counted.
    """
    import duckdb as base
    import numpy as np

    rows = np.repeat(
        np.arange(len(given["tokens"])), [len(one) for one in given["tokens"]]
    )
    tokens = np.concatenate([np.asarray(one, np.int64) for one in given["tokens"]])
    limit = Fraction(str(threshold))

    def join() -> int:
        with base.connect() as connection:
            connection.execute("SET threads = 1")
            connection.register("given", {"row": rows, "token": tokens})
            connection.execute("CREATE TEMP TABLE tokens AS SELECT * FROM given")
            found = connection.execute(
                SQL, {"p": limit.numerator, "q": limit.denominator}
            ).fetchone()
            return int(found[0]) if found else 0

    yield "tokens", join, int


TOOLS = {
    OURS: ours,
    "SetSimilaritySearch": set_similarity_search,
    "py_stringsimjoin": py_stringsimjoin,
    "datasketch": datasketch,
    "duckdb": duckdb,
}
"""Name of a distribution -> a generator of ways to use it: a name, a timed call, and
its count of pairs.
"""


def _seconds(job: Job, times: int) -> tuple[float, Any]:
    gc.collect()
    began = time.process_time()
    for _ in range(times):
        found = job()
    return (time.process_time() - began) / times, found


def main() -> None:
    """Measure one tool, and print a line of JSON for each way."""
    tool, path, threshold, patience = sys.argv[1:]
    given: Given = json.loads(Path(path).read_text())
    few = {
        name: value[:500] if isinstance(value, list) else value
        for name, value in given.items()
    }
    for _, job, _ in TOOLS[tool](few, float(threshold)):
        job()  # the first call compiles and loads, so it is not timed
    print(json.dumps({"version": importlib.metadata.version(tool)}), flush=True)
    for name, job, count in TOOLS[tool](given, float(threshold)):
        # the limit counts from the start of the process, so each way gets its own
        soon = int(time.process_time() + float(patience)) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soon, resource.RLIM_INFINITY))
        print(json.dumps({"begun": name}), flush=True)
        first, found = _seconds(job, 1)
        resource.setrlimit(
            resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        pairs = count(found)
        del found
        times = max(1, round(TICKS / max(first, 0.005)))
        seconds = [first] if times == 1 else []
        while len(seconds) < RUNS and times * sum(seconds) < ENOUGH:
            seconds.append(_seconds(job, times)[0])
        told = {
            "name": name,
            "seconds": statistics.median(seconds),
            "runs": seconds,
            "pairs": pairs,
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
