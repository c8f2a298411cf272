"""Planning: from one pass over the data to chunks, block pairs, sizes, refusals and a report.

`plan.make_plan(statistics, output, resources, shuffle)` plans every join.  `tables.JoinStatistics` has the
statistics of one table or two: ways to cut them into chunks, a sample of their pairs, and estimates of all
pairs.  `outputs.OutputSpec` says what tasks find out, and `budget.Resources` what runs them.
"""
