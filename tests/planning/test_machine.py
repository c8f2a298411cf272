from distributed.system import MEMORY_LIMIT as DISTRIBUTED_LIMIT

from dask_simjoin.planning.machine import MEMORY_LIMIT, memory_limit


def test_the_limit_is_that_of_distributed():
    assert MEMORY_LIMIT == DISTRIBUTED_LIMIT


def test_control_groups_lower_the_limit(tmp_path):
    whole = memory_limit(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_limit(tmp_path) == whole
    (tmp_path / "memory.high").write_text("1048576\n")
    (tmp_path / "memory.low").write_text("0\n")
    assert memory_limit(tmp_path) == 2**20
