"""Used by several demos: their folder, command and data, Spark, and child processes that never outlive the demo."""
