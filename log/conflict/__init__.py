"""Conflicts: what happens to a staged transaction if other commits, its winners, land first.

The model. A row has an address: a data file and a position in it. A transaction is staged on a base version as three
sets: rows that it deletes, rows that it moves (compaction) and rows that it adds, along with what it read. If winners
landed, the rebase adjusts these sets to them, using metadata only: it translates addresses through the winners' moves
(rules 1 and 3), drops rows that winners deleted (rules 2 and 4), checks rows that winners added against what the
transaction read (rule 5), and refuses incompatible metadata (rule 6), a second copy of the same stream (rule 7),
or a transaction whose files a vacuum may have deleted (rule 8).
A rebase is allowed only if running the operation again on the newest version would leave the same rows and a true
change feed. Otherwise the transaction ends in a conflict. If a table turns the metadata retry off, its conflict policy
decides before the rebase: a published matrix of operation classes, for transactions whose scopes overlap.

Nothing here does I/O, except that a rebase reads deletion vectors and row maps through `moves.Blobs`.

The values:

- `staged`: a staged transaction, with its deletes, moves, adds, reads and metadata.
- `effects`: what a commit did to rows, from its actions; the live files that the transaction and its winners name.
- `outcome`: what a rebase ends with: a rebased transaction, nothing left, a conflict, or a question to the caller.

The rebase, with the rules in full in `rebase`:

- `rebase`: fold the winners in, then judge the transaction (rules 1, 4 and 5).
- `groups`: one compaction group, followed through winners (rules 2 and 3).
- `moves`: old addresses to new ones, through lineage or a row map.
- `metadata_conflicts`: rules 6 and 7.
- `fences`: rule 7 for daemons and clean-ups, which carry an epoch, and rule 8, the horizon of clean-up.

The policies:

- `policies`: the four matrices as data.
- `policy_check`: one winner against a matrix, if the two overlap in scope.
- `operation_class`: the class of a commit, of any engine.
- `partitions`: partition values as typed values; the files of each partition, to classify commits.
"""
