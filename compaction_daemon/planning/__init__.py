"""Planning: from a CompactionRequest to a Plan. Reads the log only, and is deterministic: no clock, no randomness.

- `planner`: the request, and the plan that it gets on one version.
- `candidates`: the live files to decide on, and the decisions (PackedFiles).
- `minor`, `major`: how each level packs the candidates of one partition.
- `plan`: the result, as values that can be kept as JSON.
"""
