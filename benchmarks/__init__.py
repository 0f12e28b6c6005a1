"""Benchmarks against deltalake and delta-spark, run with `make bench-log` and similar; see docs/benchmarks.md."""
