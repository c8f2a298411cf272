import subprocess
import sys
import textwrap


def run_python(program):
    """Run a program in a fresh process, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_plain_frames_load_no_dask_dataframes():
    found = run_python(
        """
        import sys
        import pandas as pd
        import dask_simjoin

        df = pd.DataFrame({"x": [0.0, 1.0, 5.0], "y": [0.0, 0.0, 1.0]})
        assert len(df.simjoin.self_join(2.0)) == 1
        assert len(df.simjoin.join(df, 2.0, how="left")) == 5
        assert len(df.simjoin.knn_join(k=1)) == 3
        assert df.simjoin.count_pairs(2.0) == 1
        assert len(df.simjoin.closest_pairs(1)) == 1
        assert list(df.simjoin.dbscan(2.0, min_samples=2)) == [0, 0, -1]
        assert len(df.simjoin.drop_near_duplicates(2.0)) == 2
        df.simjoin.plan(2.0)
        print(*(name for name in ("distributed", "dask.dataframe", "dask.array") if name in sys.modules))
        """
    )
    assert found == []


def test_sets_of_plain_frames_load_no_dask_dataframes():
    found = run_python(
        """
        import sys
        import pandas as pd
        import dask_simjoin

        texts = pd.DataFrame({"text": ["a b c", "a b c d", "e"]})
        how = {"on": "text", "threshold": 0.5, "tokenizer": "whitespace"}
        assert len(texts.simjoin.set_self_join(**how)) == 1
        assert len(texts.simjoin.drop_set_near_duplicates(**how)) == 2
        texts.simjoin.set_plan(**how)
        print(*(name for name in ("distributed", "dask.dataframe") if name in sys.modules))
        """
    )
    assert found == []


def test_dask_frames_have_the_accessor_in_either_order():
    program = """
        import {0}
        import {1}
        import dask.dataframe as dd
        import pandas as pd

        ddf = dd.from_pandas(pd.DataFrame({{"x": [0.0, 1.0, 5.0]}}), npartitions=2)
        pairs = ddf.simjoin.self_join(2.0)
        assert "not planned yet" in repr(pairs)
        print(len(pairs.compute()))
        """
    for first, second in (("dask_simjoin", "dask.dataframe"), ("dask.dataframe", "dask_simjoin")):
        assert run_python(program.format(first, second)) == ["1"]


def test_modules_of_lazy_joins_can_be_imported_first():
    # a worker that unpickles a task imports its module, before any Dask DataFrame
    modules = (
        "graph.dask_private",
        "graph.base",
        "graph.pairs",
        "cluster.expressions.components",
        "sets.graph",
    )
    found = run_python(
        f"""
        import importlib
        import os
        import sys
        import dask, numba, pandas, pyarrow  # once, for all processes that are forked

        assert not any(name in sys.modules for name in ("dask_simjoin", "dask.dataframe"))
        for module in {modules}:
            child = os.fork()
            if not child:
                importlib.import_module("dask_simjoin." + module)
                print(module, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
        """
    )
    assert found == list(modules)
