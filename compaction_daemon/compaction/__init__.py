"""A compaction, from its plan to its report.

- `by_hand`: what users call for one table: plan, stage, compact, expire and vacuum
- `compaction`: a plan, with what recent commits tell; and one compaction: plan, rewrite, verify, commit
- `executors`: who rewrites the groups of a plan
- `applying`: rewrites the groups of a plan, and commits them from time to time
- `compaction_report`: what one compaction did
- `purge`: from when on nothing holds the rows that were deleted
"""
