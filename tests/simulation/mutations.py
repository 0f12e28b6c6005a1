"""Mutation tests of the simulation: break the code on purpose, one rule at a time, and some seed must object.

    python -m tests.simulation.mutations [PART OF A NAME]

Each mutation patches a function by its name, as those of the oracle do.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import Any
from unittest import mock

from tests.patching import Function, gives, patched
from tests.simulation.named_seeds import NAMED
from tests.simulation.run import run
from tests.simulation.scenario import drawn
from tidelog.compaction_daemon.leases.lease_record import latest_lease, row_of
from tidelog.log.consumers import bounds
from tidelog.log.consumers.hold import Hold
from tidelog.log.errors import StoreUnavailableError
from tidelog.log.storage import Store

MAX_SEEDS = 300


@dataclass(frozen=True)
class Mutation:
    """`replaced` takes the function or method at `target` (module:name) and returns a wrong one.

    `others` are further targets, for a rule that several places keep: each alone would be enough.
    """

    name: str
    target: str
    replaced: Callable[[Function], Function]
    others: tuple[str, ...] = ()


def ties_go_to_the_record(original: Function) -> Function:
    """A tombstone of a row that a DELETE removed is like that of a record."""
    return lambda rows: 0 * original(rows)


def of_any_type(original: Function) -> Function:
    """What a run says of its key leaves the types of the columns out."""

    def of(metadata: Any, schema: Any) -> Any:
        key = original(metadata, schema)
        return key and replace(key, columns=re.sub(r"decimal128\([0-9, ]+\)", "decimal", key.columns))

    return of


def stays_as_it_is(original: Function) -> Function:
    """A transaction is the same after a rebase."""
    del original
    return lambda staged: staged


def rename_over(original: Function) -> Function:
    """A put on a disk replaces the file that is there."""
    del original

    def link(self: Any, temporary: Path, target: Path) -> None:
        self._disk.rename(temporary, target)

    return link


def put_without_condition(original: Function) -> Function:
    """A put in a cloud replaces the object that is there."""
    return lambda self, bucket, key, content, **_create: original(self, bucket, key, content, create=False)


def mine_whatever_is_there(original: Function) -> Function:
    """A version that exists after a lost answer counts as the own one."""
    del original
    return lambda *_args: True


def claims_nothing_was_committed(original: Function) -> Function:
    """An unknown state is reported as if nothing had been committed."""
    del original
    return lambda store, *_args: StoreUnavailableError("no answer", path=store.url)


def forgets_a_vector(original: Function) -> Function:
    """The rows that a vector holds count as live."""
    del original
    from pyroaring import BitMap64  # noqa: PLC0415

    return lambda *_args, **_kwargs: BitMap64()


def deletes_live_files(original: Function) -> Function:
    """Vacuum takes every old file for unneeded."""
    del original
    from tidelog.log.cleanup.references import References  # noqa: PLC0415

    def needed(*_args: Any) -> Generator[None, None, References]:
        yield
        return References()

    return needed


def takes_all_that_is_named(original: Function) -> Function:
    """A vacuum from the log takes the files that commits name, whether a version needs them or not."""
    from tidelog.log.cleanup.references import References  # noqa: PLC0415

    return lambda store, _needed, *more: original(store, References(), *more)


def by_age_zero(original: Function) -> Function:
    """Vacuum finds everything old enough."""
    return lambda older_than, now_ms, configuration: original(older_than, now_ms, configuration) + 40 * 3_600_000


def up_to_now(original: Function) -> Function:
    """An expire keeps nothing for readers of older versions."""
    return lambda older_than, now_ms, configuration: original(older_than, now_ms, configuration) and now_ms


def at_the_head(original: Function) -> Function:
    """A vacuum chooses the newest version as its horizon."""
    return lambda store, head, cutoff_ms: replace(original(store, head, cutoff_ms), wanted=head.version)


def syncs_the_log_only(original: Function) -> Function:
    """Files that were written unsynced stay so."""
    return lambda self, paths: original(self, [path for path in paths if path.startswith("_delta_log/")])


def creates_unsynced(original: Function) -> Function:
    """A file counts as durable once it is closed."""
    del original
    return lambda self, path: self.create_unsynced(path)


def deletes_the_log_too(original: Function) -> Function:
    """A drop leaves nothing, so that the version numbers of the next table start again."""

    def delete_files(store: Store, state: Any) -> int:
        found = original(store, state)
        for path, _ in list(store.walk("_delta_log")):
            store.delete(path)
        return int(found)

    return delete_files


def claims_it_was_created(original: Function) -> Function:
    """A create on a dropped path returns without a commit."""
    del original
    return lambda _store, _staged, dropped, _system: dropped


def syncs_no_root(original: Function) -> Function:
    """The names of new folders in the table's own folder stay unsynced."""
    return lambda self, folder: None if folder == self._root else original(self, folder)


