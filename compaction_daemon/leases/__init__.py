"""Leases: one daemon per table, through numbered files `_tidelog/leases/<shard>/%020d.json`, and a fence in the log.

A daemon takes the lease before it works on a table, keeps it by signs of life, and releases it when the table is quiet.
The newest file says who has it. Each owner begins a new epoch, and each sign of life is a further file of that epoch.

A lease saves work: two daemons do not rewrite the same files. What keeps a table right is the fence, the `txn` action
`tidelog.daemon/<shard>` with the epoch as its version. Every commit of a daemon carries it, and is refused once the log
has a higher one. So these hold, whatever pauses, dies or loses its connection:

- The epochs in the log never go down.
- Who takes over from an owner that did not release first commits the new epoch. From then on the old owner commits
  nothing, even if it wakes up before its successor has compacted anything.
- No clocks of different hosts are compared. An owner measures its time to live by its own clock, from before its last
  sign of life was written. Another daemon measures it by its own clock too, from when it first saw that sign of life.
- After a clean release no such commit is needed. The owner stops before it writes the release, so nothing follows it,
  even if that write is held up and appears much later. At most a commit that was already sent, and whose answer was
  lost, can still appear. It is a commit like any other then: the next owner's are rebased over it, or it is too late.

A damaged record stops nobody for long: after the time to live another daemon takes the lease over, with an epoch above
all that the record can have had. What was found stays in the commit that begins the epoch.

A daemon that waits can ask for the lease, by `keeps`: it writes the owner's record once more, with a request. The owner
sees it as `request` after its next sign of life, and may release the lease.

Take the lease when there is work, look at `fence` as late as possible, and pass it to every commit:

    owner = new_owner(system)               # once for each daemon
    found = seen.pop(table.path, None)      # what the last `take` returned
    if not isinstance(found, Lease):
        found = Lease.take(table, owner=owner, ttl_s=config.lease_ttl_s, seen=found)
    seen[table.path] = found
    if isinstance(found, Held):
        return found.free_in_s              # do not come back sooner
    found.keep_alive()                      # a thread renews it until `release`; calls after the first do nothing
    try:
        compact_with(table, request, Conduct(fence=found.fence))
    except LeaseLostError:
        del seen[table.path]                # drop this step; the next one takes the lease again
    ...
    found.release()                         # once the table has been quiet for a while, and at SIGTERM

A long step calls `require_held()` between its groups, and stops once the lease is lost. Without `keep_alive` (one
thread, or a simulation) call `renew_if_due()` often. `heartbeat_commit` moves the `complete_until` of a quiet table on.

- `lease_record`: what is stored, and where
- `lease`: take, keep and release a lease, with the thread that keeps it
- `lease_status`: who has the lease of a table, for people
"""

from tidelog.compaction_daemon.leases.lease import Held, Lease, heartbeat_commit, new_owner
from tidelog.compaction_daemon.leases.lease_record import SHARDS
from tidelog.compaction_daemon.leases.lease_status import LeaseStatus, lease_of

__all__ = ["SHARDS", "Held", "Lease", "LeaseStatus", "heartbeat_commit", "lease_of", "new_owner"]
