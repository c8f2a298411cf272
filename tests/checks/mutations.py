"""Changes to the package that the tests beside the changed module must notice.

python -m tests.checks.mutations            # all of them, some minutes
python -m tests.checks.mutations 3 17       # some, by number
python -m tests.checks.mutations --list

Each is applied to a copy of the tree, and the test file nearest to the module is run there.  A mutation
is killed if that fails.  Kernels of a mutated text are compiled into a folder of the copy; compiled kernels
of this tree are copied, too, and serve if no text of kernels is mutated.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT

SECONDS = 300
"""After which a test that does not end counts as failed."""

PARTS = "dask_simjoin", "tests", "pyproject.toml", "conftest.py", "_dask_simjoin_cli.py"
"""What of the tree the tests of modules need."""


class Mutation(NamedTuple):
    """One change: `old` occurs once in `file`, a module; `test` is a test file, with options of pytest."""

    file: str
    old: str
    new: str
    test: str


K, D = "engine/cpu/kernels/", "disk_index/"

SURVIVED = [
    Mutation(
        K + "sweep.py",
        """            own = half and search.offsets[o] == 0
            lo = d.starts[p]
            for i in range(q.starts[r], q.starts[r + 1]):
                x = xq[i]
                lo = i + 1 if own else _opening(x, swept, lo, stop_j, search.reach)
                j, found""",
        """            own = half
            lo = d.starts[p]
            for i in range(q.starts[r], q.starts[r + 1]):
                x = xq[i]
                lo = i + 1 if own else _opening(x, swept, lo, stop_j, search.reach)
                j, found""",
        K + "test_sweep.py -k counted",
    ),
    Mutation(
        "planning/outputs.py",
        """most = most + np.where(
            blocks[:, 0] == blocks[:, 1], chunks.rows[blocks[:, 0]], 0
        )""",
        "most = most + np.where(blocks[:, 0] == blocks[:, 1], 0.0, 0)",
        "planning/test_outputs.py",
    ),
    Mutation(
        "planning/chunk_limits.py",
        """is_best = (
                self._whole_bytes(table, row_bytes) <= self.limits.whole
                and rows <= MAX_ROWS
            )""",
        "is_best = self._whole_bytes(table, row_bytes) <= self.limits.whole",
        "planning/test_chunk_limits.py -k numbered",
    ),
    Mutation(
        "planning/chunk_limits.py",
        "PART_BYTES * threads",
        "PART_BYTES",
        "planning/test_chunk_limits.py -k thread",
    ),
    Mutation(
        "planning/costs.py", "SPLIT = 0.5", "SPLIT = 5.0", "planning/test_costs.py"
    ),
    Mutation(
        "tasks/counts.py",
        "if nodes > FEW * len(left):",
        "if nodes > 0:",
        "tasks/test_counts.py",
    ),
    Mutation(
        "sets/predicate.py",
        "-(-top // bottom) - 1 if above",
        "-(-top // bottom) if above",
        "sets/test_predicate.py",
    ),
    Mutation(
        "sets/cpu/candidates.py",
        "b - places[at]) >= row[b]",
        "b - places[at]) > row[b]",
        "sets/cpu/test_candidates.py",
    ),
    Mutation(
        D + "schema.py",
        "if live >= (1 - MAX_DELETED_SHARE) * one.rows:",
        "if True:",
        D + "test_schema.py -k key_files",
    ),
    Mutation(
        D + "schema.py",
        """live = np.asarray(
        pc.is_in(names.dictionary, pa.array(sorted(files), pa.string())), bool
    )[of]""",
        """live = (
        np.asarray(
            pc.is_in(names.dictionary, pa.array(sorted(files), pa.string())), bool
        )[of]
        | True
    )""",
        D + "test_schema.py -k key_files",
    ),
]
"""Those of an earlier review that no test noticed."""

PROTOCOL = [
    # W1: the last version, and not one that is removed meanwhile
    Mutation(
        D + "manifests.py",
        "for _ in range(TRIES):",
        "for _ in range(1):",
        D + "test_damage.py -k listed",
    ),
    # a number follows that of the version that was read, unless newer ones are damaged
    Mutation(
        D + "publishing.py",
        "if not all(damage_of(root, number) for number in newer):",
        "if False:",
        D + "test_publishing.py -k newer",
    ),
    Mutation(
        D + "publishing.py",
        "return newer[-1] if newer else manifest.version",
        "return manifest.version",
        D + "test_damage.py -k after_a_damaged",
    ),
    # W2, D1: files are durable before a version names them
    Mutation(D + "folders.py", "os.fsync(file.fileno())", "pass", D + "test_power.py"),
    Mutation(
        D + "versions.py",
        """    for name in FOLDERS[1:]:
        sync_folder(root / name)
