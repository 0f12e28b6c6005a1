"""Rewriting files: the rows of a group into new files, checked against what was read."""
