"""Planning: from one pass over the data to chunks, block pairs, sizes, refusals and a report.

`plan.make_plan(tables, goal, have, shuffle)` plans every join.  `tables.Tables` is what is known of one table
or two: how they can be cut into chunks, a sample of their pairs, and what that tells of all pairs.
`goal.Goal` is what tasks are to find out.  Joins of another kind, such as those of sets, or of new rows with
old ones, bring a class of `Tables` with its own `chunkings` and `estimate`, and chunks that answer as
`chunking.base.JoinChunks` says; they need no planner of their own.
"""
