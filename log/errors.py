"""Every error that tidelog raises on purpose, grouped by what to do next.

    TidelogError
    |-- RetryableError                    make the same call again later
    |   |-- StoreUnavailableError         the store did not answer
    |   |-- CommitContentionError         other writers won every attempt to commit
    |   `-- WorkerLostError               a process that rewrote files ended before it was done
    |-- ConflictError                     run the operation again on the newest version of the table
    |   |-- ConcurrentAppendException
    |   |-- ConcurrentDeleteReadException
    |   |-- ConcurrentDeleteDeleteException
    |   |-- MetadataChangedException
    |   |-- ConcurrentTransactionException
    |   |-- ProtocolChangedException
    |   `-- TransactionExpiredError       a vacuum passed the version that the transaction is based on
    |-- ConfigurationError                change the call, an option or the environment
    |   |-- TableNotFoundError
    |   |-- TableExistsError
    |   |-- PathNotWritableError
    |   |-- StoreAccessError              the store denies access: bucket, region, credentials or permissions
    |   |-- StoreNotSupportedError        the store has no put-if-absent, or tidelog does not know it
    |   |-- OutsideFileError              a table names a file outside its folder, and the environment refuses that
    |   |-- AppendOnlyError               the table forbids removing and changing rows
    |   |-- UnsupportedFeatureError       the table's protocol requires a feature that tidelog lacks
    |   |-- PrerequisiteError             Java or Spark is missing or too old
    |   |-- NotInStreamError              a Sink was called outside a streaming query
    |   |-- CheckpointResetError          the stream's checkpoint or table is another one
    |   `-- ConsumerInUseError            another owner holds the consumer's name
    |-- PredicateError                    change the predicate
    |-- SchemaMismatchError               change the data or the table's schema
    |   |-- ConstraintViolationError      correct the rows: they break a rule of the table
    |   |-- NullValueError                fill the column, which cannot be null
    |   `-- SchemaChangedError            load the table again, and restart the query
    |-- FencedError                       stop this process: another one has taken over
    |   `-- LeaseLostError                another daemon looks after the table
    |-- DataError                         look at the stored data
    |   |-- CorruptLogError               the log or another file of the table is damaged
    |   |   `-- DataFileMissingError      a data file that the log names does not exist
    |   |-- DataFileDamagedError          a data file is truncated or damaged, and the log is not
    |   |-- DuplicateKeyError             several rows share a key that must be unique
    |   |-- WriteVerificationError        the files written do not match the rows counted; nothing was committed
    |   |-- CompactionVerificationError   a rewrite lost or changed rows; it is not committed
    |   |-- CompactionGrowthError         rewritten files would be much larger; nothing was committed
    |   |-- HistoryExpiredError           the requested versions are outside the retained history
    |   |-- NotAppendOnlyError            an append-only reader met a commit that changed rows
    |   `-- TableReplacedError            the path now holds a different table
    `-- CommitStateUnknownError           look up the transaction id before you try again

`TidelogError` says what every error carries, and how its text is made.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tidelog.log.presentable import printable, without_credentials


class TidelogError(Exception):
    """The base class of all tidelog errors. They can be pickled.

    Attributes:
        code: The stable code that the text of the error starts with.
        message: What is wrong.
        advice: What to do about it; empty if there is nothing to say.
        fields: Further facts by name, such as `path` or `version`. Each one is an attribute of the error as well. The
            text shows those that are text, numbers, flags, or lists of these, and leaves out empty ones.
    """

    code: ClassVar[str] = "TIDELOG"

    def __init__(self, message: str, *, advice: str = "", **fields: Any) -> None:
        self.message = without_credentials(message)
        super().__init__(self.message)
        self.advice = without_credentials(advice)
        self.fields = {
            name: without_credentials(field) if isinstance(field, str) else field for name, field in fields.items()
        }
        for name, field in self.fields.items():
            setattr(self, name, field)

    def __str__(self) -> str:
        text = f"{self.code}: {self.message}"
        if self.advice:
            text += f"; {self.advice}"
        shown = [f"{name}={value}" for name, field in self.fields.items() if (value := _shown(field))]
        if shown:
            text += f" [{', '.join(shown)}]"
        return printable(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.advice, self.fields)


def _shown(value: object) -> str:
    """A field as text; empty for one that is empty or that is not made for people, such as a syntax tree."""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list | tuple) and value and all(isinstance(item, str | int | float) for item in value):
        return f"[{', '.join(map(str, value))}]"
    return ""


def _rebuild(cls: type[TidelogError], message: str, advice: str, fields: dict[str, Any]) -> TidelogError:
    return cls(message, advice=advice, **fields)


class RetryableError(TidelogError):
    """A temporary failure: make the same call again later.

    Nothing was committed. If a commit may have happened, or may still happen, the error is a CommitStateUnknownError.
    One exception: `Table.drop` can fail after its commit, and says so. The same call then deletes the rest.
    """

    code = "TIDELOG_RETRYABLE"


class StoreUnavailableError(RetryableError):
    """The store did not answer within the bounded number of retries. Try again once it is reachable."""

    code = "TIDELOG_STORE_UNAVAILABLE"
    path: str


class CommitContentionError(RetryableError):
    """Other writers won each of the `attempts` to commit. Try again, or let fewer writers commit at once."""

    code = "TIDELOG_COMMIT_CONTENTION"
    path: str
    attempts: int
    head_version: int


class WorkerLostError(RetryableError):
    """A process that rewrote files ended before it was done, such as one without enough memory."""

    code = "TIDELOG_WORKER_LOST"


class ConflictError(TidelogError):
    """Another commit came first, and rebasing over it could give a wrong result. Run the operation again.

    Attributes:
        path: The table.
        base_version: The version that the transaction was staged on.
        winning_version: The version that the other commit made.
        policy: The table's conflict policy.
        earlier: The operation class of the winner.
        later: The operation class of the transaction that lost.
        scope: Where the two overlap, in words. None if the conflict is not about rows.
        evidence: Why they conflict, with the files or the predicate that decided.
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
    """The winner added rows that this transaction would have read. Run the operation again."""

    code = "TIDELOG_CONCURRENT_APPEND"


