"""Committing: turn a staged transaction into a durable version of the log.

- `loop`: put the next version if it is absent, or rebase and try again; a writer that keeps losing gets its turn
- `version_put`: put one version, and settle a put without an answer
- `content`: what a commit says: its actions, from what is staged and the state that the commit follows, the ids of new
  rows, and the commitInfo
- `burial`: the tombstones that a commit leaves of keys and rows that are deleted
- `race`: what the conflict policy and the rebase decide about the winners, and the reads for that
- `conflict_ledger`: where it is recorded what a lost race cost
- `result`: `Committed` and `Superseded`
- `discard`: delete files that no commit names
"""
