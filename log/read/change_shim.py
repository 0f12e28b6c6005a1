"""temporary"""

from __future__ import annotations

from typing import TypeAlias

from tidelog.log.read.change_files import ChangeFile, appended_files, changed_files

Change: TypeAlias = ChangeFile


def commit_changes(commit, stamp, mode, path, values_of):  # type: ignore
    found = appended_files(commit, stamp, path) if mode == "append" else list(changed_files(commit, stamp, values_of))
    return [f for f in found if f.rows != 0]
