"""What an operator sees: reports of tables, the page, its HTTP server, and metrics.

What the log of one table says:

- `table_report`: the report, as one bounded value; and a brief, for a list of many tables
- `version_walk`: the part of it that is a walk over the newest commits

What a daemon knows (`compaction_daemon.process.daemon_status`):

- `live_status`: its status as JSON, with lags and conflicts of its tables, and whether it is healthy
- `metrics`: all of that for Prometheus

Both nest the values of the log and of the daemon, and are shown by the page, whose files are in the folder `page/`:

- `safe_json`: such values as JSON in which nothing can harm who looks at it
- `page`: these files, and the page as one file with a report in it
- `server`: the page, the values and the metrics over HTTP; it keeps reports for several readers
"""