""",
        "",
        D + "test_power.py",
    ),
    Mutation(
        D + "versions.py",
        "        sync_folder(root / PAIRS)\n",
        "        pass\n",
        D + "test_power.py",
    ),
    Mutation(
        D + "publishing.py",
        """            sync_folder(own.root / FOLDERS[0])
            last""",
        "            last",
        D + "test_power.py",
    ),
    # W3: it fails if the name is taken
    Mutation(
        D + "folders.py",
        "os.link(temporary, path)",
        "os.replace(temporary, path)",
        D + "test_folders.py",
    ),
    Mutation(
        D + "folders.py",
        "(self.path / name).create(content)",
        "(self.path / name).put(content)",
        D + "test_folders.py",
    ),
    # W3: if no answer comes, again; then files stay
    Mutation(
        D + "publishing.py",
        "for _ in range(ATTEMPTS):",
        "for _ in range(1):",
        D + "test_writers.py -k answer",
    ),
    Mutation(
        D + "publishing.py",
        "own.kept = True",
        "own.kept = False",
        D + "test_writers.py -k answer",
    ),
    Mutation(
        D + "publishing.py",
        "own.kept = unknown is not None",
        "own.kept = False",
        D + "test_writers.py -k full",
    ),
    Mutation(
        D + "publishing.py",
        "own.kept = unknown is not None",
        "own.kept = True",
        D + "test_writers.py -k refused",
    ),
    Mutation(
        D + "folders.py",
        "if error.errno in REFUSALS or is_read_only(error):",
        "if True:",
        D + "test_writers.py -k answer",
    ),
    Mutation(
        D + "folders.py",
        "if error.errno in REFUSALS or is_read_only(error):",
        "if False:",
        D + "test_writers.py -k refused",
    ),
    Mutation(
        D + "folders.py",
        """        except IndexStoreError as error:
            raise Unconfirmed(str(error)) from error

    def read""",
        """        except ZeroDivisionError as error:
            raise Unconfirmed(str(error)) from error

    def read""",
        D + "test_stores.py -k confirmed",
    ),
    # W4: whose the taken name is
    Mutation(
        D + "publishing.py",
        "return _of_taken(own, folder, name)",
        "return Outcome.OVERTAKEN",
        D + "test_writers.py -k answer",
    ),
    Mutation(
        D + "publishing.py",
        'own.kept = token in ("", own.token)',
        "own.kept = token == own.token",
        D + "test_publishing.py -k outcome",
    ),
    Mutation(
        D + "publishing.py",
        'own.kept = token in ("", own.token)',
        "own.kept = True",
        D + "test_publishing.py -k outcome",
    ),
    # W4: new files for each attempt
    Mutation(
        D + "publishing.py",
        "token: str = field(default_factory=lambda: uuid.uuid4().hex[:DIGITS])",
        'token: str = "0123456789abcdef"',
        D + "test_publishing.py -k outcome",
    ),
    Mutation(
        D + "versions.py",
        """        if done is not None:
            return done
    raise""",
        """        return done
    raise""",
        D + "test_publishing.py -k removed",
    ),
    # D2: a version is durable before it is reported
    Mutation(
        D + "publishing.py",
        """is Outcome.PUBLISHED:
        sync_folder(own.root / FOLDERS[0])""",
        """is Outcome.PUBLISHED:
        pass""",
        D + "test_power.py",
    ),
    # leases
    Mutation(
        D + "publishing.py",
        "if not self.lease.exists():",
        "if False:",
        D + "test_versions.py -k after_its_update",
    ),
    Mutation(
        D + "publishing.py",
        "        try:\n            yield\n        finally:\n            if not self.lease",
        "        yield\n        if True:\n            if not self.lease",
        D + "test_versions.py -k says_so",
    ),
    Mutation(
        D + "versions.py",
        "for name in sorted(needless and needless - files_of(kept)):",
        "for name in sorted(needless and needless - files_of(kept))[::-1]:",
        D + "test_power.py",
    ),
    # V1, V2: the fence
    Mutation(
        D + "versions.py",
        "        if not unknown:\n",
        "        if True:\n",
        D + "test_publishing.py -k leftovers",
    ),
    Mutation(
        D + "versions.py",
        "return Survey(known | {fence.version: fence}, files, unknown)",
        """return Survey(
                known | {fence.version: fence},
                files := _data_files(root),
                files.keys() - named,
            )""",
        D + "test_publishing.py -k after_its_fence",
    ),
    Mutation(
        D + "versions.py",
        "    return Survey(known, files, set())",
        "    return Survey(known, files, unknown)",
        D + "test_publishing.py -k always_slower",
    ),
    Mutation(
        D + "versions.py",
        "if name not in named and _is_older(path, before)",
        "if name not in named",
        D + "test_manifests.py -k nobody",
    ),
    Mutation(
        D + "versions.py",
        """            if error.errno in FULL:
                break  # the vacuum may make room