class ConcurrentDeleteReadException(ConflictError):
    """The winner removed or changed rows that this transaction read. Run the operation again."""

    code = "TIDELOG_CONCURRENT_DELETE_READ"


class ConcurrentDeleteDeleteException(ConflictError):
    """The winner removed or changed rows that this transaction removes or changes. Run the operation again."""

    code = "TIDELOG_CONCURRENT_DELETE_DELETE"


class MetadataChangedException(ConflictError):
    """The winner changed the schema, the partitioning or the properties. Run the operation again."""

    code = "TIDELOG_METADATA_CHANGED"


class ConcurrentTransactionException(ConflictError):
    """The winner wrote this stream's own application id. Make sure that only one copy of the stream runs."""

    code = "TIDELOG_CONCURRENT_TRANSACTION"
    app_id: str


class ProtocolChangedException(ConflictError):
    """The winner changed the table's protocol. Run the operation again."""

    code = "TIDELOG_PROTOCOL_CHANGED"


class TransactionExpiredError(ConflictError):
    """A vacuum may have deleted its files. Run it again; if that comes back, raise `tidelog.maxTransactionTime`."""

    code = "TIDELOG_TRANSACTION_EXPIRED"


class ConfigurationError(TidelogError):
    """The call, an option or the environment is wrong. Change it: the same call will fail again."""

    code = "TIDELOG_CONFIGURATION"


class TableNotFoundError(ConfigurationError):
    """There is no table at the path. Check the path, or create the table."""

    code = "TIDELOG_TABLE_NOT_FOUND"
    path: str


class TableExistsError(ConfigurationError):
    """There is already a table at the path. Open it, or choose another path."""

    code = "TIDELOG_TABLE_EXISTS"
    path: str


class PathNotWritableError(ConfigurationError):
    """The operating system or the store refuses to write below the path. Fix the permissions."""

    code = "TIDELOG_PATH_NOT_WRITABLE"
    path: str


class StoreAccessError(ConfigurationError):
    """The store denied access. Check the bucket, its region, the credentials and their permissions."""

    code = "TIDELOG_STORE_ACCESS"
    path: str


class StoreNotSupportedError(ConfigurationError):
    """The store cannot create a file only if it is absent, which every commit depends on. Use another store."""

    code = "TIDELOG_STORE_NOT_SUPPORTED"
    path: str


class OutsideFileError(ConfigurationError):
    """The table names a file outside its folder. Unset `TIDELOG_OUTSIDE_FILES=refuse` if you trust its writers."""

    code = "TIDELOG_OUTSIDE_FILE"
    path: str
    file: str


class AppendOnlyError(ConfigurationError):
    """The table forbids removing and changing rows. Unset `delta.appendOnly` if that is not intended."""

    code = "TIDELOG_APPEND_ONLY"
    path: str


class UnsupportedFeatureError(ConfigurationError):
    """The table's protocol requires `features` that tidelog lacks. Use an engine that has them."""

    code = "TIDELOG_UNSUPPORTED_FEATURE"
    path: str
    features: str


class PrerequisiteError(ConfigurationError, ImportError):
    """Java, Spark, another package or the Python of Spark's workers is missing or too old. Install what it names."""

    code = "TIDELOG_PREREQUISITE"


def installing(extra: str) -> str:
    """Advice to install one of tidelog's extras. It is not on PyPI, so pip needs a copy of the repository."""
    return f"run in a copy of tidelog's repository: pip install '.[{extra}]'"


class NotInStreamError(ConfigurationError):
    """A Sink was called, but no streaming query was found. Pass the Sink to `foreachBatch`."""

    code = "TIDELOG_NOT_IN_STREAM"


