"""Committing: turn a staged transaction into a durable version of the log.

- `loop`: put the next version if it is absent, or rebase and try again
- `version_put`: put one version, and settle a put without an answer
- `turns`: how a writer that keeps losing gets its turn
- `actions`: the actions of a commit, from what is staged and the state that the commit follows
- `row_ids`: row ids and commit versions for added files, in tables with row tracking
- `info`: the commitInfo before the actions
- `race`: what the conflict policy and the rebase decide about the winners
- `rebase_reads`: what a rebase may read: deletion vectors, row maps, and rows that may match a predicate
- `result`: `Committed` and `Superseded`
- `discard`: delete files that no commit names
- `lost_work` and `conflict_ledger`: what a lost race cost, and where it is recorded
- `restored_files`: the files that a RESTORE brings back
"""