def always_discards(original: Function) -> Function:
    """The files of a transaction are deleted although its commit names them."""
    return lambda store, staged, _commit=None: original(store, staged)


def newest_first(original: Function) -> Function:
    """The log is cleaned up from the newest commit to the oldest, and up to the head."""
    return lambda listing, _kept: original(listing, 2**62)


def from_the_newest(original: Function) -> Function:
    """The log is cleaned up from the newest commit to the oldest, so that one who dies leaves a gap."""
    return lambda listing, kept: original(listing, kept)[::-1]


def looks_first(original: Function) -> Function:
    """A consumer looks at the log before it writes its record, and not afterwards."""

    def try_once(self: Any) -> Any:
        bounds.look(self.store, self.head.metadata.id, self.position)
        with mock.patch("tidelog.log.consumers.claims.look_or_withdraw", return_value=None):
            return original(self)

    return try_once


def proves_itself(original: Function) -> Function:
    """A record that follows another one counts as if clean-ups had waited for that one all the time."""
    del original
    return lambda _store, latest, _ttl_ms: len(latest.own) > 1


def advances_first(original: Function) -> Function:
    """The position moves before what it stands for was processed."""

    def step(actor: Any, record: Any, table: Any, consumer: Any, known: Any, position: int, until: int) -> None:
        consumer.advance(until)
        original(actor, record, table, consumer, known, position, until)

    return step


def finds_nobody(original: Function) -> Function:
    """A clean-up does not look for consumers again."""
    del original
    return lambda *_args: Hold({}, {}, {})


def lives_for_a_day(original: Function) -> Function:
    """A clean-up waits for a day only, whatever signs of life there are."""
    del original
    return lambda _head: 86_400_000


def without_the_fence(original: Function) -> Function:
    """The commits of a daemon carry no epoch."""
    del original
    return lambda self, _fence: self


def by_the_clock_of_the_day(original: Function) -> Function:
    """A daemon compares the time in another one's record with its own clock."""

    def held(self: Any, *seen: Any) -> Any:
        record = latest_lease(self.table.store, row_of(self.table.id, self.shard)).record
        age_s = self.system.now_ms() / 1000 - record.time.timestamp() if record else 0
        return None if record and age_s >= record.ttl_ms / 1000 else original(self, *seen)

    return held


def fences_the_first_part(original: Function) -> Function:
    """Of a compaction that commits several times, the commits after the first one carry no epoch."""

    def commit_part(self: Any, part: Any, seconds: float) -> Any:
        if self._reports:
            self._conduct = replace(self._conduct, fence=None)
        return original(self, part, seconds)

    return commit_part


def planned_for_the_newest(original: Function) -> Function:
    """The groups of a commit count as planned for the newest version, whatever was committed since they were read."""

    def commit_part(self: Any, part: Any, seconds: float) -> Any:
        newest = self._table.refresh().at()
        renewed = [replace(each, work=replace(each.work, base=newest)) for each in part]
        self._finished = [each for each in self._finished if each not in part] + renewed
        return original(self, renewed, seconds)

    return commit_part


