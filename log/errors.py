"""Every error that tidelog raises on purpose, grouped by what to do next.

    TidelogError
    |-- RetryableError                    again, later
    |   |-- StoreUnavailableError         the store did not answer, nothing was committed
    |   `-- CommitContentionError         other writers won every attempt
    |-- ConflictError                     decide again: run the operation anew on the table as it is now
    |   |-- ConcurrentAppendException
    |   |-- ConcurrentDeleteReadException
    |   |-- ConcurrentDeleteDeleteException
    |   |-- MetadataChangedException
    |   |-- ConcurrentTransactionException
    |   `-- ProtocolChangedException
    |-- ConfigurationError                change the call or the set-up
    |   |-- TableNotFoundError
    |   |-- TableExistsError
    |   |-- PathNotWritableError
    |   |-- StoreAccessError              the store refuses: bucket, region, credentials or their permissions
    |   |-- StoreNotSupportedError        no put-if-absent, or not a store that tidelog knows
    |   |-- AppendOnlyError               the table forbids removing and changing rows
    |   |-- UnsupportedFeatureError       the table's protocol asks for more than tidelog can do
    |   |-- PrerequisiteError             Java or Spark is missing or too old
    |   |-- NotInStreamError              a Sink was called outside a streaming query
    |   `-- CheckpointResetError          the stream's checkpoint was deleted, restored or shared
    |-- PredicateError                    change the predicate
    |-- SchemaMismatchError               change the data, or the table's schema
    |-- FencedError                       stop: another has taken over
    |-- DataError
    |   |-- CorruptLogError               the log or a file of the table is damaged
    |   |   `-- DataFileMissingError      a data file that the log names is not there
    |   |-- DuplicateKeyError             several rows have one key where only one can be meant
    |   |-- WriteVerificationError        the files of a write do not hold the rows that were counted
    |   |-- CompactionVerificationError   a rewrite did not give back the rows it read; nothing was committed
    |   |-- HistoryExpiredError           the versions asked for are gone
    |   |-- NotAppendOnlyError            an append-only reader met a commit that changed rows
    |   `-- TableReplacedError            another table lies at the path now
    `-- CommitStateUnknownError           look the transaction id up before you try again

A message begins with a stable code (streaming engines keep the text of an error and lose its type), says
what happened and what to do, and ends with its fields as `key=value`.
"""

from __future__ import annotations

from typing import Any, ClassVar


class TidelogError(Exception):
    """The root of the tree. `message`, `advice` and the class's own fields are attributes; all errors pickle."""

    code: ClassVar[str] = "TIDELOG"

    def __init__(self, message: str, *, advice: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        if self.advice:
            text += f"; {self.advice}"
        if self.fields:
            text += " [" + ", ".join(f"{name}={value}" for name, value in self.fields.items()) + "]"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.advice, self.fields)


def _rebuild(cls: type[TidelogError], message: str, advice: str, fields: dict[str, Any]) -> TidelogError:
    return cls(message, advice=advice, **fields)


class RetryableError(TidelogError):
    """The same call may succeed later; nothing was seen to be committed.

    A store may still carry out a request that it never answered: an insert that must not happen twice is given an
    idempotency key, with which a repeated call does nothing.
    """

    code = "TIDELOG_RETRYABLE"


class StoreUnavailableError(RetryableError):
    """The store failed to answer, within the bounded retries."""

    code = "TIDELOG_STORE_UNAVAILABLE"
    path: str


class CommitContentionError(RetryableError):
    """Other writers won every one of the bounded attempts to commit."""

    code = "TIDELOG_COMMIT_CONTENTION"
    path: str
    attempts: int
    head_version: int


class ConflictError(TidelogError):
    """A commit lost to another one and cannot be rebased over it: the operation would give another result now.

    `earlier` is the winner's operation class and `later` the loser's. `policy` is the one that the table had, and
    `scope` where the two met, in words; both are None where no policy was asked, as any would have refused.
    """

    code = "TIDELOG_CONFLICT"
    path: str
    base_version: int
    winning_version: int
    policy: str | None
    earlier: str
    later: str
    scope: str | None
    evidence: str


class ConcurrentAppendException(ConflictError):
    """The winner added files that this transaction's read would have seen."""

    code = "TIDELOG_CONCURRENT_APPEND"


class ConcurrentDeleteReadException(ConflictError):
    """The winner removed a file that this transaction read."""

    code = "TIDELOG_CONCURRENT_DELETE_READ"


class ConcurrentDeleteDeleteException(ConflictError):
    """The winner removed a file that this transaction removes, too."""

    code = "TIDELOG_CONCURRENT_DELETE_DELETE"


class MetadataChangedException(ConflictError):
    """The winner changed the schema, the partitioning or the properties."""

    code = "TIDELOG_METADATA_CHANGED"


