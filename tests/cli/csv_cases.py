"""CSV files for tests, and the commands that read them."""

import gzip

import dask

from dask_simjoin.cli import sources
from dask_simjoin.cli.csv_format import CsvColumns, CsvFormat

SYNC = ("--scheduler", "synchronous", "-q")
NEAR = ("--eps", "1", "--on", "x", *SYNC)


def write(name, text):
    data = text.encode()
    with open(name, "wb") as file:
        file.write(gzip.compress(data) if name.endswith(".gz") else data)


def read(name, written=None, **used):
    with dask.config.set(scheduler="synchronous"):
        reader = sources.TableReader(written=written or CsvFormat())
        return reader.read([name], CsvColumns(**used)).compute()


COMMANDS = {
    "self-join": ("--eps", "1", "--on", "x", "-o", "o.csv"),
    "count-pairs": ("--eps", "1", "--on", "x"),
    "counts": ("--eps", "1", "--on", "x", "-o", "o.csv"),
    "dedup": ("--eps", "1", "--on", "x", "-o", "o.csv"),
    "dbscan": ("--eps", "1", "--on", "x", "-o", "o.csv"),
    "plan": ("--eps", "1", "--on", "x"),
    "sets dedup": ("--threshold", "1", "--on", "t", "-o", "o.csv"),
    "strings count-pairs": ("--k", "1", "--on", "t"),
    "index make": ("--eps", "1", "--on", "x", "--id", "id", "--path", "grown"),
}
GOOD = "id,x,t\n" + "".join(f"{n},{n}.5,text{n}\n" for n in range(20))
