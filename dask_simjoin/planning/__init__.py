"""Planning: from one pass over the data to chunks, block pairs, sizes and refusals.

`plan.make_plan(statistics, output, resources, shuffle)` plans every join.  `tables.JoinStatistics` has the
statistics of one or two tables.  Its methods cut the tables into chunks, join samples, and estimate the
number of pairs.  `outputs.OutputSpec` describes the results of tasks, and `budget.Resources` the workers.
"""
