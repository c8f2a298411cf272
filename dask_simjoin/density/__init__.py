"""Clusterings that are built on joins, as pure functions of chunks and of arrays."""
