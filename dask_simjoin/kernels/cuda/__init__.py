"""CUDA C++ kernels, compiled when they are first needed, and their loader."""
