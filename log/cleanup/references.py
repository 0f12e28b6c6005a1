"""The files that a log names, for comparison with the files that exist.

A name matches a file in any spelling: with `%` decoded or not, in any case and Unicode form, as an absolute path or URI
that may lead into the table. In case of doubt a file counts as named, which keeps it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import BoolArray
from tidelog.log.format import commit_info, deletion_vector, lineage
from tidelog.log.format.actions import AddCDCFile, AddFile, Commit, DeletionVectorDescriptor, RemoveFile
from tidelog.log.format.deletion_vector import StoredBitmap
from tidelog.log.format.paths import to_storage_path
from tidelog.log.format.text import is_unicode

# Paths that may leave the table or are not in their shortest form. Arrow compares all other paths as they are.
_ODD = r"^[A-Za-z][A-Za-z0-9+.-]*:|^/|//|(^|/)\.\.?/"
_AUTHORITY = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")


class References:
    """A growing set of named files. Holds the paths as Arrow columns, which keeps a million of them small."""

    def __init__(self) -> None:
        self._plain: list[pa.Array] = []
        self._spellings: set[str] = set()
        self._keys: pa.ChunkedArray | None = None

    def add_files(self, actions: pa.Table) -> None:
        """Add the paths and deletion vectors of a table of adds or removes."""
        self._add_paths(actions["path"])
        vectors = actions["deletionVector"]
        if vectors.null_count == len(vectors):
            return
        present = vectors.drop_null()
        kind, text = (pc.struct_field(present, name) for name in ("storageType", "pathOrInlineDv"))
        # Many vectors share a file, and decoding each one costs microseconds.
        for spelled in pc.unique(pc.binary_join_element_wise(kind, text, "\0")).to_pylist():
            storage_type, _, path = spelled.partition("\0")
            self._add_vector(storage_type, path)

    def add_paths(self, paths: Sequence[str]) -> None:
        """Add files by their paths."""
        self._add_paths(pa.chunked_array([pa.array(paths, pa.string())]))

    def add_commit(self, commit: Commit) -> None:
        """Add every file that a commit adds or removes, its change files, and the files that tidelog's record names."""
        paths = []
        for action in commit.actions:
            if isinstance(action, AddFile | RemoveFile):
                paths.append(action.path)
                if action.deletion_vector:
                    self._add_vector(action.deletion_vector.storage_type, action.deletion_vector.path_or_inline_dv)
            elif isinstance(action, AddCDCFile):
                paths.append(action.path)
        record = commit_info.tidelog(commit.info)
        # For example a row map: every file that tidelog names there is below a folder that begins with `_`.
        paths += [text for text in _texts(record) if text.startswith("_")]
        # The vectors that a compaction read. Without them nobody can follow rows through its lineage.
        moved = lineage.from_builtins(record.get("lineage"))
        for entry in (entry for group in moved.groups for entry in group.inputs) if moved else ():
            if entry.dv_id is not None:
                self._add_stored(deletion_vector.of_id(entry.dv_id))
        self.add_paths(paths)

    def named(self, paths: Sequence[str]) -> BoolArray:
        """Whether each of the files at `paths` (relative to the table) is named."""
        if self._keys is None:
            odd = pa.array(sorted(self._spellings), pa.string())
            self._keys = pa.chunked_array([*self._plain, _key(odd)], pa.string())
        found = pc.is_in(_key(pa.array(paths, pa.string())), value_set=self._keys)
        return found.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def _add_paths(self, paths: pa.ChunkedArray) -> None:
        self._keys = None
        decoded = [unquote(text) for text in paths.filter(pc.match_substring(paths, "%")).to_pylist()]
        for texts in (paths, pa.chunked_array([pa.array(decoded, pa.string())])):
            odd = pc.match_substring_regex(texts, _ODD)
            for text in texts.filter(odd).to_pylist():
                self._spellings |= spellings(text)
            self._plain += [_key(chunk) for chunk in texts.filter(pc.invert(odd)).chunks]

    def _add_vector(self, storage_type: str, text: str) -> None:
        descriptor = DeletionVectorDescriptor(
            storage_type=storage_type, path_or_inline_dv=text, size_in_bytes=0, cardinality=0
        )
        self._add_stored(deletion_vector.location(descriptor))

    def _add_stored(self, stored: StoredBitmap | bytes) -> None:
        if isinstance(stored, StoredBitmap):
            self._spellings |= spellings(stored.path)
            self._keys = None


def spellings(uri: str) -> set[str]:
    """The paths, relative to the table, that the file named by `uri` can have.

    `x%2Fy` is `x%2Fy` or `x/y`. `file:///data/t/x` is `data/t/x`, `t/x` or `x`, since the table can be any of those
    folders.
    """
    found = set()
    for text in (uri, unquote(uri)):
        body = _AUTHORITY.sub("", text)
        for path in {text, body}:
            parts = [part for part in posixpath.normpath(path).split("/") if part not in {"", ".", ".."}]
            # A path out of the table, or from the root of the store, can lead back into the table.
            starts = range(len(parts)) if path != text or path.startswith(("/", "..")) else range(min(1, len(parts)))
            found |= {"/".join(parts[start:]) for start in starts}
    return found


def path_inside(uri: str) -> str | None:
    """The path, relative to the table, of the file that `uri` names; None if it may lead elsewhere."""
    path = to_storage_path(uri)
    is_odd = any(re.search(_ODD, text) for text in (uri, path))
    return None if is_odd or not is_unicode(path) else path


def _key(paths: pa.Array) -> pa.Array:
    """A normal form that all spellings of a name share on any file system."""
    return pc.utf8_lower(pc.utf8_normalize(paths, form="NFC"))


def _texts(value: object) -> Iterator[str]:
    """Every text within a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
