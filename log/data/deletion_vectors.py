"""Read and write deletion vectors, the sets of dead rows of data files."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pyroaring import BitMap64

from tidelog.log.errors import CorruptLogError, DataFileMissingError
from tidelog.log.format import deletion_vector, paths
from tidelog.log.format.actions import DeletionVectorDescriptor
from tidelog.log.format.deletion_vector import StoredBitmap
from tidelog.log.storage import Store
from tidelog.log.system import System

# Other engines' clean-up skips folders whose names begin with an underscore. Outside such a folder, one engine was seen
# to delete live vectors.
VECTOR_FOLDER = "_dv"


def read_dead_rows(store: Store, descriptor: DeletionVectorDescriptor) -> BitMap64:
    """The row positions in a deletion vector. Verifies its checksum and its cardinality."""
    dead = deletion_vector.decode_bitmap(read_bitmap(store, deletion_vector.location(descriptor), {}))
    if len(dead) != descriptor.cardinality:
        raise CorruptLogError(
            f"a deletion vector of {store.url} holds {len(dead)} rows, but the log says {descriptor.cardinality}",
            advice="restore the file from a backup",
            path=store.url,
        )
    return dead


def read_bitmap(store: Store, where: StoredBitmap | bytes, known: dict[str, bytes]) -> bytes:
    """A vector's bitmap, with its checksum verified.

    `known` caches the content of the vector files by path, because one file can hold many vectors.
    """
    if isinstance(where, bytes):
        return where
    if where.path not in known:
        try:
            known[where.path] = store.read(paths.to_storage_path(where.path))
        except FileNotFoundError as error:
            raise DataFileMissingError(
                f"the deletion vector {where.path} of {store.url} is missing",
                advice="restore the file from a backup",
                path=store.url,
            ) from error
        except (OSError, ValueError) as error:
            raise CorruptLogError(
                f"the deletion vector {where.path} of {store.url} cannot be read: {error}",
                advice="restore the file from a backup",
                path=store.url,
            ) from error
    return deletion_vector.extract(known[where.path], where)


def write_dead_rows(store: Store, system: System, vectors: Sequence[BitMap64]) -> list[DeletionVectorDescriptor]:
    """Write non-empty vectors as one file, durable on return. Returns a descriptor for each, in the same order."""
    if not vectors:
        return []
    bitmaps = [deletion_vector.encode_bitmap(vector) for vector in vectors]
    content, offsets = deletion_vector.pack(bitmaps)
    file_id = uuid.UUID(system.uuid())
    with store.create(f"{VECTOR_FOLDER}/{deletion_vector.file_name(file_id)}") as file:
        file.write(content)
    return [
        DeletionVectorDescriptor(
            storage_type="u",
            path_or_inline_dv=deletion_vector.relative_name(VECTOR_FOLDER, file_id),
            offset=offset,
            size_in_bytes=len(bitmap),
            cardinality=len(vector),
        )
        for vector, bitmap, offset in zip(vectors, bitmaps, offsets, strict=True)
    ]
