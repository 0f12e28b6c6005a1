"""Work on Spark's executors: writing files, and row changes on tables beyond one machine."""
