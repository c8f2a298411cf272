"""Planning: from the statistics of one pass, choose chunks, block pairs and sizes, or
refuse the join.

`plan.make_plan(statistics, output, resources, shuffle)` plans every join.
`tables.JoinStatistics` has the statistics of one or two tables.  Its methods cut the
tables into chunks, join samples, and estimate the number of pairs.
`outputs.OutputSpec` describes the results of tasks, and `budget.Limits` the workers.
"""
