"""Run the program ``dask-simjoin`` by ``python -m dask_simjoin``."""

from _dask_simjoin_cli import main

if __name__ == "__main__":
    main()
