"""Committing: turn a staged transaction into a durable version of the log."""
