"""Read a table: its state at a version, its rows, its history, and the changes between two versions.

- `snapshot`: `Snapshot`, the table at one version
- `read_ahead`: read several files at the same time, and give their rows in order
- `scan`: `Scan`, the rows of a snapshot, filtered and projected
- `debt`: `Debt`, what compaction and a checkpoint would save
- `timeline`: the retained commits, by ID version and by time
- `change_files`: which files hold the changes of a commit, and their rows
- `changes`: `Changes`, the rows changed between two points in the history
- `net_changes`: the net effect of a run of changes, one row per key
- `large_net_changes`: the same for an interval of any size, in bounded memory
"""
