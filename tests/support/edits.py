"""Random edit joins, and their results by the definition of the distance."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (registers the accessor)

Pairs = dict[tuple[int, int], int]

ALPHABETS = ("ab", "abc", "abcdefgh", "aé猫\U0001f600", "a\u0301\u00e1")


@functools.lru_cache(1 << 16)
def edit_distance(one: str, other: str, swaps: bool = False) -> int:
    """Return the edit distance by the table of all prefixes."""
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            least = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (a != b))
            if swaps and i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                least = min(least, rows[-2][j - 2] + 1)
            row.append(least)
        rows.append(row)
    return rows[-1][-1]


def matches(one: Any, other: Any, options: dict[str, Any]) -> int | None:
    """Return the distance of two texts that match, or None."""
    if not isinstance(one, str) or not isinstance(other, str):
        return None
    found = edit_distance(one, other, options.get("transpositions", False))
    if "k" in options:
        return found if found <= options["k"] else None
    longest = max(len(one), len(other))
    near = not longest or Fraction(longest - found, longest) >= Fraction(
        str(options["similarity"])
    )
    return found if near else None


def wanted(
    left: pd.DataFrame, right: pd.DataFrame | None, options: dict[str, Any]
) -> Pairs:
    """Return pairs of positions and their distances."""
    other = left if right is None else right
    found = {}
    for i in range(len(left)):
        for j in range(0 if right is not None else i + 1, len(other)):
            own = [frame.iloc[row] for frame, row in ((left, i), (other, j))]
            if "by" in options and own[0][options["by"]] != own[1][options["by"]]:
                continue
            distance = matches(own[0]["text"], own[1]["text"], options)
            if distance is not None:
                found[i, j] = distance
    return found


def texts(rng: np.random.Generator, rows: int) -> list[str | None]:
    """Draw texts of one alphabet with copies, near copies and missing ones."""
    letters, longest = (
        ALPHABETS[rng.integers(len(ALPHABETS))],
        [3, 8, 15, 40, 150][rng.integers(5)],
    )
    rows = min(rows, 8) if longest > 40 else rows
    found: list[str | None] = []
    while len(found) < rows:
        known = [text for text in found if text is not None]
        kind = rng.random()
        if kind < 0.05:
            found.append(None)
        elif kind < 0.5 or not known:
            found.append(
                "".join(
                    letters[k]
                    for k in rng.integers(0, len(letters), rng.integers(longest + 1))
                )
            )
        else:
            text = known[rng.integers(len(known))]
            for _ in range(rng.integers(0, 5)):
                text = changed(rng, text, letters)
            found.append(text)
    return found


def changed(rng: np.random.Generator, text: str, letters: str) -> str:
    """Edit a text at most once."""
    at, letter = int(rng.integers(len(text) + 1)), letters[rng.integers(len(letters))]
    swapped = text[:at] + text[at : at + 2][::-1] + text[at + 2 :]
    longer, shorter = text[:at] + letter + text[at:], text[:at] + text[at + 1 :]
    return [longer, shorter, text[:at] + letter + text[at + 1 :], swapped][
        rng.integers(4)
    ]


def frame_of(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    """Draw a table of texts, groups, numbers and ids."""
    found = texts(rng, rows)
    frame = pd.DataFrame(
        {"text": pd.Series(found, dtype="object"), "key": np.arange(len(found)) * 3 + 5}
    )
    frame["g"] = rng.integers(0, 3, len(found))
    frame["votes"] = rng.integers(0, 4, len(found))
    return frame


def lazy(rng: np.random.Generator, frame: pd.DataFrame) -> Any:
    """Return the table as a Dask DataFrame."""
    return dd.from_pandas(frame, npartitions=int(rng.integers(1, 4)), sort=False)


def options_of(rng: np.random.Generator) -> dict[str, Any]:
    """Draw options of the predicate."""
    options: dict[str, Any] = {}
    if rng.random() < 0.7:
        options["k"] = int(rng.integers(0, 9))
    else:
        options["similarity"] = [0.1, 0.25, 0.5, 0.6, 0.75, 0.8, 0.9, 1][
            rng.integers(8)
        ]
    if rng.random() < 0.5:
        options["transpositions"] = True
    if rng.random() < 0.3:
        options["by"] = "g"
    return options


def stay(rows: int, pairs: Pairs, order: list[int]) -> set[int]:
    """Return the rows that stay if rows are visited in an order."""
    near: dict[int, set[int]] = {row: set() for row in range(rows)}
    for i, j in pairs:
        near[i].add(j)
        near[j].add(i)
    found: set[int] = set()
    for row in order:
        if not near[row] & found:
            found.add(row)
    return found


def run_case(seed: int, case: int) -> str:
    """Compare one random edit join with the definition; return the verb."""
    rng = np.random.default_rng([seed, case])
    left, right = (frame_of(rng, int(rng.integers(0, 26))) for _ in range(2))
    options, is_lazy = options_of(rng), rng.random() < 0.5
    asked = dict(options)
    if rng.random() < 0.5:
        asked["blocksize"] = int(rng.choice([200, 1000, 4000]))
    one, two = (lazy(rng, frame) if is_lazy else frame for frame in (left, right))
    verb = VERBS[rng.integers(len(VERBS))]
    verb(rng, (one, left), (two, right), options, asked)
    return verb.__name__


Side = tuple[Any, pd.DataFrame]


def computed(found: Any) -> Any:
    """Return a result as a pandas object."""
    return found.compute(scheduler="sync") if hasattr(found, "compute") else found


def _listed(found: pd.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(found.itertuples(index=False, name=None))


def _of_pairs(found: Any, left: pd.DataFrame, right: pd.DataFrame, want: Pairs) -> None:
    found = computed(found)
    assert list(found.columns) == [
        "left",
        "right",
        "distance",
        "votes_left",
        "votes_right",
    ], found.columns
    keys, votes = (
        [f["key"].tolist() for f in (left, right)],
        [f["votes"].tolist() for f in (left, right)],
    )
    expected = sorted(
        (keys[0][i], keys[1][j], float(distance), votes[0][i], votes[1][j])
        for (i, j), distance in want.items()
    )
    assert _listed(found) == expected


def columns_of(name: str, *sides: Side) -> list[list[Any]]:
    """Return a column of each table."""
    return [frame[name].tolist() for _, frame in sides]


def ids_of(found: pd.DataFrame) -> list[tuple[int, int]]:
    """Return the ids of pairs in order; -1 for a missing row."""
    ids = (found[side].fillna(-1) for side in ("left", "right"))
    return sorted(zip(*ids, strict=True))


def self_join(
    rng: np.random.Generator,
    one: Side,
    two: Side,
    options: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    found = one[0].simjoin.edit_self_join(
        "text", id="key", return_distance=True, keep="votes", **asked
    )
    _of_pairs(found, one[1], one[1], wanted(one[1], None, options))


def join(
    rng: np.random.Generator,
    one: Side,
    two: Side,
    options: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    how = {"id": "key", "return_distance": True, "keep": "votes"}
    found = one[0].simjoin.edit_join(two[0], "text", **how, **asked)
    _of_pairs(found, one[1], two[1], wanted(one[1], two[1], options))


def join_how(
    rng: np.random.Generator,
    one: Side,
    two: Side,
    options: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    how = ["left", "right", "outer", "leftsemi", "leftanti"][rng.integers(5)]
    want = wanted(one[1], two[1], options)
    if how in ("left", "right", "outer"):
        found = computed(
            one[0].simjoin.edit_join(two[0], "text", id="key", how=how, **asked)
        )
        keys = columns_of("key", one, two)
        expected = [(keys[0][i], keys[1][j]) for i, j in want]
        if how != "right":
            alone = set(range(len(one[1]))) - {i for i, _ in want}
            expected += [(keys[0][i], -1) for i in alone]
        if how != "left":
            alone = set(range(len(two[1]))) - {j for _, j in want}
            expected += [(-1, keys[1][j]) for j in alone]
        assert ids_of(found) == sorted(expected)
        return
    found = computed(one[0].simjoin.edit_join(two[0], "text", how=how, **asked))
    rows = (
        {i for i, _ in want}
        if how == "leftsemi"
        else set(range(len(one[1]))) - {i for i, _ in want}
    )
    assert found["key"].tolist() == one[1]["key"].iloc[sorted(rows)].tolist()


def best(
    rng: np.random.Generator,
    one: Side,
    two: Side,
    options: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    ties, how = ["first", "all"][rng.integers(2)], ["inner", "left"][rng.integers(2)]
    number = [1, 2, 3, 10][rng.integers(4)]
    asked = asked | {"best": number, "ties": ties, "id": "key"}
    if rng.integers(2):
        how, two = "inner", one
        found = computed(one[0].simjoin.edit_self_join("text", **asked))
        pairs = wanted(one[1], None, options)
        pairs |= {(j, i): distance for (i, j), distance in pairs.items()}
    else:
        found = computed(one[0].simjoin.edit_join(two[0], "text", how=how, **asked))
        pairs = wanted(one[1], two[1], options)
    texts = columns_of("text", one, two)
    rank: dict[tuple[int, int], Fraction] = {}
    for (i, j), distance in pairs.items():
        longest = max(len(texts[0][i]), len(texts[1][j]), 1)
        rank[i, j] = Fraction(distance, 1 if "k" in options else longest)
    keys = columns_of("key", one, two)
    expected = []
    for i, name in enumerate(keys[0]):
        own = sorted((value, j) for (row, j), value in rank.items() if row == i)
        last = own[:number][-1:]
        chosen = [j for value, j in own if value <= last[0][0]]
        chosen = chosen if ties == "all" else chosen[:number]
        alone = [(name, -1)] if how == "left" and not own else []
        expected += [(name, keys[1][j]) for j in chosen] + alone
    assert ids_of(found) == sorted(expected)


def greedy(
    rng: np.random.Generator,
    one: Side,
    two: Side,
    options: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    way = ["inner", "left", "right", "outer"][rng.integers(4)]
    how = {"how": way, "matching": "greedy", "return_distance": True, "id": "key"}
    found = computed(one[0].simjoin.edit_join(two[0], "text", **how, **asked))
    texts, keys = columns_of("text", one, two), columns_of("key", one, two)
    want = wanted(one[1], two[1], options)
    ranked = []
    for (i, j), distance in want.items():
        longest = max(len(texts[0][i]), len(texts[1][j]), 1)
        ranked.append((Fraction(distance, 1 if "k" in options else longest), i, j))
    taken: list[set[int]] = [set(), set()]
    expected = []
    for _, i, j in sorted(ranked):
        if i not in taken[0] and j not in taken[1]:
            taken[0].add(i)
            taken[1].add(j)
            expected.append((keys[0][i], keys[1][j], want[i, j]))
    if way in ("left", "outer"):
        alone = set(range(len(keys[0]))) - taken[0]
        expected += [(keys[0][i], -1, -1) for i in alone]
    if way in ("right", "outer"):
        alone = set(range(len(keys[1]))) - taken[1]
        expected += [(-1, keys[1][j], -1) for j in alone]
    rows = found[["left", "right", "distance"]].astype(object).fillna(-1)
    assert sorted(map(tuple, rows.to_numpy().tolist())) == sorted(expected)


def counts(
    rng: np.random.Generator,
    one: Side,
    two: Side,
    options: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    want = wanted(one[1], None, options)
    expected = [sum(row in pair for pair in want) for row in range(len(one[1]))]
    if rng.integers(2):
        asked = asked | {"other": two[0]}
        want = wanted(one[1], two[1], options)
        expected = [sum(row == i for i, _ in want) for row in range(len(one[1]))]
    assert (
        computed(one[0].simjoin.edit_neighbor_counts("text", **asked)).tolist()
        == expected
    )


def count(
    rng: np.random.Generator,
    one: Side,
    two: Side,
    options: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    assert computed(one[0].simjoin.count_edit_pairs("text", **asked)) == len(
        wanted(one[1], None, options)
    )


def near_duplicates(
    rng: np.random.Generator,
    one: Side,
    two: Side,
    options: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    keep: Any = ["first", "last", False, "votes"][rng.integers(4)]
    found = computed(
        one[0].simjoin.edit_near_duplicated("text", keep=keep, **asked)
    ).tolist()
    frame, want = one[1], wanted(one[1], None, options)
    if keep is False:
        assert found == [any(row in pair for pair in want) for row in range(len(frame))]
        return
    order = list(range(len(frame)))[:: -1 if keep == "last" else 1]
    if keep == "votes":
        order = sorted(order, key=lambda row: -frame["votes"].iloc[row])
    stays = stay(len(frame), want, order)
    assert found == [row not in stays for row in range(len(frame))]


def connected(
    rng: np.random.Generator,
    one: Side,
    two: Side,
    options: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    marks = one[0].simjoin.edit_near_duplicated("text", grouping="connected", **asked)
    group = list(range(len(one[1])))
    for i, j in wanted(one[1], None, options):
        a, b = sorted((group[i], group[j]))
        group = [a if own == b else own for own in group]
    assert computed(marks).tolist() == [own != row for row, own in enumerate(group)]


VERBS: tuple[Callable[..., None], ...] = (
    self_join,
    self_join,
    join,
    join,
    join_how,
    best,
    greedy,
    counts,
    count,
    near_duplicates,
    connected,
)
