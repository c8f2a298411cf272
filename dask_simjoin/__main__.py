"""Run the program ``dask-simjoin`` by ``python -m dask_simjoin``."""

from dask_simjoin.cli.main import main

if __name__ == "__main__":
    main()
