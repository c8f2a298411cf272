"""Backends: where arrays live and which kernels run."""
