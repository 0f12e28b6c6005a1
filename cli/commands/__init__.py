"""One module per command, named as the command.

The module `set_properties` defines the function `set_properties_command`, which is `tidelog set-properties`. Its
docstring is the command's help: the first line is also in the list of commands (`tidelog.cli.app.COMMANDS`), and what
follows `Example:` is printed at the end of the help. A module is imported only when its command runs.
"""
