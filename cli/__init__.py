"""The command `tidelog`.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 conflict, 4 nothing to do. `app` is the program, `output` how values are
written. A module of commands adds them to `app` when it is imported.
"""

from tidelog.cli import conflicts, doctor, look, maintain, planning
from tidelog.cli.app import CONFLICT, DONE, FAILED, NOTHING_TO_DO, WRONG_USE, app, exit_code, main

COMMANDS = (conflicts, doctor, look, maintain, planning)

__all__ = ["COMMANDS", "CONFLICT", "DONE", "FAILED", "NOTHING_TO_DO", "WRONG_USE", "app", "exit_code", "main"]
