"""A plugin of the scheduler that places tasks on workers, and changes the order of
tasks.

Workers are chosen by the keys of tasks, by the homes of chunks, or by the order of
visits.

Dask assigns tasks by the duration of earlier tasks with the same name.  After a run
with few rows, a part of shared work seems to take less time than sending a chunk.  One
worker would then do all parts one after the other.  So keys of such tasks name their
workers.

Dask orders tasks by its own rules. It makes all chunks early, and compares each new
chunk with all earlier ones. If the chunks do not fit in memory, a worker reads a
spilled chunk again for almost every block pair. The plan has a better order: see
`dask_simjoin.planning.visits`. The plugin changes the priorities and the preferred
workers of tasks. Results do not change, and idle workers may still take tasks of other
workers.

If a join has fewer than five chunks, Dask takes its tasks for tasks that read data. It
then gives each to the worker with the fewest tasks, wherever the chunks are. So workers
would send each other whole indexes, even to compare a chunk with itself. If each worker
holds the rows of some chunks, the plugin places these tasks at the homes of their
chunks.

Idle workers steal tasks from others. Dask compares the time to send a task's data with
the work of a worker. It counts as if one thread did the work of all its threads. So a
worker with few tasks would get a whole index, to do a part of the work that takes less
time than sending it. The plugin prevents this for tasks that prefer a worker.

All these workers are preferences: if a worker has left, other workers run its tasks.
Dask forgets this for tasks that became ready while no worker was running, so the plugin
drops the preferences of such tasks.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Scheduler, Status
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_simjoin.graph.dask_private import key_split
from dask_simjoin.graph.standstill import OURS
from dask_simjoin.planning.chunk_limits import EVEN
from dask_simjoin.request.options import current_client
from dask_simjoin.sizes import KEPT, MARGIN, NANO

LOG = logging.getLogger("dask_simjoin")

MOST_CHUNKS = 16
"""A worker is preferred for a task without dependencies only if at most this many
chunks need the task.

