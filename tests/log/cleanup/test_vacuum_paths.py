"""Clean-up of data files: which paths belong to the table, in any spelling."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from tests.log.cleanup.support import DAY, compacted, put
from tests.log.support import (
    START_MS,
    Clock,
    add,
    live_files,
    new_table,
    numbers,
    put_foreign,
    read_numbers,
    remove,
    reopen,
)
from tidelog.compaction_daemon import vacuum
from tidelog.log import Table
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore


@pytest.fixture
def table(clock: Clock) -> Table:
    return compacted(clock)


UUID = "0b54ab34-0d0e-4c55-9a3b-3d2f0f1f7c61"
OWN = [
    "x",
    "notes.txt",
    "p=1/part.parquet",
    "deletion_vector_1.bin",
    "_dv/deletion_vector_2.bin",
    "_change_data/c.parquet",
    "_change_data/p=1/c.parquet",
    "_tidelog/rowmaps/7.arrow",
    "_tidelog/refused/7.json",
    "_tidelog/turns/7",
    "_tidelog/probe-7",
    "_tidelog/doctor-7/listing/1",
    f"_tidelog/conflicts/.{UUID}.tmp",
    f"_tidelog/leases/0/.{UUID}.tmp",
    f"_tidelog/.{UUID}.tmp",
    f"_dv/.{UUID}.tmp",
]

NOT_OWN = [
    "_SUCCESS",
    ".x",
    "ab/.x.crc",
    "_other/x",
    ".other/x",
    "ab/_temporary/0/x",
    "_tidelog/leases/0/00000000000000000001.json",
    "_tidelog/consumers/c.json",
    "_tidelog/conflicts/1700000000000-7.json",
    "_tidelog/upkeep.json",
    "_tidelog/refused/7/other.json",
    "_tidelog/.7.tmp",
    f"ab/.{UUID}.tmp",
    f"_other/.{UUID}.tmp",
    "_delta_log/_sidecars/x.parquet",
    "_delta_log/notes",
    "inner/_delta_log/00000000000000000000.json",
    "inner/part.parquet",
    "inner/ab/part.parquet",
]


def test_only_files_of_the_table_are_deleted(table: Table, clock: Clock) -> None:
    vacuum(table)
    for path in [*OWN, *NOT_OWN]:
        put(table, clock, path, days_ago=18)
    report = vacuum(table)
    assert sorted(report.files) == sorted(OWN)
    counts = (report.data_files, report.deletion_vectors, report.change_files, report.row_maps, report.others)
    assert counts == (3, 2, 2, 1, 8)
    assert {path for path, _ in table.store.walk()} >= set(NOT_OWN)


@pytest.mark.parametrize(
    "spelled",
    [
        "{root}/ab/a%20b.parquet",
        "file:{root}/ab/a%20b.parquet",
        "file://{root}/ab/a%20b.parquet",
        "file://{root}/../t/./ab/a%20b.parquet",
        "file://{linked}/ab/a%20b.parquet",
        "../t/ab/a%20b.parquet",
        "ab/a%20b.parquet",
        "./ab//a%20b.parquet",
    ],
)
def test_a_live_file_stays_in_every_spelling(tmp_path: Path, spelled: str) -> None:
    root, linked = tmp_path / "t", tmp_path / "linked"
    clock = Clock()
    table = new_table(LocalStore(str(root)), system=clock)
    table.insert(numbers([1]))
    (written,) = live_files(table)
    linked.symlink_to(root)
    (root / "ab").mkdir(exist_ok=True)
    shutil.copy(root / written.path, root / "ab/a b.parquet")
    (root / "ab/orphan.parquet").write_bytes(b"")
    uri = spelled.format(root=root, linked=linked)
    put_foreign(table, remove(written), msgspec.structs.replace(written, path=uri))
    age(root, days=100)
    age(root / "_delta_log", days=60)
    clock.ms += 1000 * DAY
    clock.ms = max(clock.ms, int((root / "ab/orphan.parquet").stat().st_ctime * 1000) + 50 * DAY)
    table = Table(table.store, load(table.store), clock)
    assert read_numbers(table) == [1]
    assert set(vacuum(table).files) == {written.path, "ab/orphan.parquet"}
    assert read_numbers(reopen(table)) == [1]


def age(folder: Path, *, days: int) -> None:
    """Make the files of a folder older, except those of a log below it."""
    for path in folder.rglob("*"):
        if path.is_file() and "_delta_log" not in path.relative_to(folder).parts:
            moment = path.stat().st_mtime - days * 86_400
            os.utime(path, (moment, moment))


def test_a_file_outside_the_table_is_never_touched(tmp_path: Path) -> None:
    """Such as the files of a shallow clone, and the targets of links."""
    root, outside = tmp_path / "t", tmp_path / "outside"
    outside.mkdir()
    (outside / "part.parquet").write_bytes(b"x")
    clock = Clock()
    table = new_table(LocalStore(str(root)), system=clock)
    foreign = add(f"file://{outside}/part.parquet")
    put_foreign(table, foreign)
    put_foreign(table, remove(foreign, deletion_timestamp=START_MS))
    (root / "link").symlink_to(outside)
    (root / "part.parquet").symlink_to(outside / "part.parquet")
    age(tmp_path, days=100)
    clock.ms += 10_000 * DAY
    assert vacuum(table).files == ()
    assert (outside / "part.parquet").read_bytes() == b"x"


def test_hidden_hadoop_checksums_are_deleted_and_names_that_are_not_text_stay(tmp_path: Path) -> None:
    root = tmp_path / "t"
    clock = Clock()
    table = new_table(LocalStore(str(root)), system=clock)
    (root / "ab").mkdir()
    for name in ("part.parquet", ".part.parquet.crc", ".other.crc"):
        (root / "ab" / name).write_bytes(b"x")
    (root / "top.parquet").write_bytes(b"x")
    (root / ".top.parquet.crc").write_bytes(b"x")
    odd = os.path.join(os.fsencode(root), b"\xff\xfe.parquet")  # noqa: PTH118 - bytes
    Path(os.fsdecode(odd)).write_bytes(b"x")
    age(root, days=1)
    clock.ms += 10_000 * DAY
    assert set(vacuum(table).files) == {"ab/part.parquet", "top.parquet"}
    assert sorted(path.name for path in (root / "ab").iterdir()) == [".other.crc"]
    assert not (root / ".top.parquet.crc").exists()
    assert Path(os.fsdecode(odd)).exists()
