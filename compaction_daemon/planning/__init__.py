"""Planning a compaction: which files are rewritten, and why the others are not."""
