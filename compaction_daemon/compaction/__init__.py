"""A compaction, from its plan to its report.

- `history_reader`: the recent commits of a table, which a plan needs
- `plans`: plans of a table, for users
- `compaction`: one compaction: plan, rewrite, verify, commit
- `executors`: who rewrites the groups of a plan
- `applying`: rewrites the groups of a plan, and commits them from time to time
- `rewritten`: what a commit of rewritten groups records
- `compaction_report`: what one compaction did
- `purge`: from when on nothing holds the rows that were deleted
"""