""",
        "",
        D + "test_versions.py -k room",
    ),
    # V3: tombstones, in ascending order
    Mutation(
        D + "manifests.py",
        "folder.bury(name)",
        "removed(path)",
        D + "test_schedules.py",
    ),
    Mutation(
        D + "versions.py",
        "sum(bury(root, version) for version in old)",
        "sum(bury(root, version) for version in reversed(old))",
        D + "test_publishing.py -k ascending",
    ),
    Mutation(
        D + "folders.py",
        "if error.errno not in (errno.ENOENT, errno.EMLINK):",
        "if error.errno != errno.ENOENT:",
        D + "test_manifests.py -k space",
    ),
    Mutation(
        D + "folders.py",
        """                temporary.unlink(missing_ok=True)


@dataclass""",
        """                pass


@dataclass""",
        D + "test_folders.py",
    ),
    Mutation(
        D + "manifests.py",
        "first = above or _last_removed(folder)",
        "first = above",
        D + "test_manifests.py -k space",
    ),
    Mutation(
        D + "manifests.py",
        "if not found and first > above:",
        "if False:",
        D + "test_manifests.py -k space",
    ),
    Mutation(
        D + "manifests.py",
        "return None if is_removed else found",
        "return found",
        D + "test_damage.py -k harm",
    ),
    Mutation(
        D + "versions.py",
        "replaced = [one for one in known if one > first and one not in there]",
        "replaced = []",
        D + "test_damage.py -k tombstone",
    ),
    # D3, D4
    Mutation(
        D + "versions.py",
        """        sync_folder(root / FOLDERS[0])
        # in ascending""",
        """        # in ascending""",
        D + "test_power.py",
    ),
    Mutation(
        D + "versions.py",
        """for version in old)
        sync_folder(root / FOLDERS[0])
""",
        """for version in old)
""",
        D + "test_power.py",
    ),
    # V4: after V3, and only what no kept version names
    Mutation(
        D + "versions.py",
        "sorted(needless and needless - files_of(kept))",
        "sorted(needless)",
        D + "test_snapshots.py",
    ),
    Mutation(
        D + "versions.py",
        "    freed = 0\n    if old:",
        """    freed = sum(
        removed(found.files[name])
        for name in dropped - files_of(kept)
        if name in found.files
    )
    if old:""",
        D + "test_power.py",
    ),
]
"""The rules of docs/explanation/versions.md, each left out."""

