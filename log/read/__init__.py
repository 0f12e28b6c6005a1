"""Read a table: its state at a version, its rows, its history, and the changes between two versions.

- `table_reader`: `TableReader`, what a table does without writing
- `absent_table`: what is at a path without a table
- `snapshot`: `Snapshot`, the table at one version
- `read_ahead`: read several files at the same time, and give their rows in order
- `scan`: `Scan`, the rows of a snapshot, filtered and projected
- `keyed_rows`: the rows of a snapshot that have one of some keys
- `key_index`: which rows have one of some keys, without opening a data file
- `debt`: `Debt`, what compaction and a checkpoint would save
- `timeline`: the retained commits, by ID version and by time
- `commit_changes`: the changes of one commit, as units that can be read independently
- `change_files`: a unit that is one file
- `inserted_files`: the units of commits that only inserted rows, as Arrow columns
- `mixed_commits`: a unit that took rows away and added rows, of which some may be the same, and its rows that changed
- `changes`: `Changes`, the rows changed between two points in the history
- `keys`: rows identified by key columns
- `net_changes`: the net effect of a run of changes of any size, one row per key
"""
