"""Planning: from one pass over the data to chunks, block pairs, sizes and refusals.

`plan.make_plan(statistics, output, resources, shuffle)` plans every join.  `tables.JoinStatistics` has the
statistics of one table or two: ways to cut them into chunks, a sample of their pairs, and estimates of all
pairs.  `outputs.OutputSpec` describes the results of tasks, and `budget.Resources` the workers.
"""
