"""Whether the log names a file, in every spelling."""

from __future__ import annotations

import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction_daemon.support import z85
from tests.log.support import add, remove
from tidelog.log.cleanup.references import References, spellings
from tidelog.log.errors import CorruptLogError
from tidelog.log.format import paths
from tidelog.log.format.actions import AddCDCFile, AddFile, Commit, DeletionVectorDescriptor
from tidelog.log.state import files


def named(uri: str, path: str) -> bool:
    references = References()
    references.add_files(files.add_table([add(uri)]))
    (found,) = references.named([path])
    by_commit = References()
    by_commit.add_commit(Commit(1, {}, (add(uri),)))
    assert by_commit.named([path]).tolist() == [found]
    return bool(found)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("ab/part.parquet", "ab/part.parquet"),
        ("a%20b/x.parquet", "a b/x.parquet"),
        ("a%20b/x.parquet", "a%20b/x.parquet"),
        ("c=US%252FEast/x", "c=US%2FEast/x"),
        ("AB/Part.parquet", "ab/part.PARQUET"),
        (unicodedata.normalize("NFD", "ü/x"), unicodedata.normalize("NFC", "ü/x")),
        ("%C3%BC/x", "ü/x"),
        ("./ab//x", "ab/x"),
        ("cd/../ab/x", "ab/x"),
        ("../table/ab/x", "ab/x"),
        ("/data/table/ab/x", "ab/x"),
        ("file:/data/table/ab/x", "ab/x"),
        ("file:///data/table/ab/x", "ab/x"),
        ("FILE:///data/./table/../table/a%20b/x", "a b/x"),
        ("s3a://bucket/table/ab/x", "ab/x"),
        ("s3://bucket/x", "x"),
        ("memory://t/ab/x", "ab/x"),
        ("a:b/x", "a:b/x"),
        ("p=11:11/x", "p=11:11/x"),
        ("p=11%3A11/x", "p=11:11/x"),
        ("a\\b", "a\\b"),
        ("100%", "100%"),
    ],
)
def test_a_named_file_is_found_in_every_spelling(uri: str, path: str) -> None:
    assert named(uri, path)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("ab/part.parquet", "part.parquet"),
        ("ab/part.parquet", "cd/ab/part.parquet"),
        ("ab/part.parquet", "ab/part.parquet2"),
        ("/data/table/ab/x", "b/x"),
        ("a%20b", "a_b"),
    ],
)
def test_another_file_is_not_found(uri: str, path: str) -> None:
    assert not named(uri, path)


def test_empty_references_name_no_file() -> None:
    assert References().named(["a"]).tolist() == [False]
    assert References().named([]).tolist() == []


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8), min_size=1))
def test_any_path_is_found_by_its_uri(parts: list[str]) -> None:
    path = "/".join(part.replace("/", "x").replace(".", "y") for part in parts)
    assert named(paths.to_uri(path), path)
    assert named("file:///some/where/" + paths.to_uri(path), path)


RAW = bytes(range(16))
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def vector(storage_type: str, text: str, offset: int | None = 1) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type=storage_type, path_or_inline_dv=text, size_in_bytes=36, cardinality=1, offset=offset
    )


@pytest.mark.parametrize(
    ("descriptor", "path"),
    [
        (vector("u", z85(RAW)), f"deletion_vector_{UUID}.bin"),
        (vector("u", "_dv" + z85(RAW)), f"_dv/deletion_vector_{UUID}.bin"),
        (vector("p", f"file:///data/table/_dv/deletion_vector_{UUID}.bin"), f"_dv/deletion_vector_{UUID}.bin"),
        (vector("p", "vectors/a%20b.bin"), "vectors/a b.bin"),
        (vector("i", z85(RAW), None), None),
    ],
)
def test_files_of_deletion_vectors_are_named(descriptor: DeletionVectorDescriptor, path: str | None) -> None:
    file = add("x", deletion_vector=descriptor)
    for references in (by_table(file), by_removes(file), by_commit(file)):
        assert references.named(["x"]).tolist() == [True]
        assert references.named([path or z85(RAW)]).tolist() == [path is not None]


def by_table(file: AddFile) -> References:
    references = References()
    references.add_files(files.add_table([file, add("y"), file]))
    return references


def by_removes(file: AddFile) -> References:
    references = References()
    references.add_files(files.remove_table([remove(file)]))
    return references


def by_commit(file: AddFile) -> References:
    references = References()
    references.add_commit(Commit(1, {}, (add("y"), remove(file))))
    return references


def test_an_invalid_vector_is_a_corrupt_log() -> None:
    with pytest.raises(CorruptLogError):
        by_table(add("x", deletion_vector=vector("u", "short")))


def test_a_commit_names_its_change_files_and_row_maps() -> None:
    info = {"tidelog": {"lineage": {"groups": [{"rowMap": "_tidelog/rowmaps/1.arrow", "inputs": ["ab/x"]}]}}}
    cdc = AddCDCFile(path="_change_data/c%20d.parquet", partition_values={}, size=1, data_change=False)
    references = References()
    references.add_commit(Commit(1, info, (cdc,)))
    found = references.named(["_change_data/c d.parquet", "_tidelog/rowmaps/1.arrow", "ab/x"])
    assert found.tolist() == [True, True, False]


def test_files_can_be_added_after_the_first_look() -> None:
    references = References()
    assert references.named(["a"]).tolist() == [False]
    references.add_files(files.add_table([add("a")]))
    references.add_commit(Commit(1, {}, (add("b%20c"),)))
    assert references.named(["a", "b c", "d"]).tolist() == [True, True, False]


def test_an_absolute_path_has_every_suffix_as_a_spelling() -> None:
    assert spellings("file:///data/t/x") == {"file:/data/t/x", "data/t/x", "t/x", "x"}
    assert spellings("a%2Fb") == {"a%2Fb", "a/b"}
    assert spellings("/") == set()


def test_plain_paths_are_compared_as_columns() -> None:
    """Plain paths do not become Python objects."""
    column = pa.array([f"{number % 256:02x}/part-{number:036d}.parquet" for number in range(200_000)])
    table = pa.table({"path": column, "deletionVector": pa.nulls(len(column), files.DELETION_VECTOR)})
    references = References()
    references.add_files(table)
    assert references.named([*column.to_pylist(), "orphan"]).sum() == 200_000
    assert len(references._spellings) == 0
