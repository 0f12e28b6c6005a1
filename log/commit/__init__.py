"""Committing: from a staged transaction to a durable version of the log."""
