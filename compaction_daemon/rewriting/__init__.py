"""Rewriting: from a PlannedGroup to a MoveGroup, compared with what was read from the files as they were written.

- `rewrite`: the live rows of a group into new files, in order or clustered, verified
- `inputs`: the live rows of a group's files, read ahead, and their positions
- `clustered_rows`: rows sorted, more than fit into the memory, with the row map that lists old and new row addresses
- `orders`: by columns, or along a Hilbert curve through their ranks
- `hilbert`: the place of points on a Hilbert curve
- `outputs`: rows to files, row group by row group, encoded so that they do not outgrow the inputs
- `digests`: the digest of rows in order, column by column, and of rows that change their places, row by row
- `verification`: the comparison of the written files with what was read, and of their statistics with their values
- `refused_rewrites`: the record of a rewrite that was refused
"""
