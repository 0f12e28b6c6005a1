"""Each bug that was found, as a scenario with a name and a sentence: those made by hand, and seeds that found one.

A scenario made by hand says who waits where, so it stays the same when the code makes more or fewer steps. A seed is
kept as it was found. While `defect` is in KNOWN_DEFECTS, the scenario is expected to fail.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

from tests.log.oracle.model import Row, Where
from tests.log.oracle.operations import Delete, Insert, Overwrite, Update, Upsert
from tests.log.oracle.settings import SETTINGS
from tests.simulation import faults, known_defects
from tests.simulation.actors import (
    Checkpoint,
    Compaction,
    Create,
    Drop,
    Expire,
    GoBack,
    Index,
    Job,
    Lookup,
    Read,
    Statement,
    Vacuum,
    Widened,
)
from tests.simulation.consuming import Consume
from tests.simulation.faults import COMMIT, LOG, TEMPORARY, Fault, NoAnswerError, When
from tests.simulation.known_defects import SWITCHES
from tests.simulation.named import Named, named
from tests.simulation.named_daemons import DAEMONS
from tests.simulation.named_steps import STEPS
from tests.simulation.scenario import DAY_MS, HOUR_MS, Hold, drawn


def _insert(key: int, after_ms: int = 0) -> Statement:
    return Statement(Insert("INSERT", (Row(key, 1, 1000 + key),)), after_ms=after_ms)


def _once(key: int) -> Statement:
    return Statement(Insert("INSERT once", (Row(key, 1, 1000 + key),), key=("app", 1)))


def _overwrite(key: int, after_ms: int = 0) -> Statement:
    return Statement(Overwrite("OVERWRITE", (Row(key, 1, 1000 + key),)), after_ms=after_ms)


def _fault(name: str, operation: str, path: str, when: When, error: Any, burst: int = 1) -> tuple[Fault, ...]:
    return (Fault(name, operation, path, when, error, 1.0, burst),)


_LOG_FILE, _DATA_FILE = r"_delta_log/\d", r"(_dv/|.*part-)"
_CHECKPOINT, _CHECKSUM = r"_delta_log/\d+\.checkpoint", r"_delta_log/\d+\.crc"
# The first one's own version is the horizon of the second, which deletes what was written in between.
_VACUUMS: tuple[Job, ...] = (Vacuum(after_ms=3 * DAY_MS), Vacuum(after_ms=3 * DAY_MS))
# Commits, of which the first ones are then deleted from the log.
_EXPIRED: tuple[Job, ...] = (
    _insert(19, 1000),
    *(_insert(key) for key in range(20, 24)),
    Checkpoint(),
    _insert(24, DAY_MS),
    Expire(after_ms=2 * DAY_MS),
)
# Another table at the same path, with as many versions as the old one had.
_REPLACED: tuple[Job, ...] = (Drop(after_ms=1000), Create(), *(_insert(key) for key in range(20, 25)))

_DROP = (
    named(
        "a commit after the drop",
        "a writer puts its version when a drop has deleted the log, and is told that it is committed",
        known_defects.DROP,
        {"insert-0": (_insert(20),), "drop-1": (Drop(after_ms=1000),)},
        store="cloud",
        holds=(Hold("insert-0", "put", COMMIT, until="drop-1"),),
    ),
    named(
        "a drop goes on after the table was created again",
        "a drop waits before it deletes the log; meanwhile the path gets a new table, whose log it then deletes",
        known_defects.DROP,
        {"drop-0": (Drop(),), "drop-1": _REPLACED},
        holds=(Hold("drop-0", "unlink", _LOG_FILE, until="drop-1"),),
    ),
    named(
        "a drop lists the files of the next table",
        "a drop waits before it lists the files; then those of a new table at the path are among them",
        known_defects.DROP,
        {"drop-0": (Drop(),), "drop-1": _REPLACED},
        holds=(Hold("drop-0", "entries", "$", until="drop-1"),),
    ),
    named(
        "a late checkpoint of the old table",
        "a checkpoint waits until the table was dropped and created again, and lands in the new table's log",
        known_defects.DROP,
        {"checkpoint-0": (Checkpoint(),), "drop-1": _REPLACED},
        store="cloud",
        holds=(Hold("checkpoint-0", "put", _CHECKPOINT, until="drop-1"),),
    ),
    named(
        "a late checksum of the old table",
        "the checksum of a version that the new table does not have yet, so that its log looks damaged",
        known_defects.DROP,
        {"insert-0": (_insert(30),), "drop-1": (Drop(after_ms=1000), Create(), _insert(20))},
        store="cloud",
        holds=(Hold("insert-0", "put", _CHECKSUM, until="drop-1"),),
    ),
    named(
        "a late expire of the old table",
        "an expire waits before its first deletion, and then deletes the commits of the new table",
        known_defects.DROP,
        {
            "expire-0": (Checkpoint(), _insert(30, 2 * DAY_MS), Expire(after_ms=2 * DAY_MS)),
            "drop-1": (Drop(after_ms=5 * DAY_MS), Create(), *(_insert(key) for key in range(20, 25))),
        },
        holds=(Hold("expire-0", "unlink", _LOG_FILE, until="drop-1"),),
    ),
    named(
        "a key of the old table",
        "an insert has the same idempotency key as one of the table that was dropped; the new table takes it",
        known_defects.DROP,
        {"once-0": (_once(20), Drop(), Create(), _once(21))},
    ),
    named(
        "two tables within a second",
        "on an object store a table is dropped and created again within a second, and an old handle writes into it",
        known_defects.DROP,
        {
            "drop-0": (Drop(), Create(), Drop(after_ms=60), Create()),
            "insert-1": (Read(after_ms=150), _insert(20, 600)),
        },
        store="cloud",
        seed=3,
    ),
)
_CLEAN_UP = (
    named(
        "a restore between a vacuum's look and its deletions",
        "a vacuum waits after it has looked at the head; a RESTORE brings the files back; then they are deleted",
        known_defects.RESTORE_BESIDE_VACUUM,
        {
            "overwrite-0": (_overwrite(20),),
            "vacuum-1": (Vacuum(after_ms=3 * DAY_MS),),
            # The version before the OVERWRITE and before the vacuum's own commit.
            "restore-2": (GoBack(2, after_ms=3 * DAY_MS + 1000),),
        },
        holds=(Hold("vacuum-1", "unlink", _DATA_FILE, until="restore-2"),),
    ),
    named(
        "a restore between a vacuum's look and its commit",
        "the same, but the vacuum waits before it commits its horizon",
        known_defects.RESTORE_BESIDE_VACUUM,
        {
            "overwrite-0": (_overwrite(20),),
            "vacuum-1": (Vacuum(after_ms=3 * DAY_MS),),
            "restore-2": (GoBack(1, after_ms=3 * DAY_MS + 1000),),
        },
        holds=(Hold("vacuum-1", "link", COMMIT, until="restore-2"),),
    ),
    named(
        "an insert that slept through a vacuum",
        "an insert waits for days before its commit, which then names a file that a vacuum has deleted",
        known_defects.SLEEPERS_BESIDE_VACUUM,
        {"insert-0": (_insert(20),), "vacuum-1": _VACUUMS},
        holds=(Hold("insert-0", "link", COMMIT, until="vacuum-1"),),
    ),
    named(
        "a compaction that slept through a vacuum",
        "a compaction waits for days, a vacuum deletes its outputs, and its commit takes the old rows with it",
        known_defects.SLEEPERS_BESIDE_VACUUM,
        {"compact-0": (Compaction("minor"),), "vacuum-1": _VACUUMS},
        holds=(Hold("compact-0", "link", COMMIT, until="vacuum-1"),),
    ),
    named(
        "an update that slept through a vacuum",
        "the same with a deletion vector",
        known_defects.SLEEPERS_BESIDE_VACUUM,
        {
            "update-0": (Statement(Update("UPDATE", Where("k", "<=", 1), "v", added=True, number=5000)),),
            "vacuum-1": _VACUUMS,
        },
        holds=(Hold("update-0", "link", COMMIT, until="vacuum-1"),),
    ),
    named(
        "an update of a row that was deleted",
        "its new row must not appear, since the delete was committed first",
        "",
        {
            "update-0": (Statement(Update("UPDATE", Where("k", "<=", 2), "v", added=True, number=5000)),),
            "delete-1": (Statement(Delete("DELETE", Where("k", "=", 1))),),
        },
        holds=(Hold("update-0", "link", COMMIT, until="delete-1"),),
    ),
    named(
        "a put into a hole",
        "a writer sleeps until its version was committed by another and expired, and puts it below the checkpoint",
        known_defects.SLEEPERS_BESIDE_EXPIRE,
        {
            "insert-0": (_insert(30, 1),),
            "expire-1": _EXPIRED,
        },
        store="cloud",
        holds=(Hold("insert-0", "put", COMMIT, until="expire-1"),),
    ),
    named(
        "two puts into a hole",
        "the same with two writers: the second one takes what the first one put for the winner, and follows it",
        known_defects.SLEEPERS_BESIDE_EXPIRE,
        {"insert-0": (_insert(30, 1),), "insert-2": (_insert(31, 1),), "expire-1": _EXPIRED},
        store="cloud",
        holds=tuple(Hold(sleeper, "put", COMMIT, until="expire-1") for sleeper in ("insert-0", "insert-2")),
    ),
    named(
        "a put behind one into a hole",
        "the second writer had followed the commit that was deleted; it puts its own behind what the first one put",
        known_defects.SLEEPERS_BESIDE_EXPIRE,
        {
            "insert-0": (_insert(30, 1),),
            "insert-2": (_insert(31, 1),),
            "insert-3": (_insert(32, 500),),
            "expire-1": _EXPIRED,
        },
        store="cloud",
        holds=(
            Hold("insert-0", "put", COMMIT, until="expire-1"),
            Hold("insert-2", "put", COMMIT, pause_ms=700),
            Hold("insert-2", "put", COMMIT, until="insert-0"),
        ),
    ),
    named(
        "an expire that dies halfway",
        "an expire dies after some of its deletions; the commits that are left have no gap",
        known_defects.SLEEPERS_BESIDE_EXPIRE,
        {"expire-0": _EXPIRED},
        holds=(Hold("expire-0", "unlink", _LOG_FILE, nth=5, dies=True),),
    ),
    named(
        "an expire beside a young checkpoint",
        "the newest checkpoint is younger than the cut-off; the versions between them stay readable",
        known_defects.SLEEPERS_BESIDE_EXPIRE,
        {"expire-0": (Checkpoint(), _insert(20, 3 * DAY_MS), _insert(21), Checkpoint(), Expire())},
    ),
)
_UNKNOWN = (
    named(
        "a put that lands after its writer gave up",
        "a proxy holds every put of a commit; the writer is told that nothing was committed; then one lands",
        faults.LATE_PUTS,
        {"insert-0": (_insert(20),)},
        store="cloud",
        faults=_fault("held", "put", COMMIT, When.LATE, NoAnswerError),
    ),
    named(
        "a put that lands and is repeated",
        "the same, and the writer obeys and runs the insert again, without a key",
        faults.LATE_PUTS,
        {"insert-0": (_insert(20), _insert(21))},
        store="cloud",
        faults=_fault("held", "put", rf"{LOG}/0+5\.json$", When.LATE, NoAnswerError),
    ),
    named(
        "the log folder allows no removals",
        "chattr +a on the log folder: the commit is linked, but its temporary name stays",
        faults.AFTER_THE_EFFECT,
        {"insert-0": (_insert(20),)},
        faults=_fault("chattr +a", "unlink", TEMPORARY, When.NEVER, errno.EPERM),
    ),
    named(
        "the log folder cannot be opened",
        "mode 0733 on the log folder: the commit is linked, but the folder cannot be opened to sync it",
        faults.AFTER_THE_EFFECT,
        {"insert-0": (_insert(20),)},
        faults=_fault("mode 0733", "open_descriptor", f"{LOG}$", When.NEVER, errno.EACCES),
    ),
    named(
        "a link is made and reported as forbidden",
        "a network file system makes the link, and answers that it may not",
        faults.AFTER_THE_EFFECT,
        {"insert-0": (_insert(20),)},
        faults=_fault("forbidden", "link", COMMIT, When.BEFORE_THE_ANSWER, errno.EACCES),
    ),
    named(
        "the log folder cannot be synced",
        "an EIO from the fsync of the log folder is reported as committed",
        faults.FOLDER_SYNC,
        {"insert-0": (_insert(20),)},
        faults=_fault("EIO", "fsync", f"{LOG}$", When.NEVER, errno.EIO),
    ),
    named(
        "a link whose answer is lost is not synced",
        "the link is made and its answer lost; the commit is looked up and found, but the folder is never synced",
        faults.FOLDER_SYNC,
        {"insert-0": (_insert(20),)},
        faults=_fault("lost", "link", COMMIT, When.BEFORE_THE_ANSWER, errno.EIO),
    ),
    named(
        "a folder that another one made and did not sync",
        "a writer makes a folder and dies; another one puts its file there, but a power failure loses the folder",
        faults.FOLDER_SYNC,
        {"insert-0": (_insert(20),), "insert-1": (_insert(21, 1000),)},
        holds=(Hold("insert-0", "fsync", "$", dies=True),),
    ),
)

_RECORD = r"_tidelog/consumers/.*json"
_LATE_CONSUMER: tuple[Job, ...] = (
    Consume("c", back=1, rounds=0, after_ms=3 * DAY_MS + HOUR_MS),
    Consume("c", after_ms=4 * HOUR_MS),
)
# The version before the last one needs a file that a vacuum two days later deletes, and a commit that an expire does.
_OVERWRITTEN: tuple[Job, ...] = (_insert(19), _insert(20), _overwrite(21), Checkpoint())
# They pass whoever registered at first and has given no sign of life since.
_LATE_CLEAN_UPS: dict[str, tuple[Job, ...]] = {
    "vacuum-2": (Vacuum(after_ms=9 * DAY_MS),),
    "expire-3": (Expire(after_ms=10 * DAY_MS),),
}


def _record(number: int) -> str:
    return rf"_tidelog/consumers/c/{number:020d}\.json"


_CONSUMERS = (
    named(
        "a vacuum between a consumer's steps",
        "a consumer waits before it writes its record; a vacuum passes its position; then the consumer goes on",
        "",
        {
            "overwrite-0": _OVERWRITTEN,
            "vacuum-1": (Vacuum(after_ms=3 * DAY_MS),),
            "consumer-2": (Consume("c", back=1, after_ms=3 * DAY_MS - HOUR_MS),),
        },
        holds=(Hold("consumer-2", "link", _RECORD, until="vacuum-1"),),
    ),
    named(
        "a consumer between a vacuum's steps",
        "a vacuum waits before it commits its horizon; a consumer registers, and reads when the vacuum has ended",
        "",
        {"overwrite-0": _OVERWRITTEN, "vacuum-1": (Vacuum(after_ms=3 * DAY_MS),), "consumer-2": _LATE_CONSUMER},
        holds=(Hold("vacuum-1", "link", COMMIT, pause_ms=2 * HOUR_MS),),
    ),
    named(
        "a consumer between an expire's steps",
        "the same with an expire",
        "",
        {"overwrite-0": _OVERWRITTEN, "expire-1": (Expire(after_ms=3 * DAY_MS),), "consumer-2": _LATE_CONSUMER},
        holds=(Hold("expire-1", "link", COMMIT, pause_ms=2 * HOUR_MS),),
    ),
    named(
        "a consumer between an expire's commit and its deletions",
        "an expire waits before its first deletion; a consumer registers where the expire has passed",
        "",
        {"overwrite-0": _OVERWRITTEN, "expire-1": (Expire(after_ms=3 * DAY_MS),), "consumer-2": _LATE_CONSUMER},
        holds=(Hold("expire-1", "unlink", _LOG_FILE, pause_ms=2 * HOUR_MS),),
    ),
    named(
        "a slow consumer with signs of life",
        "a consumer needs twelve days for its first step; clean-ups wait for it all the time",
        "",
        {
            "overwrite-0": _OVERWRITTEN,
            "consumer-1": (Consume("c", back=1, rounds=12, pause_ms=DAY_MS, reads_late=True, after_ms=1000),),
            "vacuum-2": (Vacuum(after_ms=9 * DAY_MS),),
            "expire-3": (Expire(after_ms=10 * DAY_MS),),
        },
    ),
    named(
        "a consumer that comes back too late",
        "a consumer sleeps for longer than the time to live, and clean-ups pass it; it is told, and begins again",
        "",
        {
            "overwrite-0": _OVERWRITTEN,
            "consumer-1": (Consume("c", back=1, rounds=0, after_ms=1000), Consume("c", after_ms=12 * DAY_MS)),
            "vacuum-2": (Vacuum(after_ms=9 * DAY_MS),),
            "expire-3": (Expire(after_ms=10 * DAY_MS),),
        },
    ),
    named(
        "a command that dies while it reads",
        "a command dies between registering and printing; the next one prints what it had not",
        "",
        {
            "overwrite-0": _OVERWRITTEN,
            "consumer-1": (
                Consume("c", back=1, is_command=True, after_ms=1000),
                Consume("c", is_command=True, after_ms=HOUR_MS),
            ),
        },
        holds=(Hold("consumer-1", "open_input", _DATA_FILE, dies=True),),
    ),
    named(
        "a consumer that comes back too late and dies before its look",
        "its record is there, but proves nothing to the next life, which must look though it comes an hour later",
        "",
        {
            "overwrite-0": _OVERWRITTEN,
            "consumer-1": (
                Consume("c", back=1, rounds=0, after_ms=1000),
                Consume("c", after_ms=12 * DAY_MS),
                Consume("c", after_ms=HOUR_MS),
            ),
            **_LATE_CLEAN_UPS,
        },
        # The second life has put record 2, and reads whether the one before is still there.
        holds=(Hold("consumer-1", "read", _record(1), nth=2, dies=True),),
    ),
    named(
        "a consumer that comes back too late and cannot withdraw",
        "it was silent for longer than the time to live, and the record by which it came back says nothing else",
        "",
        {
            "overwrite-0": _OVERWRITTEN,
            "consumer-1": (Consume("c", back=1, rounds=0, after_ms=1000), Consume("c", after_ms=12 * DAY_MS)),
            **_LATE_CLEAN_UPS,
        },
        faults=_fault("a full disk", "link", _record(3), When.NEVER, errno.ENOSPC),
    ),
    named(
        "two copies of a command that comes back too late",
        "one is told that it is cut off, and moves the consumer; the other one, which had looked before, goes on there",
        "",
        {
            "overwrite-0": _OVERWRITTEN,
            "consumer-1": (
                Consume("c", back=1, rounds=0, is_command=True, after_ms=1000),
                Consume("c", is_command=True, after_ms=12 * DAY_MS),
            ),
            "consumer-1-again": (Consume("c", is_command=True, after_ms=12 * DAY_MS - HOUR_MS),),
            **_LATE_CLEAN_UPS,
        },
        holds=(Hold("consumer-1-again", "link", _RECORD, until="consumer-1"),),
    ),
    named(
        "two copies of a command that sleep over one another",
        "one registers and sleeps too long; the other one takes over where a clean-up has passed, and before it can "
        "withdraw, the first one is told that it is cut off, which is right (seed 1123511)",
        "",
        {
            "overwrite-0": _OVERWRITTEN,
            "consumer-1": (Consume("c", back=1, rounds=1, is_command=True, after_ms=1000),),
            "consumer-1-again": (Consume("c", is_command=True, after_ms=12 * DAY_MS),),
            **_LATE_CLEAN_UPS,
        },
        holds=(
            Hold("consumer-1", "read", _record(0), nth=2, pause_ms=12 * DAY_MS + HOUR_MS),
            Hold("consumer-1-again", "link", _record(3), until="consumer-1"),
        ),
    ),
)


def _seed(seed: int, defect: str, story: str) -> Named:
    without = tuple(name for name in SWITCHES if name != defect)
    found = drawn(seed, without)
    old = {fault.name for fault in faults.FAULTS[found.store]}
    kept = tuple(fault for fault in found.faults if fault.name in old)
    plans = tuple(plan for plan in found.plans if plan.name not in {"lookup", "switch", "engine"})
    as_found = replace(found, plans=plans, faults=kept, stale_ms=0, store_jump_chance=0.0)
    return Named(f"seed {seed}, {defect}", story, defect, as_found)


_LATE_NAMES = (
    named(
        "a commit that waits under another name",
        "its writer sleeps between writing the file and giving it its name; a vacuum takes the file's time for the "
        "commit's, and deletes what was removed an hour ago (seed 1073401)",
        "",
        {
            "overwrite-0": (_insert(19), _insert(20), _overwrite(21)),
            "vacuum-1": (Vacuum(after_ms=3 * DAY_MS), Vacuum(after_ms=HOUR_MS)),
        },
        holds=(Hold("overwrite-0", "link", COMMIT, nth=3, pause_ms=3 * DAY_MS - HOUR_MS),),
    ),
)

_KEYS = (1, 2, 3, 5, 6, 7, 9, 20, 99)
_LOOKUPS = (
    named(
        "keys of files without a run",
        "somebody deletes two of three runs of the key index; the rows of their files are found all the same",
        "",
        {
            "index-0": (Index(keeps=0),),
            "lookup-1": (Lookup((_KEYS,), scans=True, after_ms=HOUR_MS), Lookup((_KEYS,))),
        },
        setting=SETTINGS["vectors, partitions"],
    ),
    named(
        "keys of files that are not live",
        "the table is overwritten, and a writer dies between a run and its commit; the runs and files are still there",
        "",
        {
            "overwrite-0": (_insert(20), _overwrite(20)),
            "insert-1": (_insert(99, HOUR_MS),),
            "lookup-2": (
                Lookup((_KEYS,), scans=True, after_ms=2 * HOUR_MS),
                Lookup((_KEYS,)),
                Lookup((_KEYS,), back=1),
            ),
        },
        setting=SETTINGS["vectors, partitions"],
        holds=(Hold("insert-1", "link", COMMIT, dies=True),),
    ),
    named(
        "keys of a version that a vacuum passes",
        "a version is overwritten and then vacuumed while keys are looked up in it, which ends with a missing file",
        "",
        {
            "lookup-0": (Lookup((_KEYS, _KEYS), pause_ms=4 * DAY_MS),),
            "overwrite-1": (_overwrite(20, HOUR_MS), _insert(21, 5 * DAY_MS)),
            "vacuum-2": (Vacuum(after_ms=7 * DAY_MS),),
        },
        setting=SETTINGS["vectors, partitions"],
    ),
    named(
        "keys from before their type was widened",
        "the key of a table gets a wider type, whose codes are others than those of the runs that are there",
        "",
        {
            "index-0": (Index(),),
            "widener-1": (Statement(Widened("WIDEN", (Row(20, 1, 2000),)), after_ms=HOUR_MS),),
            "upsert-2": (Statement(Upsert("UPSERT", (Row(3, 1, 3003), Row(9, 2, -1))), after_ms=2 * HOUR_MS),),
            "lookup-3": (Lookup((_KEYS,), after_ms=3 * HOUR_MS), Lookup((_KEYS,), scans=True)),
        },
        setting=replace(SETTINGS["vectors, partitions"], decimals=True),
    ),
)

_SEEDS = (
    _seed(29, known_defects.DROP, "a drop beside writers leaves a path that cannot be opened, dropped or created"),
    _seed(202, known_defects.DROP, "a commit lands behind the drop, and its writer is told that it is committed"),
    _seed(
        198, known_defects.SLEEPERS_BESIDE_VACUUM, "a writer sleeps through a vacuum, and commits files that are gone"
    ),
)

NAMED = (*_DROP, *_CLEAN_UP, *_UNKNOWN, *_CONSUMERS, *DAEMONS, *STEPS, *_LATE_NAMES, *_LOOKUPS, *_SEEDS)
