"""The command `tidelog`.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 conflict, 4 nothing to do.

`commands/` has one module per command, named as the command (`tidelog set-properties` is in `set_properties.py`). `app`
is the program that finds and runs them, `parameters` holds the options that several commands share, `schema_text`
parses columns written as SQL, `wrong_use` words errors for the command line, `follow` prints commits as they come until
it is stopped, `daemon_process` runs a daemon, and `output`, `row_formats`, `reports`, `plans` and `spinner` are what
the commands print.
"""

from tidelog.cli.app import COMMANDS, CONFLICT, DONE, FAILED, NOTHING_TO_DO, WRONG_USE, app, exit_code, main

__all__ = ["COMMANDS", "CONFLICT", "DONE", "FAILED", "NOTHING_TO_DO", "WRONG_USE", "app", "exit_code", "main"]
