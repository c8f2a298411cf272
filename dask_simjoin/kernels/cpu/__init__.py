"""The hot loops for CPUs: Numba, one core, no GIL."""
