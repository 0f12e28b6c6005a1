"""`tidelog set-properties`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidelog.cli import parameters
from tidelog.cli.reports import print_commit
from tidelog.cli.spinner import Progress
from tidelog.log.errors import ConfigurationError


def set_properties_command(
    path: parameters.TablePath,
    properties: Annotated[
        list[str] | None, typer.Argument(metavar="K=V", help="The properties to set, such as delta.appendOnly=true.")
    ] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="K", help="Remove this property. Repeatable.")] = None,
    allow_protocol_upgrade: Annotated[
        bool,
        typer.Option(
            "--allow-protocol-upgrade",
            help="Allow properties that need a newer protocol; older readers or writers then refuse the table.",
        ),
    ] = False,
    storage_option: parameters.StorageOptions = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Set or remove table properties.

    `tidelog describe` prints the properties that are set.

    Example:
      tidelog set-properties /data/events delta.enableExpiredLogCleanup=true tidelog.targetFileSize="64 MiB"
      tidelog set-properties /data/events --unset tidelog.minorSpan
    """
    changes: dict[str, str | None] = {**parameters.parse_properties(properties)}
    for key in unset or ():
        if key in changes:
            raise ConfigurationError(f"the table property {key!r} is both set and unset", advice="leave one out")
        changes[key] = None
    if not changes:
        raise ConfigurationError("there is no property to set", advice="give K=V, or --unset K")
    allowed: dict[str, Any] = {"allow_protocol_upgrade": True} if allow_protocol_upgrade else {}
    with Progress(f"setting properties of {path}"):
        table = parameters.open_table(path, storage_option)
        before = table.version
        committed = table.set_properties(changes, **allowed)
    changed = committed.version > before
    print_commit(table.path, committed, f"changed {', '.join(changes)}", changed=changed, as_json=as_json)
