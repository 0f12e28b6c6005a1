"""Clean-up: delete the files of the log and of the table that no retained version needs."""
