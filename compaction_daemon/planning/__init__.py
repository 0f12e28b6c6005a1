"""Planning: from a CompactionRequest to a Plan. Reads the log only, and is deterministic: no clock, no randomness.

- `request`: what to compact, how, and within which budget
- `compaction_planner`: the way from the request to the plan, with the reason for every file and partition
- `candidates`: the live files as columns: small ones, dead rows, partitions
- `decisions`: how each level packs the candidates of one partition, whether they are rewritten, and what that gains
- `planned_groups`: the best decisions as groups, up to the budget, and what each will cost
- `history`: what recent commits tell: who writes where and how often, predictions and outcomes
- `failed_groups`: the groups whose rewrite failed, and when they are tried again
- `plan`: the result, as values that can be kept as JSON
- `checking`: whether a plan still fits the table
"""
