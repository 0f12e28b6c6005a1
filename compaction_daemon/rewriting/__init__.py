"""Rewriting: from a PlannedGroup to a MoveGroup, verified against the files that were read.

- `rewrite`: the live rows of a group into new files, in order, and the check that no row was lost or added.
- `layouts`: how files are encoded, so that an output does not outgrow its inputs.
- `clustering`: the rows of a group in sorted order, with the row map that lists old and new row addresses.
"""
