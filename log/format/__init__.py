"""The table's on-disk format as plain values. It follows the open Delta Lake protocol.

This package is pure: it opens no file, reads no clock and knows nothing about Spark.

- `actions`: the actions of a commit as typed values, and their JSON lines
- `commit_info`: typed access to the known keys of `commitInfo`
- `filenames`: names of the files in `_delta_log/`: build them, parse them
- `paths`: convert between the URIs in actions and storage paths
- `protocol`: protocol versions and table features: what a table requires, what tidelog supports, and refuses for good
- `properties`: table properties: validate, parse, defaults
- `refused_properties`: Delta's properties that tidelog cannot honour
- `clustering`: which columns rows can be clustered by
- `row_tracking`: ids and commit versions of rows, in tables of engines that keep them
- `schema`: convert between Spark's schema JSON and Arrow schemas
- `column_mapping`: assign column ids and physical names
- `identity`: the high-water marks of identity columns
- `schema_union`: the columns of a table that is made of files with different columns
- `type_widening`: when a column may get a wider type, and how a schema records it
- `partition_values`: convert partition values to and from text
- `hive_paths`: the partition folders of Hive and Spark
- `statistics`: write a data file's statistics from its rows
- `footer_statistics`: write a data file's statistics from its parquet footer
- `statistics_reader`: read the statistics of many files as Arrow columns
- `deletion_vector`: encode, decode and locate deletion vectors
- `lineage`: the record of where a compaction moved each row
- `tombstone_list`: the record of which files have tombstones
- `text`: which text the log can hold
- `seal`: a checksum inside checkpoint and `.crc` files
"""
