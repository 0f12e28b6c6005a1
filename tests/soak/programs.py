"""The programs of the soak as processes."""

from __future__ import annotations

import sys

from examples.shared.child_process import ChildProcess
from tests.soak.folder import Folder
from tests.soak.settings import DAEMONS, STREAMS

FAST, SLOW, UPDATER = "fast", "slow", "updater"
WITH_SPARK = frozenset({*STREAMS, FAST})
NAMES = (*STREAMS, UPDATER, *DAEMONS, FAST, SLOW)

_TIDELOG = "from tidelog import cli; cli.main()"


def programs(folder: Folder) -> dict[str, ChildProcess]:
    """All programs by name, not started yet."""
    root = str(folder.root)
    commands = {
        **{name: ("tests.soak.stream", root, name) for name in STREAMS},
        UPDATER: ("tests.soak.updater", root),
        FAST: ("tests.soak.fast_consumer", root),
        SLOW: ("tests.soak.slow_consumer", root),
    }
    found = {
        name: ChildProcess(name, [sys.executable, "-m", *command], folder.logs) for name, command in commands.items()
    }
    for name in DAEMONS:
        # As an operator runs it. It compacts, writes checkpoints and cleans up.
        command = [sys.executable, "-c", _TIDELOG, "daemon", str(folder.table), "--json"]
        found[name] = ChildProcess(name, command, folder.logs)
    return {name: found[name] for name in NAMES}
