"""The table of verbs. It defines the accessor, the functions, the program, stubs and
documentation.

A verb is a function of a frame and of the options of its request: see
`dask_simjoin.calls.decorators`. `python -m tools.generate` updates the stubs and the
tables of the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dask_simjoin.api import (
    closest_pairs,
    counts,
    introspect,
    joins,
    knn,
    near_duplicates,
    profiles,
)
from dask_simjoin.cluster import hierarchy
from dask_simjoin.cluster import verbs as clusters
from dask_simjoin.disk_index import verbs as disk
from dask_simjoin.sets import verbs as sets
from dask_simjoin.strings import verbs as strings

Output = Literal["pairs", "rows", "values", "number", "plan"]


@dataclass(frozen=True)
class Verb:
    """A verb: a method of the accessor, a function of the package, and usually a
    command of the program.
    """

    # called with a frame and options; has the attributes `__signature__` and `request`
    function: Callable[..., Any]
    # Markdown that describes the result, for the table of verbs in the documentation
    result: str
    compiled: Mapping[str, Any] | None = field(kw_only=True)
    """Options of the calls that compile the verb's kernels ahead of time.

    `compile_kernels` replaces a value True by a suitable distance. None: the verb has
    no kernels.
    """
    shown: tuple[str, ...] = field(default=(), kw_only=True)
    """Keywords that the table of verbs shows, in addition to positional options."""
    # name of the verb's command in the program, one or more words; None: the verb has
    # no command
    command: str | None = field(default=None, kw_only=True)
    # arguments of the example in the help of the verb's command
    example: str = field(default="", kw_only=True)
    output: Output = field(default="pairs", kw_only=True)
    """Result of the verb's command: pairs, kept rows, the table with more columns, a
    number or a plan.
    """

    @property
    def name(self) -> str:
        """Name of the function and of the method."""
        return self.function.__name__

    @property
    def request(self) -> type[Any]:
        """Class of the verb's options. The metadata of its fields are help, choices and
        units.
        """
        return vars(self.function)["request"]


INDEXED = "with the frame's index"
GROUPED = ("keep", "grouping")

TABLE = (
    Verb(
        joins.self_join,
        "a DataFrame: `left`, `right` and, on request, `distance` and columns of both "
        "rows",
        command="self-join",
        example="places.parquet --eps 0.5 --on x,y --return-distance -o pairs.parquet",
        compiled={"eps": True},
    ),
    Verb(
        joins.join,
        "the columns of `self_join`; each pair has one row of this frame and one of "
        "`other`",
        shown=("how",),
        command="join",
        example="homes.csv --other shops.csv --eps '2 km' --metric haversine --on lat,lon -o pairs.csv",
        compiled={"eps": True},
    ),
    Verb(
        knn.knn_join,
        "the nearest rows of each row: `left`, `right`, `rank`, `distance`",
        shown=("max_distance",),
        command="knn",
        example="homes.csv --other shops.csv -k 3 --on x,y -o nearest.csv",
        compiled={"k": 10},
    ),
    Verb(
        closest_pairs.closest_pairs,
        "the `n` closest pairs (with `per_group`, `n` for each group), closest first: "
        "`left`, `right`, "
        "`distance`",
        shown=("max_distance",),
        command="closest-pairs",
        example="places.parquet -n 10 --on x,y -o closest.csv",
        compiled={"n": 10},
    ),
    Verb(
        counts.neighbor_counts,
        f"a Series `neighbors` (int64) {INDEXED}: the number of other rows within "
        "`eps`, or of rows of `other`. For a list of distances, a column per distance",
        shown=("other",),
        command="counts",
        example="places.parquet --eps 0.5 --on x,y -o counted.parquet",
        output="values",
        compiled={"eps": True},
    ),
    Verb(
        counts.count_pairs,
        "the number of rows that `self_join` returns; for a list of distances, a "
        "Series `pairs` with the "
        "index `eps`",
        command="count-pairs",
        example="places.parquet --eps 0.1,0.5,1 --on x,y",
        output="number",
        compiled={"eps": True},
    ),
    Verb(
        near_duplicates.near_duplicated,
        f"a Series of bool {INDEXED}: whether each row is near a kept row, like "
        "`duplicated` of pandas",
        shown=GROUPED,
        compiled={"eps": True},
    ),
    Verb(
        near_duplicates.drop_near_duplicates,
        "the kept rows, with all columns",
        shown=GROUPED,
        command="dedup",
        example="places.parquet --eps 0.01 --on x,y -o kept.parquet",
        output="rows",
        compiled=None,
    ),
    Verb(
        clusters.dbscan,
        f"a Series `label` (int64) {INDEXED}: the cluster of each row, -1 for noise",
        command="dbscan",
        example="places.parquet --eps 0.5 --min-samples 5 --on x,y -o labeled.parquet",
        output="values",
        compiled={"eps": True},
    ),
    Verb(
        clusters.optics,
        f"a DataFrame {INDEXED}: `ordering`, `reachability`, `core_distance`, "
        "`predecessor`",
        shown=("mode",),
        command="optics",
        example="places.parquet --max-eps 2 --on x,y -o ordered.parquet",
        output="values",
        compiled={"max_eps": True},
    ),
    Verb(
        hierarchy.hdbscan,
        f"a DataFrame {INDEXED}: `label`, `probability`, `outlier_score`",
        command="hdbscan",
        example="places.parquet --min-cluster-size 10 --on x,y -o labeled.parquet",
        output="values",
        compiled={},
    ),
    Verb(
        hierarchy.spanning_tree,
        "the minimum spanning tree of all rows: `left`, `right` (row numbers), "
        "`distance`",
        shown=("min_samples",),
        compiled={},
    ),
    Verb(
        knn.k_distances,
        f"a Series `k_distance` (float64) {INDEXED}: the distance to the k-th nearest "
        "other row",
        command="k-distances",
        example="places.parquet -k 5 --on x,y -o distances.parquet",
        output="values",
        compiled={"k": 10},
    ),
    Verb(
        counts.neighbor_graph,
        "a SciPy CSR matrix (cupyx for cuDF frames, a Delayed for Dask). Row r has the "
        "distances from row r "
        'to its neighbors; pass it to scikit-learn with `metric="precomputed"`',
        shown=("mode",),
        compiled={"eps": True},
    ),
    Verb(
        sets.set_self_join,
        "pairs of rows with similar sets of tokens: `left`, `right` and, on request, "
        "`similarity` and "
        "columns of both rows",
        command="sets self-join",
        example="articles.csv --on title --threshold 0.8 -o pairs.csv",
        compiled={},
    ),
    Verb(
        sets.set_join,
        "the columns of `set_self_join`; each pair has one row of this frame and one "
        "of `other`",
        shown=("how",),
        command="sets join",
        example="old.csv --other new.csv --on title --threshold 0.8 -o pairs.csv",
        compiled={},
    ),
    Verb(
        sets.set_neighbor_counts,
        f"a Series `neighbors` (int64) {INDEXED}: the number of other rows whose sets "
        "match. With `other`, of its rows",
        shown=("other",),
        command="sets counts",
        example="articles.csv --on title --threshold 0.8 -o counted.csv",
        output="values",
        compiled={},
    ),
    Verb(
        sets.count_set_pairs,
        "the number of rows that `set_self_join` returns",
        command="sets count-pairs",
        example="articles.csv --on title --threshold 4/5 --tokenizer qgrams:3",
        output="number",
        compiled={},
    ),
    Verb(
        sets.set_near_duplicated,
        f"a Series of bool {INDEXED}: whether the set of each row matches the set of a "
        "kept row",
        shown=GROUPED,
        compiled={},
    ),
    Verb(
        sets.drop_set_near_duplicates,
        "the kept rows, with all columns",
        shown=GROUPED,
        command="sets dedup",
        example="articles.csv --on title --threshold 0.8 -o kept.csv",
        output="rows",
        compiled=None,
    ),
    Verb(
        sets.set_plan,
        "the planned work of `set_self_join` or `set_join`, and an estimate of the "
        "result",
        shown=("other",),
        command="sets plan",
        example="articles.csv --on title --threshold 0.8",
        output="plan",
        compiled=None,
    ),
    Verb(
        sets.set_profile,
        "deprecated: use `profile` with `threshold`",
        compiled=None,
    ),
    Verb(
        strings.edit_self_join,
        "pairs of rows whose texts differ in at most `k` edits: `left`, `right` and, "
        "on request, `distance` "
        "and columns of both rows",
        command="strings self-join",
        example="people.csv --on name -k 2 -o pairs.csv",
        compiled={},
    ),
    Verb(
        strings.edit_join,
        "the columns of `edit_self_join`; each pair has one row of this frame and one "
        "of `other`",
        shown=("how",),
        command="strings join",
        example="old.csv --other new.csv --on name --similarity 0.9 -o pairs.csv",
        compiled={},
    ),
    Verb(
        strings.edit_neighbor_counts,
        f"a Series `neighbors` (int64) {INDEXED}: the number of other rows whose texts "
        "differ in at most `k` edits. With `other`, of its rows",
        shown=("other",),
        command="strings counts",
        example="people.csv --on name -k 1 -o counted.csv",
        output="values",
        compiled={},
    ),
    Verb(
        strings.count_edit_pairs,
        "the number of rows that `edit_self_join` returns",
        command="strings count-pairs",
        example="people.csv --on name -k 2 --by postcode",
        output="number",
        compiled={},
    ),
    Verb(
        strings.edit_near_duplicated,
        f"a Series of bool {INDEXED}: whether the text of each row is near the text of "
        "a kept row",
        shown=GROUPED,
        compiled={},
    ),
    Verb(
        strings.drop_edit_near_duplicates,
        "the kept rows, with all columns",
        shown=GROUPED,
        command="strings dedup",
        example="people.csv --on name -k 1 -o kept.csv",
        output="rows",
        compiled=None,
    ),
    Verb(
        strings.edit_plan,
        "the planned work of `edit_self_join` or `edit_join`, and an estimate of the "
        "result",
        shown=("other",),
        command="strings plan",
        example="people.csv --on name -k 2",
        output="plan",
        compiled=None,
    ),
    Verb(
        strings.edit_profile,
        "deprecated: use `profile` with a column of texts and `k`",
        compiled=None,
    ),
    Verb(
        disk.index,
        "an [index on disk that grows](../guide/growing.md): add and delete rows, and "
        "get the pairs that "
        "change",
        compiled=None,
    ),
    Verb(
        introspect.plan,
        "the planned work of `self_join`, `join` or `knn_join`, and an estimate of the "
        "result",
        shown=("other", "k"),
        command="plan",
        example="places.parquet --eps 0.5 --on x,y",
        output="plan",
        compiled=None,
    ),
    Verb(
        profiles.profile,
        "counters of a join of distances, sets or texts, such as pairs compared; and "
        "the seconds of each step",
        shown=("k", "threshold", "method"),
        compiled=None,
    ),
    Verb(
        near_duplicates.with_row_id,
        "the frame with a column of row numbers from 0",
        compiled=None,
    ),
)
"""All verbs, in the order of the documentation."""

VERBS = {verb.name: verb for verb in TABLE}
"""Verbs by name."""
