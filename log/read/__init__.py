"""Reading a table: snapshots, scans, the timeline of its versions, and the changes between two of them."""
