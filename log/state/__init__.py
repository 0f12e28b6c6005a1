"""The state of the table at a version, built from the files of the log.

Folding commits into a state is pure; loading them is not.

- `segment`: find the checkpoint and commits that make up a version
- `commits`: read single commits
- `commit_times`: the commit times of a table, with or without in-commit timestamps
- `time_anchors`: commits whose file times a checkpoint contains, for `commit_times`
- `recent_commits`: the commits that a refresh has just read, for the next reader of the history
- `versions`: find a version by time, and the oldest commit that still exists
- `table_identity`: whether the table at a path is still the one that was opened
- `head`: `Head`, the state without the file list: protocol, metadata, transaction ids, totals
- `files`: `FileState`, the live files and tombstones as Arrow columns
- `file_order`: keep live files in commit order
- `path_hashes`: hashes of file paths, to find repeated paths fast
- `file_values`: decode partition values and statistics of many files on demand
- `loader`: load a version as a `LogState`, and advance it by new commits
- `checkpoint_reader`: read checkpoints of every kind
- `checkpoint_parquet`: read columns of a checkpoint's parquet file, in pieces
- `checkpoint_writer`: write classic checkpoints
- `checkpointing`: `Table.checkpoint`: check the state, drop expired tombstones, write
- `checksum`: read and write version checksums (`.crc`)
"""
