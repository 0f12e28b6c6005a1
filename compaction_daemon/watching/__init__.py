"""Watching many tables: when each is looked at, and what is known about it.

- `schedule`: when a table is due: soon while it changes, less and less often while it is quiet or fails.
- `watched_table`: one table of a daemon: its handle, which comes and goes with the table, and its status.
- `looks`: looks at many tables in parallel; one that takes long holds back no other.
- `watched_tables`: all of them, those that were named and those that searches find.
"""