_DROP = "tidelog.log.operations.drop_table"
_APPLYING = "tidelog.compaction_daemon.compaction.applying:_Run"
_LOOP = "tidelog.log.commit.loop"
_CONSUMERS = "tidelog.log.consumers"


def covers_everything(original: Function) -> Function:
    """No live file is left to a scan."""

    def locate(*args: Any) -> Any:
        located, is_left = original(*args)
        return located, is_left & False

    return locate


def by_position_alone(original: Function) -> Function:
    """The first run counts as that of every file, whatever its paths are."""

    def coverage(self: Any, files: Any) -> Any:
        run_of, number_of, rows_of = original(self, files)
        if not self._runs:
            return run_of, number_of, rows_of
        return run_of * 0, number_of * 0, rows_of

    return coverage


def believes_every_run(original: Function) -> Function:
    """A lookup takes rows of all files that runs name, also of those that left the table or were never committed."""
    import msgspec  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    from tidelog.log.read.key_index import Located  # noqa: PLC0415
    from tidelog.log.state.files import to_adds  # noqa: PLC0415

    def index_of(*args: Any) -> Any:
        index = original(*args)
        if index is None:
            return None
        locate = index.locate

        def wrong(files: Any, keys: Any) -> Any:
            located, is_left = locate(files, keys)
            live, codes = files["path"].to_pylist(), index._key.codes(keys.select(index._key.names))
            for like, each in product(to_adds(files.slice(0, 1)), index._runs):
                hits = each.find(codes)
                for number in np.unique(hits.files).tolist():
                    path, own = each.paths[number].as_py(), hits.files == number
                    if path not in live:
                        add = msgspec.structs.replace(like, path=path, deletion_vector=None)
                        rows = int(each.rows[number])
                        located.append(Located(-1, add, hits.positions[own], hits.places[own], rows, None))
            return located, is_left

        index.locate = wrong
        return index

    return index_of


def only_where_the_index_says(original: Function) -> Function:
    """A scan by keys leaves out the files that no run covers."""

    def narrowed(*args: Any) -> Any:
        import pyarrow as pa  # noqa: PLC0415

        found = original(*args)
        if not found.positions:
            return found
        is_known = [path in found.positions for path in found.files["path"].to_pylist()]
        return found._replace(files=found.files.filter(pa.array(is_known)))

    return narrowed


def of_the_row_before(original: Function) -> Function:
    """A run has the order of the row before each row."""

    def packed(self: Any, rows: Any) -> Any:
        found = original(self, rows)
        return found and found.take([place - 1 for place in range(rows.num_rows)])

    return packed


