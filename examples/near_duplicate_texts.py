"""
Near-duplicate texts by words
=============================

The program reads a Parquet file of texts, and finds groups of texts that share most of
their words.

Texts are compared as sets of words or q-grams. Two texts are a pair if their Jaccard
similarity is at least the threshold, and pairs connect texts to groups. All pairs are
found. ``--minhash`` also shows how many pairs locality-sensitive hashing with 128
permutations misses (``pip install datasketch``). Without a path, the program makes
texts, and some are changed copies.

::

    python examples/near_duplicate_texts.py
    python examples/near_duplicate_texts.py texts.parquet --text body --threshold 0.7 --output groups.parquet
    python examples/near_duplicate_texts.py names.parquet --text name --qgrams 3 --minhash
    python examples/near_duplicate_texts.py texts.parquet --backend cudf      # on a GPU: see docs/install.md
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin
from dask_simjoin.sets import QGrams, Words

TEXTS, COPIES, WORDS = 6000, 600, 40
"""Texts, copies and words per text of the table that is made here."""

PERMUTATIONS = 128


def write_texts(path: Path, text: str) -> None:
    """Write texts with word frequencies as in a language. The last ones are changed
    copies of others.
    """
    random = np.random.default_rng(0)
    vocabulary = np.array([f"w{number}" for number in range(20_000)])
    share = 1 / np.arange(10, 10 + len(vocabulary))
    lengths = random.poisson(WORDS, TEXTS - COPIES) + 5
    words = random.choice(vocabulary, lengths.sum(), p=share / share.sum())
    texts = np.split(words, np.cumsum(lengths)[:-1])
    for source in random.integers(0, len(texts), COPIES):
        copy = texts[source].copy()
        changed = random.random(len(copy)) < random.uniform(0, 0.3)
        copy[changed] = random.choice(vocabulary, changed.sum(), p=share / share.sum())
        texts.append(copy)
    frame = pd.DataFrame({text: [" ".join(some) for some in texts]})
    dd.from_pandas(frame, npartitions=3).to_parquet(path)


def host(result: Any) -> Any:
    """Return a cuDF result as a pandas result; return others as they are."""
    return result.to_pandas() if hasattr(result, "to_pandas") else result


def short(text: Any, most: int = 60) -> str:
    """Return a text on one line, cut to at most `most` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}\u2026"


def tokens(text: str, q: int | None) -> set[str]:
    """Return the words or q-grams that the join compares, for `datasketch`."""
    if q is None:
        return set(re.findall(r"[^\W_]+", text.lower()))
    return {text[start : start + q] for start in range(len(text) - q + 1)}


def found_by_minhash(
    texts: pd.Series, pairs: pd.DataFrame, threshold: float, q: int | None
) -> int:
    """Return how many of the pairs are among the candidates of MinHash LSH."""
    from datasketch import MinHash, MinHashLSH

    sketches = {}
    lsh = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
    for name, text in texts.items():
        sketch = MinHash(num_perm=PERMUTATIONS)
        sketch.update_batch([token.encode() for token in tokens(text, q)])
        sketches[name] = sketch
        lsh.insert(name, sketch)
    proposed = {name: set(lsh.query(sketches[name])) for name in set(pairs["left"])}
    return sum(
        right in proposed[left]
        for left, right in zip(pairs["left"], pairs["right"], strict=True)
    )


def report(path: Path, options: argparse.Namespace) -> None:
    """Find pairs and groups of texts, write the groups, and print a summary."""
    start = time.perf_counter()
    text, q = options.text, options.qgrams
    # index labels of several files repeat, so ids are added; rows without a text are
    # dropped
    texts = (
        dd.read_parquet(path, columns=[text])
        .dropna(subset=[text])
        .simjoin.with_row_id()
    )
    tokenizer = Words(lower=True) if q is None else QGrams(q, padding=False)
    how = {"threshold": options.threshold, "tokenizer": tokenizer, "id": "row_id"}
    pairs = texts.simjoin.set_self_join(
        text, keep=text, return_similarity=True, **how
    ).persist()
    groups = dask_simjoin.connected_components(pairs[["left", "right"]])
    groups, rows = dask.compute(groups, texts.shape[0])
    seconds = time.perf_counter() - start

    groups, found = host(groups), host(pairs.compute())
    sizes = groups["component"].value_counts()
    once = int(rows) - len(groups) + len(sizes)
    print(f"{int(rows):>10,}  texts")
    print(f"{len(found):>10,}  pairs with a similarity of at least {options.threshold}")
    print(
        f"{len(sizes):>10,}  groups of {len(groups):,} texts, at most "
        f"{max(sizes, default=0):,} in one"
    )
    print(f"{once:>10,}  texts remain if one of each group is kept")
    print(f"{seconds:>10.1f}  seconds")
    if options.output:
        groups.rename(columns={"id": "row_id", "component": "group"}).to_parquet(
            options.output
        )
        print(
            f"{'':10}  row_id and group of each text in a group are in {options.output}"
        )
    if options.minhash:
        everything = host(texts.compute()).set_index("row_id")[text]
        start = time.perf_counter()
        kept = found_by_minhash(everything, found, options.threshold, q)
        lost = 100 * (1 - kept / max(1, len(found)))
        took = time.perf_counter() - start
        print(
            f"{len(found) - kept:>10,}  pairs ({lost:.1f} %) are missed by MinHash "
            f"LSH, in {took:.1f} s"
        )
    left, right = f"{text}_left", f"{text}_right"
    other = found[found[left] != found[right]].nsmallest(options.show, "similarity")
    print("\nThe least similar pairs:")
    for similarity, a, b in zip(
        other["similarity"], other[left], other[right], strict=True
    ):
        print(f"  {similarity:.3f}  {short(a)}\n         {short(b)}")


def main() -> None:
    """Read the options, and make texts if there are none."""
    parser = argparse.ArgumentParser(description="Groups of near-duplicate texts.")
    parser.add_argument(
        "path", type=Path, nargs="?", help="parquet (default: texts that are made here)"
    )
    parser.add_argument("--text", default="text", help="column of texts (default text)")
    parser.add_argument(
        "--threshold", default="0.7", help="smallest Jaccard similarity (default 0.7)"
    )
    parser.add_argument(
        "--qgrams",
        type=int,
        metavar="Q",
        help="compare runs of Q characters instead of words",
    )
    parser.add_argument(
        "--show", type=int, default=4, help="number of pairs to print (default 4)"
    )
    parser.add_argument(
        "--minhash",
        action="store_true",
        help="count the pairs that MinHash LSH misses (needs datasketch)",
    )
    parser.add_argument("--output", type=Path, help="parquet file of the groups")
    parser.add_argument("--backend", choices=["pandas", "cudf"], default="pandas")
    options = parser.parse_args()
    options.threshold = float(options.threshold)
    with (
        dask.config.set({"dataframe.backend": options.backend}),
        tempfile.TemporaryDirectory() as folder,
    ):
        path = options.path
        if path is None:
            path = Path(folder) / "texts"
            write_texts(path, options.text)
        elif not path.exists():
            parser.error(f"no such file: {path}")
        report(path, options)


# %%
# Output
# ------

if __name__ == "__main__":
    main()

# sphinx_gallery_thumbnail_path = 'images/thumbnails/near_duplicate_texts.png'