class ConcurrentTransactionException(ConflictError):
    """The winner wrote this stream's own transaction id: two copies of one stream are running."""

    code = "TIDELOG_CONCURRENT_TRANSACTION"
    app_id: str


class ProtocolChangedException(ConflictError):
    """The winner changed the table's protocol."""

    code = "TIDELOG_PROTOCOL_CHANGED"


class ConfigurationError(TidelogError):
    """The call, an option or the set-up has to change."""

    code = "TIDELOG_CONFIGURATION"


class TableNotFoundError(ConfigurationError):
    """There is no table at the path."""

    code = "TIDELOG_TABLE_NOT_FOUND"
    path: str


class TableExistsError(ConfigurationError):
    """There is a table at the path already."""

    code = "TIDELOG_TABLE_EXISTS"
    path: str


class PathNotWritableError(ConfigurationError):
    """The operating system or the store refuses to write below the path."""

    code = "TIDELOG_PATH_NOT_WRITABLE"
    path: str


class StoreAccessError(ConfigurationError):
    """The store answered and refused: the bucket, its region, the credentials or their permissions do not fit."""

    code = "TIDELOG_STORE_ACCESS"
    path: str


class StoreNotSupportedError(ConfigurationError):
    """The store cannot create a file if and only if it is absent, which every commit rests on."""

    code = "TIDELOG_STORE_NOT_SUPPORTED"
    path: str


class AppendOnlyError(ConfigurationError):
    """The table forbids removing and changing rows (`delta.appendOnly`)."""

    code = "TIDELOG_APPEND_ONLY"
    path: str


class UnsupportedFeatureError(ConfigurationError):
    """The table's protocol demands features that tidelog does not have."""

    code = "TIDELOG_UNSUPPORTED_FEATURE"
    path: str
    features: str


class PrerequisiteError(ConfigurationError):
    """Something outside Python is missing or too old: Java, Spark, the interpreter of Spark's workers."""

    code = "TIDELOG_PREREQUISITE"


class NotInStreamError(ConfigurationError):
    """A Sink was called where no streaming query can be recognised."""

    code = "TIDELOG_NOT_IN_STREAM"


class CheckpointResetError(ConfigurationError):
    """The sink's name is bound to another query, or a batch number came back with other source offsets."""

    code = "TIDELOG_CHECKPOINT_RESET"
    path: str
    sink: str


class PredicateError(TidelogError):
    """The SQL text of a predicate holds something that tidelog does not evaluate."""

    code = "TIDELOG_PREDICATE"
    token: str


class SchemaMismatchError(TidelogError):
    """Data does not fit the table's schema. `column` is empty if the error is not about one column."""

    code = "TIDELOG_SCHEMA_MISMATCH"
    column: str = ""


class FencedError(TidelogError):
    """Another process has taken this one's place; it must stop."""

    code = "TIDELOG_FENCED"


class DataError(TidelogError):
    """What is stored does not hold what was asked for."""

    code = "TIDELOG_DATA"


class CorruptLogError(DataError):
    """A file of the log or of the table is damaged or missing."""

    code = "TIDELOG_CORRUPT_LOG"
    path: str


class DataFileMissingError(CorruptLogError):
    """A data file that the log names is not there: removed by a vacuum, or lost."""

    code = "TIDELOG_DATA_FILE_MISSING"


class DuplicateKeyError(DataError):
    """Several rows have one key at a time, where an operation by keys needs one."""

    code = "TIDELOG_DUPLICATE_KEY"
    path: str
    key: str


class WriteVerificationError(DataError):
    """The files that were written do not hold as many rows as went into them; nothing was committed."""

    code = "TIDELOG_WRITE_VERIFICATION"
    path: str


class CompactionVerificationError(DataError):
    """A compaction's output is not the rows of its input; the commit was refused."""

    code = "TIDELOG_COMPACTION_VERIFICATION"
    path: str


class HistoryExpiredError(DataError):
    """The version or time asked for lies outside the history that is kept."""

    code = "TIDELOG_HISTORY_RANGE"
    path: str
    earliest_version: int
    latest_version: int


class NotAppendOnlyError(DataError):
    """A reader of appended rows met a commit that removed or changed rows."""

    code = "TIDELOG_NOT_APPEND_ONLY"
    path: str
    version: int


class TableReplacedError(DataError):
    """The table at the path has another id than the one that this reader or stream began with."""

    code = "TIDELOG_TABLE_REPLACED"
    path: str
    expected_id: str
    found_id: str


class CommitStateUnknownError(TidelogError):
    """The write's answer was lost and looking it up failed: the commit may or may not be durable."""

    code = "TIDELOG_COMMIT_STATE_UNKNOWN"
    path: str
    version: int
    txn_id: str
