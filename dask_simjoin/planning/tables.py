"""Statistics of the tables of a join.

From these statistics, `make_plan` derives layouts, chunks, estimates of the number of
pairs, and warnings. In a self-join, the right table is the left table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dask_simjoin.catalog import AUTO, DENSE, HOME, as_method, name_of
from dask_simjoin.engine.base import joiner_of_library, searcher_of_library
from dask_simjoin.engine.gated import GatedLayout, GatedSearch, PairsSearch
from dask_simjoin.engine.index.kdtree import Regions, make_regions
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.metrics.gates import values_of
from dask_simjoin.metrics.norms import reach
from dask_simjoin.planning.chunk_limits import EVEN, ONE_PER_WORKER, ChunkLimits
from dask_simjoin.planning.coordinate_checks import check_totals
from dask_simjoin.planning.costs import Costs
from dask_simjoin.planning.data_warnings import (
    DataWarning,
    warnings_of_data,
    warnings_of_eps,
)
from dask_simjoin.planning.entity_chunks import EntityPairs, JoinChunks
from dask_simjoin.planning.estimate import (
    Estimate,
    block_of,
    counted,
    estimate,
    estimate_one,
    nothing_seen,
)
from dask_simjoin.planning.outputs import PAIRS, OutputSpec
from dask_simjoin.planning.partition import PartitionSummary
from dask_simjoin.planning.resources import can_move
from dask_simjoin.planning.sample import Moments, merge_moments, near_share
from dask_simjoin.planning.sample_pairs import (
    Sampled,
    all_pairs,
    candidates_per_row,
    effective_dims,
    gather_samples,
    number_of_pairs,
    sample_degrees,
    sample_pairs,
)
from dask_simjoin.planning.spatial_chunks import (
    ClusterChunks,
    RegionPairs,
    cluster_chunks,
    reach_chunks,
    region_chunks,
    spatial_chunks,
)
from dask_simjoin.planning.table import TableSummary, summarise_table, summarise_two
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import PAIRS_AT_ONCE, SAMPLED

FEW_PAIRS, PLUS = 2, 8
"""A search for nearest rows with gates visits all pairs if each row has at most
``FEW_PAIRS * 2**dims * (PLUS + k)`` candidates. A search by a tree is faster than more
of them; its time grows with the number of dimensions and of neighbors.
"""

SEEN, SEEN_EACH = 1 << 16, 1 << 10
"""Pairs of sampled points that an estimate uses: in total, and for each block pair.

