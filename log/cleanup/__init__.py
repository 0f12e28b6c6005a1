"""Clean-up: which files of the log and of the table no retained version needs."""
