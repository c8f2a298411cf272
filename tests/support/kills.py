"""Workers that are killed in the middle of a run."""

import contextlib
import os
import signal

from distributed.diagnostics.plugin import SchedulerPlugin


class Killer(SchedulerPlugin):
    """Kills a process when the scheduler learns that a first task of a kind is done.

    It sees no other task's end before the kill, however slow the machine is.
    """

    name = "kills-a-worker"

    def __init__(self, pid: int, kind: str) -> None:
        self.pid, self.kind, self.killed = pid, kind, False

    def transition(self, key, start, finish, *args, **options):
        if (
            finish == "memory"
            and not self.killed
            and str(key).startswith(f"('{self.kind}")
        ):
            self.killed = True
            os.kill(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def killing(cluster, client, kind):
    """Kill one of the workers of a local cluster once a task of a kind is done."""
    killer = Killer(next(iter(client.run(os.getpid).values())), kind)
    cluster.scheduler.add_plugin(killer)
    try:
        yield killer
    finally:
        cluster.scheduler.remove_plugin(killer.name)
