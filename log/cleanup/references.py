"""The files that a log names, to be held against the files that are there.

A file counts as named in whichever way its name may be spelled: with `%` decoded or not, in any case and Unicode form,
by an absolute path or URI that may lead into the table. Where in doubt a file counts as named, which keeps it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.log.arrays import BoolArray
from tidelog.log.format import commit_info, deletion_vector
from tidelog.log.format.actions import AddCDCFile, AddFile, Commit, DeletionVectorDescriptor, RemoveFile
from tidelog.log.format.deletion_vector import StoredBitmap

# A path with any of these may leave the table, or is not in its shortest form; all others Arrow compares as they are.
_ODD = r"^[A-Za-z][A-Za-z0-9+.-]*:|^/|//|(^|/)\.\.?/"
_AUTHORITY = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")


class References:
    """A growing set of named files. Holds the paths as Arrow columns, so that a million of them stay small."""

    def __init__(self) -> None:
        self._plain: list[pa.Array] = []
        self._others: set[str] = set()
        self._keys: pa.ChunkedArray | None = None

    def add_files(self, actions: pa.Table) -> None:
        """The paths and deletion vectors of a table of adds or removes."""
        self._add_paths(actions["path"])
        vectors = actions["deletionVector"]
        if vectors.null_count == len(vectors):
            return
        present = vectors.drop_null()
        kind, text = (pc.struct_field(present, name) for name in ("storageType", "pathOrInlineDv"))
        # Many vectors share a file, and each decoding costs microseconds.
        for spelled in pc.unique(pc.binary_join_element_wise(kind, text, "\0")).to_pylist():
            storage_type, _, path = spelled.partition("\0")
            self._add_vector(storage_type, path)

    def add_commit(self, commit: Commit) -> None:
        """Every file that a commit adds, removes or holds change rows in, and those that its own record names."""
        paths = []
        for action in commit.actions:
            if isinstance(action, AddFile | RemoveFile):
                paths.append(action.path)
                if action.deletion_vector:
                    self._add_vector(action.deletion_vector.storage_type, action.deletion_vector.path_or_inline_dv)
            elif isinstance(action, AddCDCFile):
                paths.append(action.path)
        # A row map, say: all that tidelog names there lies below a folder that begins with `_`.
        paths += [text for text in _texts(commit_info.tidelog(commit.info)) if text.startswith("_")]
        self._add_paths(pa.chunked_array([pa.array(paths, pa.string())]))

    def named(self, paths: Sequence[str]) -> BoolArray:
        """For each of the files at `paths` (relative to the table), whether it is named."""
        if self._keys is None:
            others = pa.array(sorted(self._others), pa.string())
            self._keys = pa.chunked_array([*self._plain, _key(others)], pa.string())
        found = pc.is_in(_key(pa.array(paths, pa.string())), value_set=self._keys)
        return found.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def _add_paths(self, paths: pa.ChunkedArray) -> None:
        self._keys = None
        decoded = [unquote(text) for text in paths.filter(pc.match_substring(paths, "%")).to_pylist()]
        for texts in (paths, pa.chunked_array([pa.array(decoded, pa.string())])):
            odd = pc.match_substring_regex(texts, _ODD)
            for text in texts.filter(odd).to_pylist():
                self._others |= spellings(text)
            self._plain += [_key(chunk) for chunk in texts.filter(pc.invert(odd)).chunks]

    def _add_vector(self, storage_type: str, text: str) -> None:
        descriptor = DeletionVectorDescriptor(
            storage_type=storage_type, path_or_inline_dv=text, size_in_bytes=0, cardinality=0
        )
        stored = deletion_vector.location(descriptor)
        if isinstance(stored, StoredBitmap):
            self._others |= spellings(stored.path)
            self._keys = None


def spellings(uri: str) -> set[str]:
    """The paths, relative to the table, at which the file that `uri` names might lie.

    `x%2Fy` is `x%2Fy` or `x/y`; `file:///data/t/x` is `data/t/x`, `t/x` or `x`, as the table may lie in any of those
    folders.
    """
    found = set()
    for text in (uri, unquote(uri)):
        body = _AUTHORITY.sub("", text)
        for path in {text, body}:
            parts = [part for part in posixpath.normpath(path).split("/") if part not in {"", ".", ".."}]
            # Out of the table, or from the root of the store, and from there perhaps into it again.
            starts = range(len(parts)) if path != text or path.startswith(("/", "..")) else range(min(1, len(parts)))
            found |= {"/".join(parts[start:]) for start in starts}
    return found


def _key(paths: pa.Array) -> pa.Array:
    """What two spellings of one name have in common on any file system."""
    return pc.utf8_lower(pc.utf8_normalize(paths, form="NFC"))


def _texts(value: object) -> Iterator[str]:
    """Every text within a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
