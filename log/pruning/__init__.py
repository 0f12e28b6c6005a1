"""Pruning: which files and partitions a predicate can match, judged by the log alone."""
