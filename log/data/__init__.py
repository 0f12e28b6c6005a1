"""Data files: reading and writing their rows in the table's types."""
