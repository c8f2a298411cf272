"""Indexes of chunks, built by array expressions that serve NumPy and CuPy alike."""
