"""Planning: from a CompactionRequest to a Plan. Reads the log only, and is deterministic: no clock, no randomness.

- `request`: what to compact, how, and within which budget
- `planner`: the way from the request to the plan, and `next_plan`, what a daemon does next
- `candidates`: the live files as columns: small ones, dead rows, partitions
- `decisions`: which candidates belong together, whether they are rewritten, and what that gains
- `minor`, `major`: how each level packs the candidates of one partition
- `groups`: the best decisions as groups, up to the budget
- `history`: what recent commits tell: who writes where and how often, predictions and outcomes
- `costs`: how long a rewrite takes and how much it writes, learned from the history
- `failed_groups`: the groups whose rewrite failed, and when they are tried again
- `explanations`: the reason for every file and partition
- `plan`: the result, as values that can be kept as JSON
- `checking`: whether a plan still fits the table
"""
