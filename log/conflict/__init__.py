"""What happens when others committed first: operation classes and the rebase of a staged transaction. Pure."""