A task that more chunks need is part of a shuffle, for example, and Dask distributes it
better.
"""


INDEX = "simjoin_index"
"""Name of the tasks that index chunks."""

LISTS = "simjoin_rows"
"""Name of the tasks that make a list of partitions of a result, on the worker that sent
their rows.
"""

MAX_UNEVEN = 2
"""Partitions are picked where they were made, unless a worker made this many times as
many as another.
"""

ON = "worker "
"""Prefix of the part of a task's key that names the worker for the task, as in "worker
3".
"""


def on_worker_of(worker: int, *place: Any) -> tuple[Any, ...]:
    """Return the end of a task's key such that the worker with this number runs the
    task.
    """
    return f"{ON}{worker}", *place


def worker_of(key: Hashable) -> int | None:
    """Return the number of the worker that a key names, if any."""
    if (
        isinstance(key, tuple)
        and len(key) == 2
        and isinstance(key[1], tuple)
        and key[1]
    ):
        first = key[1][0]
        if isinstance(first, str) and first.startswith(ON):
            return int(first.removeprefix(ON))
    return None


class Moment(NamedTuple):
    """When and where a task runs; moments are compared in the order of the fields."""

    step: int  # number of the pass over all block pairs, from 0
    # position of the block pair among the visits of its worker; a visit is the work on
    # one block pair
    place: int
    worker: int  # number of the worker


@dataclass(frozen=True)
class Placement:
    """Base class of rules that place the tasks of one join."""

    # name in the keys of chunks -> number of the first chunk with this name
    firsts: Mapping[str, int]
    blocks: np.ndarray  # (block pairs, 2): numbers of the chunks, the smaller one first

    def chunk(self, key: Any) -> int | None:
        """Return the number of the chunk that this key makes; None if it makes
        something else.
        """
        if not (isinstance(key, tuple) and len(key) == 2 and key[0] in self.firsts):
            return None
        place = key[1] if worker_of(key) is None else key[1][-1]
        return self.firsts[key[0]] + place if isinstance(place, int) else None

    def used(self, task: Any) -> tuple[int, ...]:
        """Return the numbers of the chunks that a task uses, ascending."""
        return tuple(
            sorted(
                {
                    c
                    for one in task.dependencies
                    if (c := self.chunk(one.key)) is not None
                }
            )
        )

    def arrange(self, tasks: list[Any], there: list[str]) -> None:
        """Place tasks, which are sorted by priority. `there`: addresses of the workers,
        sorted.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ChunkHomes(Placement):
    """The homes of chunks: the workers that hold their rows, and that index them.

    A task that compares a chunk with itself runs at the chunk's home. A task that
    compares two chunks runs at one of their homes, so that all workers get about equal
    work.
    """

    seconds: np.ndarray  # (block pairs,): expected seconds of a thread
    home: np.ndarray  # (chunks,): number of the worker
    threads: np.ndarray  # (workers,): number of threads of each worker

    def arrange(self, tasks: list[Any], there: list[str]) -> None:
        if len(there) != len(self.threads):
            return
        for task, worker in self.workers(
            [task for task in tasks if not task.worker_restrictions]
        ).items():
            task.worker_restrictions, task.loose_restrictions = {there[worker]}, True

    def workers(self, tasks: list[Any]) -> dict[Any, int]:
        """Return the number of the worker for each task that makes or compares chunks.

        Leave out a step's tasks if workers would get very unequal work. If no step is
        left, return nothing.
        """
        found = {
            task: int(self.home[c])
            for task in tasks
            if (c := self.chunk(task.key)) is not None
        }
        numbers = {
            tuple(sorted(pair)): number
            for number, pair in enumerate(self.blocks.tolist())
        }
        # a verb of several steps compares the same chunks in tasks of several names,
        # one after the other. Several tasks of a step may share the work on a block
        # pair
        steps: dict[str, dict[int, list[Any]]] = {}
        for task in tasks:
            used = () if task in found else self.used(task)
            if 1 <= len(used) <= 2 and (used[0], used[-1]) in numbers:
                pair = numbers[used[0], used[-1]]
                steps.setdefault(key_split(task.key), {}).setdefault(pair, []).append(
                    task
                )
        placed: dict[Any, int] = {}
        for step in steps.values():
            placed |= self._balanced(step)
        return found | placed if placed else {}

    def _balanced(self, step: Mapping[int, list[Any]]) -> dict[Any, int]:
        """Return the number of the worker for each task of a step; nothing if the work
        would be very unequal.

        `step`: for each block pair, the tasks that share its work.
        """
        found: dict[Any, int] = {}
        seconds = {pair: max(float(self.seconds[pair]), NANO) for pair in step}
        load, fair = (
            np.zeros(len(self.threads)),
            sum(seconds.values()) * self.threads / self.threads.sum(),
        )
        choices = {pair: np.unique(self.home[self.blocks[pair]]) for pair in step}
        for pair, some in sorted(step.items(), key=lambda one: len(choices[one[0]])):
            homes = choices[pair]
            least = homes[np.argmin((load[homes] + seconds[pair]) / fair[homes])]
            # if one worker does all the work on a block pair, only one index is sent
            if load[least] + seconds[pair] <= EVEN * fair[least]:
                homes = np.array([least])
            for task in some:
                own = seconds[pair] / len(some)
                found[task] = worker = int(
                    homes[np.argmin((load[homes] + own) / fair[homes])]
                )
                load[worker] += own
        return found if (load <= MARGIN * fair).all() else {}


@dataclass(frozen=True)
class VisitOrder(Placement):
    """For the workers of a join, the order of their visits to its block pairs."""

    # (block pairs,): for each block pair, the number of its worker, and its position
    # among the worker's visits
    worker: np.ndarray
    place: np.ndarray

    def arrange(self, tasks: list[Any], there: list[str]) -> None:
        _prefer(schedule(tasks, self), there)

    @functools.cached_property
    def moments(self) -> dict[tuple[int, ...], Moment]:
        """(i, j) -> the moment of this block pair; (i,) -> the moment of the first
        visit of this chunk.
        """
        found: dict[tuple[int, ...], Moment] = {}
        for (i, j), place, worker in zip(
            self.blocks.tolist(), self.place.tolist(), self.worker.tolist(), strict=True
        ):
            found[i, j] = moment = Moment(0, place, worker)
            for chunk in (i, j):
                found[chunk,] = min(moment, found.get((chunk,), moment))
        return found

    def visit(self, task: Any) -> Moment | None:
        """Return the moment of a task that uses one or two chunks; None if it uses no
        chunk, or more than two.
        """
        if self.chunk(task.key) is not None:
            return None
        used = self.used(task)
        if not 0 < len(used) <= 2:
            return None
        alone = (used[0], used[0]) if (used[0], used[0]) in self.moments else (used[0],)
        return self.moments.get(used if len(used) == 2 else alone)


@dataclass
class Schedule:
    """When tasks run: all tasks that depend on a visit, and all tasks that a visit
    depends on.
    """

    moments: dict[Any, Moment]
    making: set[Any]  # tasks that take part in making chunks
    # the tasks in `making` that have no dependencies, and that few chunks need
    first: set[Any]