_DISK = "tidelog.log.storage.local:LocalStore"
_LEASE = "tidelog.compaction_daemon.leases.lease"
_PUT = "tidelog.log.commit.version_put"
MUTATIONS = (
    Mutation("winners are not judged", "tidelog.log.conflict.rebase:Rebase.fold", gives(None)),
    Mutation("a put on a disk overwrites", f"{_DISK}._link", rename_over),
    Mutation("a put in a cloud overwrites", "tests.simulation.cloud:SimCloud.put", put_without_condition),
    Mutation("another's commit counts as mine", f"{_PUT}:VersionPut._is_ours", mine_whatever_is_there),
    Mutation("an unknown state counts as refused", f"{_PUT}:_unknown", claims_nothing_was_committed),
    Mutation("a commit that was found is not synced", f"{_PUT}:require_durable", gives(None)),
    Mutation("data files are not synced together", f"{_DISK}.sync", syncs_the_log_only),
    Mutation("a data file is not synced", f"{_DISK}.create", creates_unsynced),
    Mutation("a put into a hole counts", f"{_PUT}:VersionPut._require_predecessor", gives(None)),
    Mutation("the root is not synced", f"{_DISK}._fsync_folder", syncs_no_root),
    Mutation("a writer sleeps through a vacuum", "tidelog.log.conflict.rebase:horizon_conflict", gives(None)),
    Mutation("a RESTORE passes the horizon", "tidelog.log.commit.content:horizon_of", gives(0)),
    Mutation("vacuum does not look again", "tidelog.log.cleanup.vacuum:_Deletion._catch_up", gives(None)),
    Mutation("dead rows are read", "tidelog.log.data.reader:read_dead_rows", forgets_a_vector),
    Mutation("vacuum deletes live files", "tidelog.log.cleanup.vacuum:_needed", deletes_live_files),
    Mutation("vacuum takes what the log names", "tidelog.log.cleanup.vacuum:from_log", takes_all_that_is_named),
    Mutation("vacuum does not wait", "tidelog.log.cleanup.retention:data_cutoff_ms", by_age_zero),
    Mutation("own files are discarded after the commit", f"{_LOOP}:discard", always_discards),
    Mutation("expire deletes what is needed", "tidelog.log.cleanup.retention:expired_log_files", newest_first),
    Mutation("expire begins with the newest", "tidelog.log.cleanup.retention:expired_log_files", from_the_newest),
    Mutation("expire does not wait", "tidelog.log.cleanup.retention:log_cutoff_ms", up_to_now),
    Mutation("vacuum's horizon is too late", "tidelog.log.cleanup.vacuum:_Versions.of", at_the_head),
    Mutation("a drop does nothing", f"{_DROP}:drop", gives(None)),
    Mutation("a drop deletes files of any age", f"{_DROP}:written_ms", gives(2**62)),
    Mutation("version numbers start again", f"{_DROP}:_delete_files", deletes_the_log_too),
    Mutation("a new table keeps the old one's keys", "tidelog.log.state.head:_creates_again", gives(False)),
    Mutation(
        "a writer follows another table",
        f"{_LOOP}:require_current",
        gives(None),
        (
            f"{_LOOP}:foreign_table",
            "tidelog.log.read.table_reader:require_current",
            "tidelog.log.cleanup.current_state:require_current",
            "tidelog.log.state.checkpointing:require_current",
        ),
    ),
    Mutation(
        "a create after a drop does nothing", "tidelog.log.operations.create_table:_create_again", claims_it_was_created
    ),
    Mutation(
        "a second copy of a stream does not conflict", "tidelog.log.conflict.rebase:application_conflict", gives(None)
    ),
    Mutation("a consumer looks first", f"{_CONSUMERS}.claims:_Claimant.try_once", looks_first),
    Mutation("a consumer never looks", f"{_CONSUMERS}.claims:look_or_withdraw", gives(None)),
    Mutation("vacuum looks for consumers first", "tidelog.log.cleanup.vacuum:hold_of", finds_nobody),
    Mutation("expire looks for consumers first", "tidelog.log.cleanup.expire:hold_of", finds_nobody),
    Mutation("expire commits no floor", "tidelog.log.cleanup.expire:announce_floor", gives(None)),
    Mutation("a consumer gives no sign of life", f"{_CONSUMERS}.consumer:Consumer.heartbeat_if_due", gives(None)),
    Mutation("signs of life are ignored", f"{_CONSUMERS}.hold:time_to_live_ms", lives_for_a_day),
    Mutation(
        "who slept for too long goes on",
        f"{_CONSUMERS}.claims:is_proven",
        proves_itself,
        (f"{_CONSUMERS}.consumer:is_proven",),
    ),
    Mutation("a daemon's commit carries no epoch", "tidelog.log.transaction:Transaction.fenced", without_the_fence),
    Mutation("epochs of winners do not matter", "tidelog.log.conflict.metadata_conflicts:is_passed", gives(False)),
    Mutation("the epoch at the base does not matter", f"{_LOOP}:_Attempt.require_epoch", gives(None)),
    Mutation("a takeover begins without a commit", f"{_LEASE}:begin_epoch", gives(None)),
    Mutation("the file before is not looked at", "tidelog.log.numbered_files:_was_next", gives(True)),
    Mutation("higher numbers are not looked for", "tidelog.log.numbered_files:NumberedFiles.highest_number", gives(-1)),
    Mutation("a daemon does not wait for the time to live", f"{_LEASE}:_Taker._held", gives(None)),
    Mutation("clocks of daemons are compared", f"{_LEASE}:_Taker._held", by_the_clock_of_the_day),
    Mutation("a compaction fences its first part only", f"{_APPLYING}._commit_part", fences_the_first_part),
    Mutation("a group counts as planned for the newest version", f"{_APPLYING}._commit_part", planned_for_the_newest),
    Mutation("the groups that are left are not checked again", f"{_APPLYING}._check_rest", gives(None)),
    Mutation("the position moves before processing", "tests.simulation.consuming:step", advances_first),
    Mutation("new rows are not checked", "tidelog.log.conflict.rebase:Rebase._possible_matches", gives({})),
    Mutation("the key index forgets dead rows", "tidelog.log.read.key_index:read_dead_rows", forgets_a_vector),
    Mutation("files without a run are not read", "tidelog.log.read.key_index:KeyIndex.locate", covers_everything),
    Mutation("a run of other files is believed", "tidelog.log.read.key_index:KeyIndex._coverage", by_position_alone),
    Mutation("runs of a key of another type are believed", "tidelog.log.data.indexed_key:IndexedKey.of", of_any_type),
    Mutation("a get believes runs of any file", "tidelog.log.read.keyed_rows:index_of", believes_every_run),
    Mutation("a scan by keys reads no other files", "tidelog.log.read.scan:narrowed", only_where_the_index_says),
    Mutation(
        "the order of another row is believed", "tidelog.log.data.packed_order:PackedColumns.packed", of_the_row_before
    ),
    Mutation("tombstones are forgotten", "tidelog.log.operations.upsert_order:tombstones_of", gives(())),
    Mutation("a winner's tombstones are not looked at", "tidelog.log.commit.race:Race._buried", gives(None)),
    Mutation("a DELETE leaves no tombstones", "tidelog.log.operations.delete_update:columns_of_rows", gives(None)),
    Mutation(
        "a record that is equal to a deleted row brings it back",
        "tidelog.log.operations.upsert_order:_wins_ties",
        ties_go_to_the_record,
    ),
    Mutation(
        "a DELETE leaves the tombstones of the rows that it found first",
        "tidelog.log.conflict.staged:Staged.with_other_rows",
        stays_as_it_is,
    ),
    Mutation("vacuum forgets tombstones", "tidelog.log.cleanup.vacuum:tombstones_at", gives(())),
    Mutation("rows deleted by winners stay", "tidelog.log.conflict.rebase:FollowedDeletes.dead_images", gives({})),
)


def objection(mutation: Mutation, seeds: int = MAX_SEEDS) -> tuple[str, str] | None:
    """The first scenario that objects to the mutation, and to what; None if none does.

    The scenarios are the named ones and then random ones.
    """
    named = ((each.name, each.scenario) for each in NAMED)
    with ExitStack() as undone:
        for target in (mutation.target, *mutation.others):
            undone.enter_context(patched(replace(mutation, target=target)))
        for name, scenario in chain(named, ((f"seed {seed}", drawn(seed)) for seed in range(seeds))):
            found = run(scenario)
            if found.objections:
                text = str(found.objections[0])
                assert "TypeError" not in text, f"the mutation does not fit the code any more: {text}"
                return name, text
    return None


def main() -> int:
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    missed = 0
    for mutation in MUTATIONS:
        if part in mutation.name:
            found = objection(mutation)
            missed += found is None
            print(f"{'MISSED' if found is None else 'noticed'}: {mutation.name}: {found}"[:300], flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
