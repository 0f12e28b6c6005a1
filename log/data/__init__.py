"""Data files: conform rows to a table's schema, write them, and read them back.

From rows to a file:

- `conform`: Arrow tables and frames as an Arrow table with exactly the table's schema
- `nested`: lists, maps and structs of Arrow, converted element by element
- `python_rows`: lists of dicts as such a table; `python_values`: which values fit a column
- `inferred_columns`: columns of Python values in the type that Arrow infers
- `variants`: shredded variants as whole ones
- `type_names`: Arrow types under their SQL names
- `blocks`: rows in blocks that a single Arrow array can hold
- `grouping`: number rows by the values of some columns
- `row_values`: compare and show rows, also with dates that Python lacks
- `ordering`: which rows of a key are the newest
- `row_hashes`: a number for each row, to find equal rows among many
- `layout`: how the columns of a file are encoded and compressed, decided from a sample
- `writer`: write data files and change files, one partition each, row group by row group, with statistics
- `packed_order`: the columns of an order as bytes, for the runs of the key index
- `indexed_key`, `run_entries`, `run_head`, `block_filter`: codes of keys, and the parts of a run of the key index
- `key_runs`: where the rows with a key are: the runs of the key index
- `external_files`: the `add` actions of files that another program wrote, such as Spark's JVM
- `plain_files`: parquet files that no table has written, described by their footers
- `file_sink_log`: which files of a folder Spark's streaming file sink has committed

From a file to rows:

- `reader`: the live rows of a data file, in the table's schema, whatever names, ids and types the file has
- `variants`: shredded variants as whole ones
- `deletion_vectors`: the positions of a file's dead rows
- `spill`: temporary files, for rows that do not fit into the memory and for copies of distant files
- `row_maps`: where a compaction moved each row
- `tombstones`: the keys that were deleted, with the order of each; `tombstone_cache`: those that stay in memory
- `room`: how much memory a process has for what it keeps of files
- `staged_keys`: the keys of an UPSERT that has too many for one process
"""
