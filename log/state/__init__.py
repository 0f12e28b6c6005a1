"""From the log's files to the state of the table at a version.

A `Segment` names the files that make up a version; `Head` is what a commit needs to know of the table (protocol,
metadata, stream progress, totals), `FileState` the live files as Arrow columns. Folding is pure; loading is not.
"""
