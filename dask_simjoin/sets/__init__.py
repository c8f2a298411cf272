"""Joins of sets of tokens by their similarity."""