MUTATIONS = [
    *SURVIVED,
    *PROTOCOL,
    Mutation(
        K + "nearest.py", "<= row else at", "< row else at", "tasks/test_nearest.py"
    ),
    Mutation(
        K + "pack.py",
        "order[free[chunk[i]]] = i",
        "order[free[chunk[i]]] = chunk[i]",
        K + "test_pack.py",
    ),
    Mutation(
        K + "pack.py",
        "min(max((y[i] - low[1]) * scale[1], 0.0), most[1])",
        "max((y[i] - low[1]) * scale[1], 0.0)",
        K + "test_pack.py",
    ),
    Mutation(
        K + "boruvka.py",
        "weight[first] == max(core[start], core[end])",
        "weight[first] == core[start]",
        K + "test_boruvka.py",
    ),
    Mutation(
        K + "boruvka.py",
        "offer(best, b, weight[e], names[i], names[j], j, i)",
        "pass",
        K + "test_boruvka.py",
    ),
    Mutation(
        K + "hierarchy.py",
        "rows += size[child - n] if child >= n else 1",
        "rows += 1",
        K + "test_hierarchy.py",
    ),
    Mutation(
        K + "hierarchy.py",
        "away[stop] == away[start]:",
        "stop == start:",
        K + "test_hierarchy.py",
    ),
    Mutation(
        K + "hierarchy.py",
        "if joined > 1:",
        "if joined > 2:",
        K + "test_hierarchy.py",
    ),
    Mutation(
        K + "edge_order.py",
        "low[i] == a and high[i] < b",
        "low[i] == a and high[i] > b",
        K + "test_edge_order.py",
    ),
    Mutation(
        K + "hierarchy.py",
        "a_low[i] == b_low[j] and a_high[i] < b_high[j]",
        "a_low[i] == b_low[j] and a_high[i] > b_high[j]",
        K + "test_hierarchy.py",
    ),
    Mutation(
        K + "nearest_lists.py",
        "np.uint64(name) > np.uint64(other)",
        "name > other",
        K + "test_nearest_lists.py",
    ),
    Mutation(
        K + "reductions.py",
        "delta * delta * (float(before) * rows / together)",
        "delta * delta",
        K + "test_reductions.py",
    ),
    Mutation(
        K + "best_edges.py",
        "return bool(a < low or (a == low and b < high))",
        "return bool(a < low)",
        K + "test_best_edges.py",
    ),
    Mutation(
        K + "tile_simd.py",
        "whole = builder.and_(dims, const(-LANES))",
        "whole = const(0)\n    dims = whole",
        K + "test_tile_simd.py",
    ),
    Mutation(
        "engine/index/kdtree.py",
        "left = columns[cut[0]] < cut[1]",
        "left = columns[cut[0]] <= cut[1]",
        "engine/index/test_kdtree.py",
    ),
    Mutation(
        "engine/index/kdtree.py",
        "total[-1] * share",
        "total[-1] * share / 2",
        "engine/index/test_kdtree.py",
    ),
    Mutation(
        "engine/index/cpu_tiles.py",
        "padded[1].max(axis=1)",
        "padded[1].min(axis=1)",
        "engine/index/test_cpu_tiles.py",
    ),
    Mutation(
        "engine/filters/quantization.py",
        "(1 + 8 * U) + dims * 2.0**-140",
        "(1 - 64 * U) + dims * 2.0**-140",
        "engine/filters/test_quantization.py",
    ),
    Mutation(
        "engine/filters/float16.py",
        "t = outer**2 / 2 + 2 * outer * r + 2 * r * r",
        "t = outer**2 / 2",
        "engine/filters/test_float16.py",
    ),
    Mutation(
        "engine/filters/bounds.py",
        "(self.outer + self.rho) ** 2",
        "(self.outer - self.rho) ** 2",
        "engine/index/test_gpu.py",
    ),
    Mutation(
        "engine/filters/float16.py",
        "return stages * 3 * TILE",
        "return stages * TILE",
        "engine/filters/test_tensor_cores.py",
    ),
    Mutation(
        "engine/base.py",
        "(rows * (rows - 1) / 2)",
        "(rows * rows / 2)",
        "engine/test_base.py",
    ),
    Mutation(
        "metrics/sphere.py", "RADIUS = ", "RADIUS = 1 + ", "metrics/test_sphere.py"
    ),
    Mutation(
        "planning/searches.py",
        "len(x) <= neighbors:",
        "len(x) <= 0:",
        "planning/test_searches.py",
    ),
    Mutation(
        "planning/searches.py",
        "np.maximum(np.abs(x[:, k] - low)",
        "np.minimum(np.abs(x[:, k] - low)",
        "planning/test_searches.py",
    ),
    Mutation(
        "planning/sample_pairs.py",
        "return (1 - 1 / rows) / (1 - 1 / drawn) if drawn > 1 else 1.0",
        "return 1.0",
        "planning/test_sample_pairs.py",
    ),
    Mutation(
        "planning/outputs.py",
        "np.minimum(slices, np.ceil(most)).clip(1)",
        "slices.clip(1)",
        "planning/test_outputs.py",
    ),
    Mutation(
        "planning/outputs.py",
        "tables[-1] - (len(tables) == 1)",
        "tables[-1]",
        "planning/test_outputs.py",
    ),
    Mutation(
        "planning/tables.py",
        "(weight, self.right.points.weight)",
        "(weight, np.ones(len(own)))",
        "planning/test_tables.py",
    ),
    Mutation(
        "planning/searches.py",
        "divided = (least > 1) & (met > 0)",
        "divided = least > 1",
        "api/test_knn.py -k searches_nothing",
    ),
    Mutation(
        "planning/searches.py",
        "statistics.pair_bytes + NUMBER_BYTES",
        "statistics.pair_bytes",
        "api/test_knn.py -k no_larger",
    ),
    Mutation(
        "planning/tables.py",
        "row_bytes = tuple(self.point_bytes(output))",
        "row_bytes = tuple(each - output.found_bytes(self.left.rows) for each in row_bytes)",
        "api/test_knn.py -k large_right",
    ),
    Mutation(
        "graph/nearest.py",
        "query = self.chunks.chunk_ref(c, number)",
        "query = refs[c]",
        "graph/test_copies.py",
    ),
    Mutation(
        "tasks/neighbor_rows.py",
        'state["places"][~near] if "places" in state else unmatched_places(query, near)',
        "unmatched_places(query, near)",
        "api/test_knn.py -k each_part",
    ),
    Mutation(
        "tasks/neighbor_rows.py",
        "inverse_of(rank[places])",
        "rank[places]",
        "api/test_knn.py",
    ),
    Mutation(
        "request/spec.py",
        "self.names[len(self.keep) :]",
        "self.names[: len(self.keep)]",
        "request/test_spec.py",
    ),
    Mutation(
        "request/clusters.py",
        "max_rows < self.min_rows()",
        "max_rows < 1",
        "request/test_clusters.py",
    ),
    Mutation(
        D + "types.py",
        "bool((first < behind).any())",
        "bool((first <= behind).any())",
        D + "test_types.py",
    ),
    Mutation(
        D + "types.py", "(chosen.newest <= to).all()", "True", D + "test_types.py"
    ),
    Mutation(
        D + "segments.py",
        "& (x[:, k] <= upper[k])",
        "& (x[:, k] < upper[k])",
        D + "test_segments.py",
    ),
    Mutation(
        D + "segments.py",
        "(version > above) & (version <= to)\n    found[places] = False",
        "(version > above)\n    found[places] = False",
        D + "test_segments.py",
    ),
    Mutation(
        D + "row_batch.py",
        "there = found | stay",
        "there = found",
        D + "test_row_batch.py",
    ),
    Mutation(
        D + "row_batch.py",
        "order = xp.argsort(seq)",
        "order = xp.arange(len(seq))",
        D + "test_row_batch.py",
    ),
    Mutation(
        D + "files.py",
        "total + size > max_rows",
        "total + size >= max_rows",
        D + "test_files.py",
    ),
    Mutation("sets/token_ids.py", "rank -= 1", "rank -= 0", "sets/test_token_ids.py"),
    Mutation(
        "planning/size_blocks.py",
        "np.where(sizes > 0, self._first[ranges] + within, 0)",
        "self._first[ranges]",
        "planning/test_size_blocks.py",
    ),
    Mutation(
        "papers/cpu/nested.py",
        "start : stop + SWEEP_LANES",
        "start:stop",
        "papers/cpu/test_nested.py",
    ),
    Mutation(
        "tasks/closest.py",
        "max_pairs = n * (1 + one_table) * len(found)",
        "max_pairs = n",
        "tasks/test_closest.py",
    ),
    Mutation(
        "tasks/closest.py",
        "pairs.take(rank < n)",
        "pairs.take(rank <= n)",
        "tasks/test_closest.py",
    ),
    Mutation(
        "tasks/closest.py",
        "pairs.take(slice(n))",
        "pairs.take(slice(n + 1))",
        "tasks/test_closest.py",
    ),
    Mutation(
        "tasks/closest.py",
        "prepend=-1) >= k]",
        "prepend=-1) > k]",
        "tasks/test_closest.py",
    ),
    Mutation(
        "tasks/closest.py",
        "chosen[best.left] = chosen[best.right] = True",
        "chosen[best.left] = True",
        "tasks/test_closest.py",
    ),
    Mutation(
        "tasks/closest.py",
        "max_k = rows[1] - one_table",
        "max_k = rows[1]",
        "tasks/test_closest.py",
    ),
    Mutation(
        "cluster/hdbscan_estimator.py",
        "others = hierarchy.samples - 1",
        "others = hierarchy.samples",
        "cluster/test_hdbscan_estimator.py",
    ),
    Mutation(
        "cluster/hdbscan_estimator.py",
        "np.maximum(np.maximum(distance, own_core), hierarchy.core[near])",
        "np.maximum(distance, own_core)",
        "cluster/test_hdbscan_estimator.py",
    ),
    Mutation(
        "cluster/hdbscan_estimator.py",
        "tree.row_lambda[rows] > density",
        "tree.row_lambda[rows] < density",
        "cluster/test_hdbscan_estimator.py",
    ),
    Mutation(
        "cluster/hdbscan_estimator.py",
        "tree.birth[at[above]] >= density[above]",
        "tree.birth[at[above]] > density[above]",
        "cluster/test_hdbscan_estimator.py",
    ),
    Mutation(
        "cluster/hdbscan_estimator.py",
        "np.minimum(left, right), np.maximum(left, right), away",
        "np.maximum(left, right), np.minimum(left, right), away",
        "cluster/test_hdbscan_estimator.py",
    ),
    Mutation(
        "request/units.py", "if number < 0:", "if number <= 0:", "request/test_units.py"
    ),
    Mutation(
        "metrics/distances.py",
        "half = 0.5 * squared_chord(number * size, xp, 1.0)",
        "half = squared_chord(number * size, xp, 1.0)",
        "request/test_units.py",
    ),
    Mutation(
        "request/units.py",
        "ANGLES[name] if metric.name == Cosine.name else ANGLES[name] * RADIUS",
        "ANGLES[name]",
        "request/test_units.py",
    ),
    Mutation(
        "request/units.py",
        "texts = [] if spec.radius is not None else",
        "texts = [] if spec.radius is None else",
        "request/test_units.py",
    ),
    Mutation(
        "request/units.py", "or eps < 0:", "or eps <= 0:", "request/test_units.py"
    ),
    Mutation(
        "request/requests.py",
        "least > spec.eps:",
        "least >= spec.eps:",
        "request/test_requests.py",
    ),
    Mutation(
        "request/requests.py",
        "if self.mutual and self.how != INNER:",
        "if self.how != INNER:",
        "request/test_requests.py",
    ),
    Mutation(
        "request/requests.py",
        "return 0.0 if least is None else spec.measure.least_total(least)",
        "return 0.0 if least is None else least",
        "request/test_requests.py",
    ),
    Mutation(
        "reports/run.py",
        "0 < self._result_tasks <= self._made",
        "0 < self._result_tasks < self._made",
        "reports/test_run.py",
    ),
    Mutation(
        "reports/run.py",
        " and (record.step, record.key) not in self._steps",
        "",
        "reports/test_run.py",
    ),
    Mutation(
        "reports/run.py",
        "if self._is_new_run or self.done:",
        "if self._is_new_run:",
        "reports/test_run.py",
    ),
    Mutation(
        "reports/run.py",
        "default=0.0) - min(",
        "default=0.0) - max(",
        "reports/test_run.py",
    ),
    Mutation(
        "graph/dask_private.py",
        '"_projection_columns" in vars(fused)',
        '"_projection_columns" not in vars(fused)',
        "graph/test_dask_private.py -k fused",
    ),
    Mutation(
        "graph/dask_private.py",
        "        return task.substitute(subs)",
        "        return task",
        "graph/test_dask_private.py -k follow",
    ),
    Mutation(
        "graph/source.py",
        "        if found is not expr and not _has_equal_partitions(found):",
        "        if False:",
        "graph/test_source.py -k numbers",
    ),
    Mutation(
        "graph/dask_private.py",
        "for step in steps\n        for found in",
        "for step in steps[:1]\n        for found in",
        "graph/test_dask_private.py",
    ),
    Mutation(
        D + "publishing.py",
        "if len(last) >= MAX_BATCHES:",
        "if len(last) > MAX_BATCHES:",
        D + "test_publishing.py",
    ),
    Mutation(
        "neighbors.py",
        "(self.mode == DISTANCE)",
        "(self.mode != DISTANCE)",
        "test_neighbors.py",
    ),
    Mutation(
        "neighbors.py",
        "self._n_features_out = self.n_samples_fit_",
        "self._n_features_out = self.n_features_in_",
        "test_neighbors.py",
    ),
    Mutation(
        "api/nearest_neighbors.py",
        "len(fitted) - (queries is None)",
        "len(fitted)",
        "api/test_nearest_neighbors.py",
    ),
    Mutation(
        "planning/resources.py",
        'if len(info["workers"]) == info',
        'if len(info["workers"]) != info',
        "planning/test_resources.py -k workers",
    ),
    Mutation(
        "request/units.py",
        '"nmi": 1852.0',
        '"nmi": 1853.0',
        "api/test_distance_unit.py -k sphere",
    ),
    Mutation(
        K + "cells.py",
        "max(high[e, k] - low[c, k], high[c, k] - low[e, k])",
        "high[e, k] - low[c, k]",
        "engine/cpu/test_cells.py -k norms",
    ),
    Mutation(
        "tasks/nearest.py",
        "numbers.sort(axis=1)",
        "pass",
        "tasks/test_nearest.py -k as_merged",
    ),
    Mutation(
        "engine/filters/float16.py",
        "-(-(stages + 1) // slices)",
        "-(-stages // slices)",
        "engine/filters/test_tensor_cores.py -k warps",
    ),
    Mutation(
        "planning/chunk_limits.py",
        "max(making, searching, finding)",
        "min(making, searching, finding)",
        "planning/test_chunk_limits.py -k planned",
    ),
    Mutation(
        "tasks/by_worker.py",
        "[start:stop] = positions(read, int(chunks.offsets[fingerprint[0]]))",
        "[start:stop] = positions(read, int(chunks.offsets[fingerprints[0][0]]))",
        "graph/test_shuffle.py -k held_rows",
    ),
    Mutation(
        "cluster/algorithms/halo_dbscan.py",
        'core[places_of(order, chunk["far"])] = False',
        'core[places_of(order, chunk["far"])] &= True',
        "cluster/algorithms/test_halo_dbscan.py",
    ),
    Mutation(
        "cluster/algorithms/halo_dbscan.py",
        "np.minimum.at(least, root, firsts)",
        "np.maximum.at(least, root, firsts)",
        "cluster/algorithms/test_halo_dbscan.py",
    ),
    Mutation(
        "cluster/algorithms/halo_dbscan.py",
        "nodes[again], nodes[again + 1]",
        "nodes[again], nodes[again]",
        "cluster/algorithms/test_halo_dbscan.py",
    ),
    Mutation(
        "cluster/algorithms/halo_duplicates.py",
        "has_halo[within[in_halo]] = True",
        "has_halo[within[~in_halo]] = True",
        "cluster/algorithms/test_halo_duplicates.py",
    ),
    Mutation(
        "cluster/algorithms/halo_duplicates.py",
        "winner[root[top]] = best[top]",
        "winner[root] = best",
        "cluster/algorithms/test_halo_duplicates.py",
    ),
    Mutation(
        "planning/searches.py",
        "limits.reshape(-1, number).max(axis=0)",
        "limits.reshape(-1, number).min(axis=0)",
        "planning/test_searches.py -k further",
    ),
    Mutation(
        "tasks/shuffle.py",
        "near |= upper - x[:, k] <= chunks.near_reach",
        "near |= upper - x[:, k] <= 0",
        "tasks/test_by_worker.py",
    ),
    Mutation(
        "metrics/norms.py",
        "away = 2 * reach(",
        "away = 1.9 * reach(",
        "metrics/test_norms.py",
    ),
    Mutation(
        "engine/compat.py",
        "return rows if same.all() else None",
        "return rows if same.any() else None",
        "engine/test_compat.py",
    ),
    Mutation(
        "planning/visits.py",
        "while len(memory) > capacity:\n            del memory",
        "while len(memory) >= capacity:\n            del memory",
        "planning/test_visits.py",
    ),
    Mutation(
        K + "gates.py",
        "        if q.y[i, k] != d.y[j, k]:\n            return math.inf\n",
        "        pass\n",
        "metrics/test_formulas.py -k apart",
    ),
    Mutation(
        "metrics/distances.py",
        "        away += sum(self.box) * 2.0**-40\n",
        "",
        "calls/test_box.py -k circle",
    ),
    Mutation(
        "metrics/distances.py",
        "(), 2 * len(self.box))",
        "(), 0)",
        "calls/test_box.py -k any_size",
    ),
    Mutation(
        "metrics/distances.py",
        "longer = 2.0 ** max(0.0, 1 / self.norm - 0.5)",
        "longer = 1.0",
        "calls/test_box.py -k circle",
    ),
    Mutation(
        "metrics/formulas.py",
        "4 * math.atanh(distance) * MORE",
        "3 * math.atanh(distance) * MORE",
        "metrics/test_formulas.py -k candidates",
    ),
    Mutation(
        "metrics/formulas.py",
        "4 * distance / (1 + distance)",
        "3 * distance / (1 + distance)",
        "metrics/test_formulas.py -k candidates",
    ),
    Mutation(
        "sets/best.py",
        "                parts, held = [best], len(best.left)\n",
        "                held = len(best.left)\n",
        "sets/test_best.py -k held",
    ),
    Mutation(
        "sets/best.py",
        "places = np.lexsort((number, group))",
        "places = np.arange(len(number))",
        "sets/test_best.py -k first_row_of",
    ),
    Mutation(
        "planning/visits.py",
        "first = min(capacity, used)",
        "first = min(capacity + 1, used)",
        "planning/test_visits.py",
    ),
    Mutation(
        "graph/small_frames.py",
        "not spec.coordinates.lists and copies == 1",
        "copies == 1",
        "graph/test_small_frames.py",
    ),
    Mutation(
        "graph/source.py",
        "if lowered.npartitions == expr.npartitions",
        "if lowered.npartitions <= expr.npartitions",
        "graph/test_source.py -k changes",
    ),
]


