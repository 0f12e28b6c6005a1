"""Pruning: find the files and partitions that a predicate can match, using only the log.

- `file_pruning`: the files that may hold a matching row, by partition values and statistics. Never drops a file that
  holds one.
- `file_outcomes`: whether a row of a file can make a predicate true or false.
- `file_facts`: the partition values, bounds and null counts that answer that.
- `monotone`: the expressions that have bounds because they grow with a column.
- `partition_scope`: a scope, which is a set of whole partitions, from a predicate, and the files in it.
"""
