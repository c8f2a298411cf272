"""The Dask layer: expressions of lazy joins.

A join is built as an expression that only knows its source and its options.  It is planned when
Dask first asks for partitions: on the client, by one pass over the columns.  Lowering then puts the
plan into the expression as an operand, so that schedulers and workers never plan.
"""
