"""Write and read small CSV files, for tests of the program."""

import gzip

import dask

from dask_simjoin.cli import sources
from dask_simjoin.cli.csv_files import CsvFormat
from dask_simjoin.cli.csv_types import CsvColumns

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


GOOD = "id,x,t\n" + "".join(f"{n},{n}.5,text{n}\n" for n in range(20))
