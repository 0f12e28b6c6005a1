"""The command `tidelog`.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 conflict, 4 nothing to do. `app` is the program, `output` how values are
written; a module of commands adds its own to `app` when it is imported here.
"""

from tidelog.compaction_daemon.cli import (  # noqa: F401 - they add their commands to `app`
    conflicts,
    doctor,
    look,
    maintain,
    planning,
)
from tidelog.compaction_daemon.cli.app import (
    CONFLICT,
    DONE,
    FAILED,
    NOTHING_TO_DO,
    WRONG_USE,
    app,
    exit_code,
    main,
)

__all__ = ["CONFLICT", "DONE", "FAILED", "NOTHING_TO_DO", "WRONG_USE", "app", "exit_code", "main"]
