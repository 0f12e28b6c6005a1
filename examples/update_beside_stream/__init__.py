"""UPDATE and DELETE beside a stream and a compaction: `make demo-update`. Start at demo.py."""