def schedule(tasks: Iterable[Any], order: VisitOrder) -> Schedule:
    """Return the moments of tasks. `tasks`: sorted such that each task comes after its
    dependencies.
    """
    tasks, moments = list(tasks), dict[Any, Moment]()
    joint = set()  # tasks that use the results of several block pairs
    for task in tasks:
        before = [one for one in task.dependencies if one in moments]
        own = order.visit(task)
        latest = max((moments[one] for one in before), default=own)
        if own is not None and latest is not None:
            # a visit that needs results of other visits belongs to a further pass over
            # the block pairs
            last = [one for one in before if moments[one].step == latest.step]
            others = any(
                one in joint or moments[one].place != own.place for one in last
            )
            moments[task] = own._replace(step=latest.step + others)
        elif latest is not None:
            moments[task] = latest
            if len({moments[one] for one in before}) > 1 or any(
                one in joint for one in before
            ):
                joint.add(task)
    # for each task that takes part in making chunks, the numbers of these chunks
    chunks = dict[Any, frozenset[int]]()
    first = set()
    for task in reversed(tasks):
        after = (
            [one for one in task.dependents if one in moments]
            if task not in moments
            else []
        )
        if after:
            moments[task] = min(moments[one] for one in after)
            number = order.chunk(task.key)
            own_chunk = frozenset() if number is None else frozenset([number])
            chunks[task] = own_chunk.union(
                *(chunks.get(one, frozenset()) for one in after)
            )
            if not task.dependencies and len(chunks[task]) <= MOST_CHUNKS:
                first.add(task)
    return Schedule(moments, set(chunks), first)


