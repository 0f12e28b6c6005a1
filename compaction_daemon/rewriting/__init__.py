"""Rewriting: from a PlannedGroup to a MoveGroup, compared with what was read from the files as they were written.

- `rewrite`: the live rows of a group into new files, verified
- `inputs`: the live rows of a group's files, read ahead
- `in_order`: rows in the order of the inputs
- `clustering`: rows in another order, with the row map that lists old and new row addresses
- `orders`: by columns, or along a Hilbert curve
- `hilbert`: the place of points on a Hilbert curve
- `ranks`: the values of a column as small numbers of which each has as many rows
- `sorting`: sort more rows than fit into the memory
- `outputs`: rows to files, row group by row group
- `layouts`: how files are encoded, so that an output does not outgrow its inputs
- `growth`: how large the outputs may be
- `sequences`: the digest of rows in order, column by column
- `numbers`: numbers of many rows, in little memory
- `digests`: the digest of rows that change their places, row by row
- `verification`: the comparison of the written files with what was read
- `written_statistics`: the comparison of their statistics with their values
- `refusals`: the record of a rewrite that was refused
"""