class CheckpointResetError(ConfigurationError):
    """The query's checkpoint and the table do not belong together.

    The sink's name belongs to another query, a batch number came back with other source offsets, or the query has run
    before but never wrote to this table under this name. Restore the newest checkpoint or the table, or correct the
    path or the name. With `on_reset="adopt"` the sink continues; first make sure that no row is lost or written twice.
    """

    code = "TIDELOG_CHECKPOINT_RESET"
    path: str
    sink: str


class ConsumerInUseError(ConfigurationError):
    """Another owner, which is alive, holds the name of the consumer. Stop it, or use another name.

    `tidelog consumers remove` frees the name at once. An owner that gives no sign of life loses it after `free_in_ms`.
    """

    code = "TIDELOG_CONSUMER_IN_USE"
    path: str
    consumer: str
    owner: str
    free_in_ms: int


class PredicateError(TidelogError):
    """The SQL text contains something that tidelog does not evaluate, named by `token`. Change the text."""

    code = "TIDELOG_PREDICATE"
    token: str


class SchemaMismatchError(TidelogError):
    """The data does not fit the table's schema. Change one of them. `column` is empty if the error is not about one."""

    code = "TIDELOG_SCHEMA_MISMATCH"
    column: str = ""


class ConstraintViolationError(SchemaMismatchError):
    """Rows break a constraint, an invariant or a generated column. `row` has values of the first; correct them."""

    code = "TIDELOG_CONSTRAINT_VIOLATION"
    path: str
    constraint: str
    expression: str
    row: str


class NullValueError(SchemaMismatchError):
    """Rows have no value for a `column`, or a field of structs, that cannot be null. Fill it, or drop these rows."""

    code = "TIDELOG_NULL_VALUE"


class SchemaChangedError(SchemaMismatchError):
    """The commit `version` gave the table other columns. Call `readStream` again, and restart with the checkpoint."""

    code = "TIDELOG_SCHEMA_CHANGED"
    path: str
    version: int


class FencedError(TidelogError):
    """Another process has taken over from this one. Stop this process; do not retry."""

    code = "TIDELOG_FENCED"


class LeaseLostError(FencedError):
    """The daemon's lease of the table was taken over, or not renewed in time. Nothing was committed after that."""

    code = "TIDELOG_LEASE_LOST"
    path: str


class DataError(TidelogError):
    """The stored data is damaged, incomplete or not what was asked for. A retry does not help."""

    code = "TIDELOG_DATA"


class CorruptLogError(DataError):
    """A file of the log or of the table is damaged or missing. Restore it from a copy."""

    code = "TIDELOG_CORRUPT_LOG"
    path: str


class DataFileMissingError(CorruptLogError):
    """A data file that the log names does not exist. Read a newer version if a vacuum removed it, or restore it."""

    code = "TIDELOG_DATA_FILE_MISSING"


class DataFileDamagedError(DataError):
    """A data file is truncated or damaged, or does not hold the table's types; the log is intact. Restore `file`."""

    code = "TIDELOG_DATA_FILE_DAMAGED"
    path: str
    file: str


class DuplicateKeyError(DataError):
    """Several rows share a key where an operation needs one row per key. Remove the duplicates."""

    code = "TIDELOG_DUPLICATE_KEY"
    path: str
    key: str


class WriteVerificationError(DataError):
    """The files that were written do not hold the rows that went into them. Nothing was committed; write again."""

    code = "TIDELOG_WRITE_VERIFICATION"
    path: str


class CompactionVerificationError(DataError):
    """What a compaction wrote is wrong, and is not committed. `evidence` is a record, if one could be written."""

    code = "TIDELOG_COMPACTION_VERIFICATION"
    path: str
    evidence: str


class CompactionGrowthError(DataError):
    """The files of every group of a compaction would be more than a tenth larger than now. Nothing was committed."""

    code = "TIDELOG_COMPACTION_GROWTH"
    path: str


class HistoryExpiredError(DataError):
    """The requested version or time is outside the retained history.

    Choose one from `earliest_version` to `latest_version`. A stream that lags behind further needs a new checkpoint.
    The error of a registered consumer also has the `horizon` and the `floor` that clean-ups have committed.
    """

    code = "TIDELOG_HISTORY_RANGE"
    path: str
    earliest_version: int
    latest_version: int


class NotAppendOnlyError(DataError):
    """A reader of appended rows met a commit that removed or changed rows: `version`. Read all changes instead."""

    code = "TIDELOG_NOT_APPEND_ONLY"
    path: str
    version: int


class TableReplacedError(DataError):
    """Another table is at the path now. Open it again; a stream that followed the old one needs a new checkpoint."""

    code = "TIDELOG_TABLE_REPLACED"
    path: str
    expected_id: str
    found_id: str


class CommitStateUnknownError(TidelogError):
    """The commit may or may not be durable, or may still land.

    The answer to a write was lost and the version could not be settled; or the fsync of the log folder failed; or a
    clean-up deleted the version before, so that readers may not find this one. Once the store answers, look for
    `txn_id` in the commitInfo of `version`. Retry only if it is not there, or with an idempotency key.
    """

    code = "TIDELOG_COMMIT_STATE_UNKNOWN"
    path: str
    version: int
    txn_id: str