def applied(one, folder):
    """Copy the tree to a folder, and change it there."""
    for part in PARTS:
        source, target = ROOT / part, folder / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.pyc"))
        else:
            shutil.copy(source, target)
    path = folder / "dask_simjoin" / one.file
    text = path.read_text()
    if text.count(one.old) != 1:
        raise ValueError(
            f"{one.file} has {one.old!r} {text.count(one.old)} times, and not once"
        )
    path.write_text(text.replace(one.old, one.new))


def killed(one):
    """Whether the nearest test fails with a mutation, and its last line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        applied(one, folder)
        file, *more = one.test.split()
        pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        own = os.environ | {
            "NUMBA_CACHE_DIR": str(folder / "kernels"),
            "PYTHONPATH": str(folder),
        }
        try:
            done = subprocess.run(
                [*pytest, f"tests/{file}", *more],
                cwd=folder,
                env=own,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return True, f"did not end within {SECONDS} s"
        lines = done.stdout.strip().splitlines() or [done.stderr[-200:]]
        if done.returncode > 1:
            raise RuntimeError("\n".join([f"status {done.returncode}", *lines[-20:]]))
        return done.returncode != 0, lines[-1]  # below 0: a crash


def main():
    """Run what is asked for; the exit status is 1 if a mutation survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("numbers", nargs="*", type=int)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("-n", type=int, default=2, help="how many at a time")
    asked = parser.parse_args()
    chosen = asked.numbers or range(len(MUTATIONS))
    if asked.list:
        for number in chosen:
            print(number, MUTATIONS[number].file, repr(MUTATIONS[number].new))
        return 0
    start, survived = time.monotonic(), []
    with ThreadPoolExecutor(asked.n) as pool:
        for number, (dead, line) in zip(
            chosen, pool.map(lambda n: killed(MUTATIONS[n]), chosen), strict=True
        ):
            print(
                number,
                "killed" if dead else "SURVIVED",
                MUTATIONS[number].file,
                "|",
                line,
                flush=True,
            )
            survived += [] if dead else [number]
    print(
        f"{len(chosen) - len(survived)} of {len(chosen)} killed in {time.monotonic() - start:.0f} s",
        survived or "",
    )
    return int(bool(survived))


if __name__ == "__main__":
    sys.exit(main())
