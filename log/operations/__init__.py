"""What each statement stages: the files to add, the rows to delete and the metadata to change, before the commit.

Table and schema:

- `create_table`: version 0 of a new table
- `convert`: version 0 of a table that is made of a folder of parquet files
- `drop_table`: end a table and delete its files
- `add_columns`: new columns at the end of the schema
- `mapped_columns`: columns that get another name, or go; `replace_columns`: other columns
- `alter_table`: comments, places, types and defaults of columns, and constraints
- `mapped_columns`: columns that get another name, or go
- `replace_columns`: other columns for a table that loses all its rows
- `schema_evolution`: the columns and struct fields that data has and the table lacks
- `set_properties`: set and remove table properties, with the protocol features that they need

Rows:

- `delete_update`: DELETE and UPDATE by a predicate; find the rows, and delete them by deletion vector or by
  rewriting files
- `upsert`: replace or delete rows by key
- `upsert_order`: which rows of an upsert are older than what the table has
- `merge`: change rows by key, by rules or only some of their columns; `merge_rules`: what a rule is
- `overwrite`: OVERWRITE and TRUNCATE of the whole table or of partitions
- `restore`: bring back an earlier version

The key index:

- `tend_index`: cover files, merge runs, delete those that nobody needs

Shared parts:

- `staged_parts`: stage an operation in parts, over some of the files each
"""
