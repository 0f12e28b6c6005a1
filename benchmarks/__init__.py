"""Speed, side by side with deltalake and delta-spark: `make bench-log` and its like; see docs/benchmarks.md."""
