"""The state of the table at a version, built from the files of the log.

Folding commits into a state is pure; loading them is not.

- `segment`: find the checkpoint and commits that make up a version
- `commits`: read single commits, and keep those that were just read
- `commit_times`: the commit times of a table, with or without in-commit timestamps; anchors of them in checkpoints
- `versions`: find a version by time, and the oldest commit that still exists
- `table_identity`: whether the table at a path is still the one that was opened
- `head`: `Head`, the state without the file list: protocol, metadata, transaction ids, totals
- `version_checksum`: a version's `Head` in one small file (`.crc`)
- `files`: `FileState`, the live files and tombstones as Arrow columns: their order, partition values and statistics
- `loader`: load a version as a `LogState`, and advance it by new commits
- `tombstones`: which files have the tombstones of a version
- `checkpoint_reader`: read checkpoints of every kind, or a part of one
- `checkpoint_writer`: write checkpoints in one file; the files of large tables are grouped by partition
- `checkpoint_sidecars`: write checkpoints with sidecars (V2), and use those again that have not changed
- `checkpointing`: `Table.checkpoint`: check the state, drop expired tombstones, write
- `background_checkpoint`: the checkpoints that writers leave without waiting for them
"""
