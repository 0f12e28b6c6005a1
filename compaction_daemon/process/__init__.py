"""The process that keeps many tables compact.

- `daemon`: the loop: which tables are due, a step for each, and what the daemon knows about them
- `watched_tables`: the tables of a daemon, those that were named and those that searches find
- `watched_table`: one of them: its handle, which comes and goes with the table, and its status
- `schedule`: when a table is due: soon while it changes, less and less often while it is quiet or fails
- `looks`: looks at many tables in parallel; one that takes long holds back no other
- `table_step`: one step for one table
- `step_report`: what a step did
- `daemon_status`: what a daemon knows about its tables, as values
- `kept_leases`: the leases that a daemon keeps from one step to the next
- `budget`: what a daemon may use: bytes in an hour, and a share of the cores
"""
