"""Clean-up: delete the files of the log and of the table that no retained version needs.

- `expire`: old commits, checkpoints and checksums
- `vacuum`: data files, deletion vectors, change files and row maps, in batches next to writers
- `unneeded`: which of them no version needs, by listing or from the log alone
- `horizon`: the commit with which vacuum announces what it may delete
- `retention`: the rules, as pure functions
- `cut_off`: the version at a cut-off
- `references`: the files that a log names
- `current_state`: the state that a clean-up is based on
- `pieces`: work that is carried out a bounded piece at a time
"""
