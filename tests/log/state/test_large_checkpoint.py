"""A large checkpoint is read in pieces, straight from its file."""

from __future__ import annotations

import io
import json
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.support import PROTOCOL, add, classic, metadata, put_commit, remove
from tests.peak_memory import grown_mb, in_a_process, needs_proc
from tidelog.log.format import filenames, seal
from tidelog.log.state import checkpoint_reader, checkpoint_writer
from tidelog.log.state.checkpoint_reader import UnreadableCheckpointError
from tidelog.log.state.files import FileState
from tidelog.log.state.loader import load
from tidelog.log.storage.local import LocalStore

# Enough that the file is opened by Arrow and not read by Python.
FILES = 20_000
CHECKPOINT = filenames.checkpoint_path(2)
_MEMORY = """
import json, sys
from tests.log.state import test_large_checkpoint
print(json.dumps(test_large_checkpoint.grown_by_reading(sys.argv[1])))
"""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A checkpoint by tidelog, in which removes stand before the adds."""
    store = LocalStore(str(tmp_path))
    put_commit(store, 0, metadata(), PROTOCOL)
    names = [f"part-{number:0100}" for number in range(FILES)]
    put_commit(store, 1, *(add(name, stats=json.dumps({"numRecords": place})) for place, name in enumerate(names)))
    put_commit(store, 2, *(remove(add(name)) for name in names[::3]))
    state = load(store)
    checkpoint_writer.write_checkpoint(store, state.head, state.files())
    return store


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read any file in pieces."""
    monkeypatch.setattr(checkpoint_reader, "_WHOLE_BYTES", 0)
    monkeypatch.setattr(checkpoint_reader, "_SLICE_ROWS", 1000)
    monkeypatch.setattr(checkpoint_reader, "_PIECE_BYTES", 100_000)


def as_another_writer(store: LocalStore, *, shuffled: bool = False) -> None:
    """Write the checkpoint again without a seal, as one row group."""
    rows = pq.read_table(io.BytesIO(store.read(CHECKPOINT)))
    if shuffled:
        middle = len(rows) // 2
        order = [place for pair in zip(range(middle), range(middle, len(rows)), strict=False) for place in pair]
        rows = rows.take(pa.array(order + list(range(2 * middle, len(rows)))))
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, row_group_size=len(rows), compression="none", use_dictionary=False)
    store.replace(CHECKPOINT, buffer.getvalue())


def with_one_checksum(store: LocalStore) -> None:
    """Seal the checkpoint as tidelog did until November 2026."""
    content = store.read(CHECKPOINT)
    found = seal.seal_of_parquet(pa.BufferReader(content), 2)
    assert found is not None
    end = found.parts[-1][0]
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    before, after = content[:end] + b"tidelog-crc32:", content[footer:]
    crc = zlib.crc32(before + b"0" * 8 + after, zlib.crc32((2).to_bytes(8, "big")))
    store.replace(CHECKPOINT, before + f"{crc:08x}".encode() + after)


def read(store: LocalStore) -> FileState:
    return checkpoint_reader.read_files(store, classic(2))


def same(one: FileState, other: FileState) -> bool:
    return bool(one.adds.equals(other.adds) and one.removes.equals(other.removes))


@pytest.mark.parametrize("writer", ["tidelog", "an older tidelog", "another", "another, shuffled"])
def test_pieces_give_what_the_whole_gives(
    store: LocalStore, writer: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    expected, head = read(store), load(store).replayed()
    if writer == "an older tidelog":
        with_one_checksum(store)
        assert load(store).replayed() == head
    elif writer != "tidelog":
        as_another_writer(store, shuffled="shuffled" in writer)
    whole = read(store)
    assert writer not in ("tidelog", "an older tidelog") or same(whole, expected)
    request.getfixturevalue("in_pieces")
    monkeypatch.setattr(checkpoint_reader, "read_whole", None)
    assert same(read(store), whole)
    assert whole.adds.num_rows == FILES - len(range(0, FILES, 3))
    assert whole.removes.num_rows == len(range(0, FILES, 3))


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("place", ["start", "middle", "footer"])
def test_a_seal_detects_damage_in_any_piece(store: LocalStore, place: str, is_old: bool) -> None:
    if is_old:
        with_one_checksum(store)
    content = bytearray(store.read(CHECKPOINT))
    content[{"start": 5, "middle": len(content) // 2, "footer": len(content) - 50}[place]] ^= 1
    store.replace(CHECKPOINT, bytes(content))
    with pytest.raises(UnreadableCheckpointError, match="its checksum is wrong"):  # noqa: PT012 - either of them
        checkpoint_reader.read_partial_head(store, classic(2))
        read(store)


@pytest.mark.usefixtures("in_pieces")
def test_text_that_is_not_utf_8_is_detected(store: LocalStore) -> None:
    as_another_writer(store)
    content = store.read(CHECKPOINT)
    store.replace(CHECKPOINT, content.replace(b"part-000", b"part-\xff00"))
    with pytest.raises(UnreadableCheckpointError, match="UTF8"):
        read(store)


@pytest.mark.usefixtures("in_pieces")
def test_a_file_that_ends_early_is_unreadable(store: LocalStore) -> None:
    as_another_writer(store)
    store.replace(CHECKPOINT, store.read(CHECKPOINT)[:-100_000])
    with pytest.raises(UnreadableCheckpointError):
        read(store)


@needs_proc
def test_a_large_row_group_is_not_decoded_at_once(tmp_path: Path) -> None:
    """It took 396 MiB for 120 MB of files when the row group was decoded at once; now 220 to 280."""
    store = LocalStore(str(tmp_path))
    text = "s" * 1000
    struct = pa.struct(
        [
            ("path", pa.string()),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
        ]
    )
    adds = [{"path": f"{n}", "size": 1, "modificationTime": 1, "dataChange": True, "stats": text} for n in range(2000)]
    rows = pa.table({"add": pa.concat_arrays([pa.array(adds, struct)] * 60)})
    (tmp_path / "_delta_log").mkdir()
    with store.create(CHECKPOINT) as file:
        pq.write_table(rows, file, row_group_size=len(rows), compression="none", use_dictionary=False)
    grown = in_a_process(_MEMORY, tmp_path)
    assert 100 < grown < 320


def grown_by_reading(folder: str) -> int:
    """How much memory reading the checkpoint takes, in MiB, in this process."""
    store = LocalStore(folder)
    kept = []
    return grown_mb(lambda: kept.append(read(store)))