More of them hardly make it better, because pairs share points.
"""

MAX_REGIONS = 1 << 14
"""Largest number of regions of spatial chunks."""


@dataclass(frozen=True, eq=False)
class JoinStatistics:
    """Statistics of the tables of a join: rows of the left table are joined with rows
    of the right table.
    """

    # the same object if a table is joined with itself
    left: TableSummary
    right: TableSummary
    # the only table of a self-join, or both tables
    each: tuple[TableSummary, ...] = field(init=False)
    # the options for the left table, and for the join
    spec: JoinSpec = field(init=False)
    every: Moments = field(init=False)  # moments of the points of all tables
    dims: int = field(init=False)
    rows: tuple[int, ...] = field(init=False)  # number of points of each table
    # number of possible pairs: of two different rows of one table, or of a left and a
    # right row
    candidates: float = field(init=False)
    pair_bytes: float = field(init=False)  # memory in bytes of one row of the result

    def __post_init__(self) -> None:
        left, right = self.left, self.right
        is_self_join, spec = left is right, left.spec
        own = left.id_bytes + left.kept_bytes + (right.id_bytes + right.kept_bytes)
        vars(self).update(
            each=(left,) if is_self_join else (left, right),
            spec=spec,
            every=left.every
            if is_self_join
            else merge_moments([left.every, right.every]),
            dims=len(left.every.lower),
            rows=(left.rows,) if is_self_join else (left.rows, right.rows),
            candidates=math.comb(left.rows, 2)
            if is_self_join
            else float(left.rows) * right.rows,
            pair_bytes=own + 8 * spec.result.distance,
        )

    def row_bytes(self, output: OutputSpec, *, shuffled: bool = False) -> float:
        """Return the memory in bytes of one row of a chunk, on average over both
        tables.
        """
        if len(self.each) == 1:
            return self.chunk_row_bytes(output, shuffled=shuffled)[0]
        each = self.point_bytes(output, shuffled=shuffled)
        return sum(
            size * rows for size, rows in zip(each, self.rows, strict=True)
        ) / max(sum(self.rows), 1)

    def chunk_row_bytes(
        self, output: OutputSpec, *, shuffled: bool = False
    ) -> tuple[float, ...]:
        """Return the memory in bytes of one row of a chunk, for each table.

        For left rows, it includes their results.

        `shuffled`: whether rows are shuffled to their chunks.
        """
        first, *others = self.point_bytes(output, shuffled=shuffled)
        return (first + output.found_bytes(self.left.rows), *others)

    def point_bytes(self, output: OutputSpec, *, shuffled: bool = False) -> list[float]:
        """Return the memory in bytes of one row of a chunk, for each table, without
        results.
        """
        narrow = self.is_narrow(output) and not shuffled
        return [
            (table.narrow_bytes if narrow else None) or table.row_bytes
            for table in self.each
        ]

    def is_narrow(self, output: OutputSpec) -> bool:
        """Return whether chunks have narrow points. Chunks of shuffled rows never have
        them.

        Chunks of both tables must store points in the same way.  Only joins by tiles
        have kernels for narrow points.
        """
        tiles = output.k is None and name_of(self.spec.search.method) in (AUTO, DENSE)
        can = tiles and self.spec.chunks.partitioning != "spatial"
        return can and all(table.narrow_bytes is not None for table in self.each)

    def layout(self, dense: bool = False, limit: float | None = None) -> Layout:
        """Choose how chunks are indexed to find pairs. `dense`: whether rows have many
        pairs each. `limit`: the largest total of a pair; None: as the options say.
        """
        joiner, spec, method = (
            joiner_of_library(self.spec.library),
            self.spec,
            self.spec.search.method,
        )
        limit = spec.limit_of_pairs if limit is None else limit
        threshold = spec.measure.widened(limit)
        # words are not in the index
        indexed = self.dims - spec.words
        lower, upper, mean, variance = (some[:indexed] for some in self._moments())
        if not isinstance(method, str):
            x, rows = (
                np.concatenate([table.points.x[:, :indexed] for table in self.each]),
                sum(self.rows),
            )
            method = method.fitted(x, rows, variance, threshold, spec.norm)
        elif dense and method == AUTO:
            method = DENSE
        shown = [table.shown for table in self.each]
        sample = (
            None if spec.gated else JoinSample(shown[0], shown[-1], self.right.rows)
        )
        found = joiner.layout(
            method, lower, upper, mean, variance, threshold, spec.norm, sample
        )
        if spec.gated:
            return GatedLayout(found, spec.gates, limit, spec.compared)
        options = as_method(method)
        return (
            options.approximate_layout(found)
            if options is not None and spec.search.approximate
            else found
        )

    def check_search(self, output: OutputSpec) -> None:
        """Refuse a search for nearest neighbors whose distances could overflow."""
        boxes = [(table.every.lower, table.every.upper) for table in self.each]
        if output.max_total == math.inf and all(self.rows):
            check_totals(boxes, self.spec, output.with_ids)

    def search_layout(self, output: OutputSpec) -> SearchLayout:
        """Choose how chunks are indexed to find nearest neighbors."""
        gates = self.spec.coordinates.gates
        if self.spec.gated:
            if output.max_total < math.inf:
                joined = self.layout(limit=output.max_total)
                assert isinstance(joined, GatedLayout)
                if self._has_few_pairs(joined, output):
                    return PairsSearch(replace(joined, gates=gates))
            return GatedSearch(gates, self.spec.compared, self.spec.norm)
        searcher = searcher_of_library(self.spec.library)
        how = self.spec.norm, self.spec.search.method, self.spec.search.approximate
        return searcher.layout(*self._moments(), self.right.points.x, *how)

    def _has_few_pairs(self, layout: GatedLayout, output: OutputSpec) -> bool:
        """Return whether visiting all pairs takes less time than a search by a tree."""
        assert output.k is not None
        points, joiner = self.left.points, joiner_of_library(self.spec.library)
        found = candidates_per_row(points, self.right.points, layout, joiner)
        columns = self.dims - self.spec.words - len(layout.gates.within)
        few = FEW_PAIRS * (PLUS + output.k)
        # the logarithm, because the power may overflow
        dims = effective_dims(points.x[:, :columns])
        return found <= few or math.log2(found / few) <= dims

    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return lower and upper bounds, mean and variance of all points; all 0 if
        there are no points.
        """
        every = self.every
        if every.rows:
            return every.lower, every.upper, every.mean, every.variance
        return (np.zeros(len(every.lower)),) * 4

    def near(self) -> tuple[float, float]:
        """Estimate the fraction of pairs of points whose tiles are near, for all rows
        and for a quarter of the rows.
        """
        points, spec = self.right.points, self.spec
        on_gpu = spec.library != HOME
        return near_share(points.x, self.right.rows, spec.threshold, spec.norm, on_gpu)

    def choose_chunks(self, cut: ChunkLimits, costs: Costs) -> JoinChunks:
        """Cut rows into chunks, in the way with the lowest expected cost."""
        request, output, spec = self.spec.chunks.partitioning, cut.output, self.spec
        if output.materialise:
            each_bytes = self.point_bytes(output)
            whole = [
                cut.replicated(table, size, spec.norm, spec.threshold)
                for table, size in zip(self.each, each_bytes, strict=True)
            ]
            made = [chunks for chunks in whole if chunks is not None]
            if len(made) == len(whole):
                return made[0] if len(made) == 1 else EntityPairs(*made)
        row_bytes = self.chunk_row_bytes(output)
        sizes = [
            cut.rows(table, size)
            for table, size in zip(self.each, row_bytes, strict=True)
        ]
        if request == "spatial" and all(self.rows):
            return self._spatial(cut)
        # results take no memory in a single chunk
        if output.in_parts(cut.limits):
            row_bytes = tuple(self.point_bytes(output))
        tried: list[JoinChunks] = []
        for number in cut.numbers:
            sides = [
                cut.entity(table, size, each, spec.norm, spec.threshold, number)
                for table, size, each in zip(self.each, sizes, row_bytes, strict=True)
            ]
            # the largest allowed chunks are smaller than several of these numbers give
            if not tried or list(map(len, sides)) != list(map(len, tried[-1].sides)):
                tried.append(sides[0] if len(sides) == 1 else EntityPairs(*sides))
        may_be_spatial = request != "entity" and all(self.rows)
        if len(tried) == 1 and not may_be_spatial:
            return tried[0]
        # all threads share the index of a single chunk, and no rows are moved. GPUs copy
        # such a chunk faster than they exchange indexes of several chunks
        undivided = cut.one_process or (cut.limits.gpu and not cut.limits.chosen)
        if undivided and all(len(side) == 1 for side in tried[0].sides):
            return tried[0]
        best = min(tried, key=costs.choosing)
        best_seconds = costs.choosing(best)
        if not may_be_spatial or best_seconds <= costs.shuffled(cut.limits.shuffle):
            return best
        if not can_move(cut.limits.shuffle, cut.limits, self.each):
            return best
        spatial = self._spatial(cut)
        return spatial if costs.choosing(spatial) < best_seconds else best

    def blocks_by_region(self, cut: ChunkLimits) -> int | None:
        """Return the number of block pairs of spatial chunks; None: the join cannot
        have such chunks.
        """
        has_regions = cut.output.k is None and all(self.rows)
        if not has_regions or not can_move(cut.limits.shuffle, cut.limits, self.each):
            return None
        return self._spatial(cut).visits[0]

    def _regions(self, target: int, shuffle: str) -> Regions:
        slack = EVEN - 1 if shuffle in ONE_PER_WORKER else 0.0
        every = self.every
        x, weight = self.left.points.x, self.left.points.weight
        if len(self.each) > 1:
            x, weight = (
                np.concatenate([own, other])
                for own, other in (
                    (x, self.right.points.x),
                    (weight, self.right.points.weight),
                )
            )
        away = reach(self.spec.norm, self.spec.threshold)
        sizes = target, MAX_REGIONS, slack
        return make_regions(x, weight, every.lower, every.upper, away, *sizes)

    def estimate(
        self,
        chunks: JoinChunks,
        blocks: np.ndarray,
        layout: Layout,
        output: OutputSpec = PAIRS,
    ) -> Estimate:
        """Estimate the number of pairs of each block pair from samples.

        Pairs of a small sample are only counted, if the tasks count pairs as well.
        """
        points, joiner = self.left.points, joiner_of_library(self.spec.library)
        if not len(blocks):
            return nothing_seen(np.zeros(0), blocks, False, len(points.x))
        alone = len(self.each) == len(blocks) == 1 and not self.spec.directed
        small = output.listed or len(points.x) <= SAMPLED
        if alone and small and not output.materialise:
            degrees = sample_degrees(points, layout, joiner, output.listed)
            return estimate_one(points, degrees, self.candidates)
        most = min(max(SEEN, SEEN_EACH * len(blocks)), PAIRS_AT_ONCE)
        sampled = sample_pairs(points, self.right.points, layout, joiner, most)
        return self._estimate(sampled, chunks, blocks)

    def count(
        self, chunks: JoinChunks, blocks: np.ndarray, layout: Layout, found: Estimate
    ) -> Estimate | None:
        """Count the pairs of each block pair; None if not all points were gathered.

        `found`: the estimate to replace.
        """
        whole = [table.whole for table in self.each]
        parts = [some for some in whole if some is not None]
        if len(parts) < len(whole):
            return None
        joiner = joiner_of_library(self.spec.library)
        if not lists_pairs(blocks, self.spec):
            return counted(
                number_of_pairs(
                    [[s.x for s in some] for some in parts], layout, joiner
                ),
                found,
            )
        points = [
            gather_samples(some, table.offsets, self.dims)
            for some, table in zip(parts, self.each, strict=True)
        ]
        return self._estimate(
            all_pairs(points[0], points[-1], layout, joiner), chunks, blocks
        )

    def _estimate(
        self, sampled: Sampled, chunks: JoinChunks, blocks: np.ndarray
    ) -> Estimate:
        sampled = self._in_directions(sampled)
        block = block_of(blocks, len(chunks), chunks.chunk_pairs(sampled))
        return estimate(sampled, blocks, chunks.candidates(blocks), block)

    def _in_directions(self, sampled: Sampled) -> Sampled:
        """Give sampled pairs of one table the share of the two directions that gates
        allow.
        """
        gates = self.spec.coordinates.gates
        if self.spec.other is not None or not gates.one_sided:
            return sampled
        first = self.dims - self.spec.words
        words = slice(first, first + gates.words)
        one, other = (
            values_of(side.x[:, words])[places]
            for side, places in (
                (sampled.first, sampled.left),
                (sampled.second, sampled.right),
            )
        )
        ways = [
            gates.allow(left, right) for left, right in ((one, other), (other, one))
        ]
        share = sampled.share * np.mean(ways, axis=0)
        kept = share > 0
        return sampled._replace(
            left=sampled.left[kept], right=sampled.right[kept], share=share[kept]
        )

    def data_warnings(
        self, found: Estimate | None, copies_count: bool = False
    ) -> tuple[DataWarning, ...]:
        """Return warnings about likely mistakes.

        `found`: estimate of the number of pairs; None if the join has no `eps`.
        """
        data_warnings = warnings_of_data(*self.each)
        if found is None:
            return data_warnings
        return data_warnings + warnings_of_eps(
            self.spec, found, self.candidates, (self.left, self.right), copies_count
        )

    def with_eps(self, eps: float) -> JoinStatistics:
        """Return the same statistics for another distance."""
        if len(self.each) == 1:
            table = replace(self.left, spec=self.spec.with_eps(eps))
            return JoinStatistics(table, table)
        other = self.right.spec.with_eps(eps)
        left = replace(self.left, spec=replace(self.spec.with_eps(eps), other=other))
        return JoinStatistics(left, replace(self.right, spec=other))

    def _spatial(self, cut: ChunkLimits) -> JoinChunks:
        """Make chunks of regions; two tables are cut into the same regions."""
        row_bytes = self.chunk_row_bytes(cut.output, shuffled=True)
        sizes = [
            cut.rows(table, size)
            for table, size in zip(self.each, row_bytes, strict=True)
        ]
        spec, rows, shuffle = self.spec, sum(self.rows), cut.limits.shuffle
        norm, threshold = spec.norm, spec.threshold
        away, single_home = reach(norm, threshold), cut.output.single_home
        target, max_rows = sizes[-1][0], [size for _, size in sizes]
        if len(self.each) > 1:
            target = min(rows, target)
        target = cut.region_rows(rows, target, min(max_rows))
        regions = self._regions(target, shuffle)
        left, right = self.left, self.right
        first = left.points, regions, norm
        if len(self.each) == 1 and not single_home:
            return spatial_chunks(
                *first, away, threshold, max_rows[0], left.offsets, shuffle
            )
        if cut.makes_cluster_chunks:
            times = cut.output.halo
            alone = cluster_chunks(*first, threshold, times, left.offsets, shuffle)
            if cut.fits_halos(alone, max_rows[0]) and pay(alone, left.rows):
                return alone
        queries = region_chunks(*first, threshold, max_rows[0], left.offsets, shuffle)
        if len(self.each) == 1:
            return queries
        rest = threshold, max_rows[1], right.offsets, shuffle
        if single_home:
            return RegionPairs(
                queries, region_chunks(right.points, regions, norm, *rest)
            )
        return RegionPairs(
            queries, reach_chunks(right.points, regions, norm, away, *rest)
        )


def pay(chunks: ClusterChunks, rows: float) -> bool:
    """Return whether chunks with halos on all sides are worthwhile.

    `rows`: rows of the table. If the halos have more rows than it, comparing chunks of
    neighboring regions visits fewer.
    """
    return bool(chunks.halo_rows.sum() <= rows)


def lists_pairs(blocks: np.ndarray, spec: JoinSpec) -> bool:
    """Return whether pairs must be listed to count them: for several block pairs, or
    for rows with radii.
    """
    return len(blocks) > 1 or spec.directed


def join_statistics(
    summaries: Sequence[list[PartitionSummary]], spec: JoinSpec
) -> JoinStatistics:
    """Merge the summaries of the partitions of one table or two; refuse tables that
    cannot be joined.
    """
    if len(summaries) == 1:
        table = summarise_table(summaries[0], spec)
        return JoinStatistics(table, table)
    return JoinStatistics(*summarise_two(summaries[0], summaries[1], spec))
