"""What an operator sees: reports of tables, the page, its HTTP server, and metrics.

A report says what the log of one table says:

- `table_report`: the report, as one bounded value
- `versions`: the part of it that is a walk over the newest commits
- `brief`: less of it, for a list of many tables
- `plans`: the part of it that says what a daemon would do
- `refused`: the part of it that says which rewrites were refused
- `clean_ups`: the part of it that says when the table was cleaned up
- `parts`: the parts of a report or a brief, of which each can fail
- `safe_json`: such values as JSON in which nothing can harm who looks at it

A daemon's status comes from the daemon (`compaction_daemon.process.daemon_status`):

- `live`: the status as JSON
- `facts`: what is known of its tables beyond that: lags and conflicts
- `health`: whether the daemon works
- `metrics`: all of that for Prometheus

Both are shown by the page, whose files are in the folder `page/`:

- `page`: these files, and the page as one file with a report in it
- `report_cache`: reports for several readers at once
- `server`: the page, the values and the metrics over HTTP
"""
