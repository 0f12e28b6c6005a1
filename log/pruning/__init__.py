"""Pruning: find the files and partitions that a predicate can match, using only the log.

- `file_pruning`: the files that may hold a matching row, by partition values and statistics. Never drops a file that
  holds one.
- `partition_scope`: a scope, which is a set of whole partitions, from a predicate, and the files in it.
"""
