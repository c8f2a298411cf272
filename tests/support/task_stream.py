"""Tasks that a cluster's workers have run."""

from contextlib import contextmanager


@contextmanager
def tasks_of(client):
    """Collect the tasks that workers run meanwhile: a list, filled at the end.

    Tasks are counted.  Their times do not help, because each worker estimates the
    scheduler's clock.  The estimate of a busy worker is off by as much as a message
    takes.
    """
    # the first call makes the scheduler record tasks from now on
    client.get_task_stream(count=1)
    before, tasks = client.run_on_scheduler(_noted), []
    yield tasks
    number = client.run_on_scheduler(_noted) - before
    tasks += client.get_task_stream(count=number) if number else []


def _noted(dask_scheduler):
    return dask_scheduler.plugins["task-stream"].index