class PlacementPlugin(SchedulerPlugin):
    """Place shared work on the workers that keys name, and other tasks by the rules of
    their joins.
    """

    name = "simjoin-placement"
    idempotent = True

    def __init__(self) -> None:
        self._orders: OrderedDict[tuple[str, ...], Placement] = OrderedDict()
        self._scheduler: Scheduler | None = None
        self._timed: set[str] = set()  # steps whose tasks have taken known times

    async def start(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Let a worker that joins run tasks that prefer others."""
        let_run_elsewhere(scheduler, worker)

    def log_event(self, topic: str, msg: Any) -> None:
        """Let a worker that resumes run tasks that prefer others.

        No other method of a plugin is called when the status of a worker changes. The
        scheduler logs this event just before it looks for tasks for the worker.
        """
        if (
            self._scheduler is not None
            and isinstance(msg, dict)
            and msg.get("action") == "worker-status-change"
            and msg.get("status") == Status.running.name
        ):
            let_run_elsewhere(self._scheduler, topic)

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, **other: Any
    ) -> None:
        """Keep a task that a worker gets from being stolen, if that would take longer."""
        if self._scheduler is None or "processing" not in (start, finish):
            return
        task = self._scheduler.tasks.get(key)
        stealing = self._scheduler.extensions.get("stealing")
        if task is None or stealing is None or not key_split(key).startswith(OURS):
            return
        tasks = [task] if finish == "processing" else []
        if finish == "memory" and task.prefix.name not in self._timed:
            # Dask has considered all tasks of the step anew
            self._timed.add(task.prefix.name)
            tasks = [one for one in stealing.key_stealable if one.prefix is task.prefix]
        for one in tasks:
            if is_best_kept(one, self._scheduler.bandwidth):
                stealing.remove_key_from_stealable(one)

    def add(self, order: Placement) -> None:
        """Add the rules for a join. They replace earlier rules for the same chunks."""
        name = tuple(order.firsts)
        self._orders.pop(name, None)
        self._orders[name] = order
        while len(self._orders) > KEPT:
            self._orders.popitem(last=False)

    def update_graph(
        self, scheduler: Scheduler, *, tasks: list[Any], **other: Any
    ) -> None:
        """Place new tasks, before Dask assigns them."""
        there = sorted(worker.address for worker in scheduler.running)
        if not there:
            return
        _share(scheduler, tasks, there)
        names = {key[0] for key in tasks if isinstance(key, tuple)}
        for order in self._orders.values():
            if not names.isdisjoint(order.firsts):
                every = (scheduler.tasks[key] for key in tasks)
                own = sorted(
                    (
                        task
                        for task in every
                        if task.priority and task.state == "released"
                    ),
                    key=lambda task: task.priority,
                )
                order.arrange(own, there)


def is_best_kept(task: Any, bandwidth: float) -> bool:
    """Return whether the preferred worker of a task would end all its tasks before
    another worker had the data of this task.

    `bandwidth`: bytes per second between workers.
    """
    worker = task.processing_on
    if worker is None or worker.address not in (task.worker_restrictions or ()):
        return False
    sending = task.get_nbytes_deps() / bandwidth
    return bool(
        task.loose_restrictions and sending > worker.occupancy / worker.nthreads
    )


def let_run_elsewhere(scheduler: Scheduler, worker: str) -> None:
    """Drop the preferred workers of tasks that wait for one, if this worker, which can
    now run tasks, is not among them.

    Such tasks became ready while no worker could run tasks. Their preferred workers may
    never return.
    """
    for task in scheduler.unrunnable:
        preferred = task.worker_restrictions
        if preferred and task.loose_restrictions and worker not in preferred:
            task.worker_restrictions = None


def _share(scheduler: Scheduler, tasks: list[Any], there: list[str]) -> None:
    """Place each task on the worker that its key names, if any. `there`: addresses of
    the workers.
    """
    own = {key: worker for key in tasks if (worker := worker_of(key)) is not None}
    if not own:
        return
    # of several copies of a chunk, the first has no worker in its key: the first worker
    # makes it
    firsts = {(name, *place[1:]) for name, place in own}
    own |= {key: 0 for key in tasks if isinstance(key, tuple) and key in firsts}
    own |= _users_of_chunks(scheduler, tasks, own, firsts)
    own |= _picked_from(scheduler, tasks, own, len(there))
    for key, worker in own.items():
        task = scheduler.tasks[key]
        task.worker_restrictions, task.loose_restrictions = (
            {there[worker % len(there)]},
            True,
        )


def _users_of_chunks(
    scheduler: Scheduler, tasks: list[Any], own: dict[Any, int], firsts: set[Any]
) -> dict[Any, int]:
    """For each task that uses chunks of one worker, or its copies of chunks, return
    this worker.

    Dask spreads such tasks evenly, wherever their chunks are, so workers sent each
    other whole indexes.

    `own`: the workers of tasks. `firsts`: the keys that first copies would have.
    """
    chunks = {
        key: n
        for key, n in own.items()
        if key_split(key) == INDEX or key in firsts or (key[0], *key[1][1:]) in own
    }
    found: dict[Any, int] = {}
    for key in tasks if chunks else ():
        used = [
            chunks[one.key]
            for one in scheduler.tasks[key].dependencies
            if one.key in chunks
        ]
        if len(set(used)) == 1 and key not in own:
            found[key] = used[0]
    return found


def _picked_from(
    scheduler: Scheduler, tasks: list[Any], own: dict[Any, int], workers: int
) -> dict[Any, int]:
    """For each task that picks a partition from a list, return the worker that makes
    the list.

    Dask spreads such tasks evenly, wherever their list is, so workers sent whole lists.
    """
    found: dict[Any, int] = {}
    for key in tasks:
        before = [one.key for one in scheduler.tasks[key].dependencies]
        if len(before) == 1 and before[0] in own and key_split(before[0]) == LISTS:
            found[key] = own[before[0]]
    numbers = Counter(found.values()).values()
    return (
        found
        if len(numbers) == workers and max(numbers) < MAX_UNEVEN * min(numbers)
        else {}
    )


def _prefer(found: Schedule, there: list[str]) -> None:
    """Set priorities and preferred workers of tasks. `there`: the addresses of the
    workers.
    """
    moments = found.moments
    priorities = sorted(task.priority for task in moments)
    ordered = sorted(
        moments,
        key=lambda task: (moments[task], task not in found.making, task.priority),
    )
    for task, priority in zip(ordered, priorities, strict=True):
        task.priority = priority
        # without a preferred worker, Dask holds a task without dependencies back until
        # workers are idle. These would first visit all block pairs of the chunks that
        # exist
        preferred = task in found.first or (len(there) > 1 and task not in found.making)
        if preferred and not task.worker_restrictions:
            worker = there[moments[task].worker % len(there)]
            task.worker_restrictions, task.loose_restrictions = {worker}, True


_registered: weakref.WeakSet[Client] = weakref.WeakSet()


def place_tasks() -> Client | None:
    """Register the plugin with the current cluster, and return its client; None if
    there is no cluster, or if its scheduler cannot load the plugin.
    """
    client: Client | None = current_client()
    if client is None or client.asynchronous:
        return None
    if client not in _registered:
        try:
            client.register_plugin(PlacementPlugin())
        except Exception:  # a scheduler without this package still computes
            LOG.info("The scheduler accepts no plugin that places tasks", exc_info=True)
            return None
        _registered.add(client)
    return client


def send_placement(order: Placement) -> None:
    """Send the rules that place a join's tasks to the scheduler of the current cluster,
    if any.
    """
    client = place_tasks()
    if client is None:
        return
    try:
        client.run_on_scheduler(_add, order)
    except Exception:
        LOG.info("The scheduler accepts no rules that place tasks", exc_info=True)


def _add(order: Placement, dask_scheduler: Scheduler) -> None:
    dask_scheduler.plugins[PlacementPlugin.name].add(order)
