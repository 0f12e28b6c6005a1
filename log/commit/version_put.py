"""Put one version, and find out what became of it.

The answer to a put can get lost, and the put itself can land much later than its error. So nothing is reported about
such a version before something else is known to be stored under its name: after that, the lost put can never land.

1. The same content is put again. That is safe, because only one put of a version succeeds.
2. If that gets no answer either, an empty commit is put (the content may be what is too large to get through). Once
   that is stored the lost put has failed, and the transaction goes on at the next version.
3. Whenever the version exists, its transaction id says whose it is.

If the store answers none of these, the state of the commit is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.log.errors import CommitStateUnknownError, ConfigurationError, CorruptLogError, TidelogError
from tidelog.log.format import commit_info, filenames
from tidelog.log.state.commits import read_info
from tidelog.log.storage import NotDurableError, NotStoredError, Store
from tidelog.log.storage.store import side_by_side
from tidelog.log.system import System

# How often the content is put, and after that the empty commit. Reads of an object store are retried for seconds within
# each round, so together they outlast the restart of a node.
MAX_PUTS = 4
MAX_SETTLEMENTS = 3
# How often the version before is looked for after a put.
MAX_LOOKS = 3
PUT_BACKOFF_S = 0.005


class VersionPut:
    """One version on its way into the log.

    Args:
        store: The table's store.
        system: The clock and randomness.
        version: The version.
        txn_id: The id in the commitInfo of what is put.
        has_previous: Whether the version before is still in the log, and the same. Raises the errors of a store.
    """

    def __init__(
        self, store: Store, system: System, version: int, txn_id: str, has_previous: Callable[[], bool]
    ) -> None:
        self._store = store
        self._system = system
        self._version = version
        self._txn_id = txn_id
        self._has_previous = has_previous
        self._path = filenames.commit_path(version)
        self._unanswered: Exception | None = None
        self._may_have_landed = False
        self._rounds = 0

    def put(
        self,
        content: bytes,
        empty: Callable[[], bytes] | None = None,
        afterwards: Callable[[], None] = lambda: None,
    ) -> bool:
        """Put the version. True once it is durable; False once it is proven that it never will be.

        Afterwards the version before must still exist, unless the first put found the version taken. A clean-up deletes
        commits oldest first. A writer that slept through it can put a version where one was deleted, below a
        checkpoint, where no reader looks; or the deleted one was its own. Looking before the put would prove nothing.
        It must be the same version as before: another writer that slept can have put that one anew.

        Args:
            content: The commit.
            empty: Makes a commit without actions, to settle a put without an answer. None if this version needs some.
            afterwards: What follows the put if `content` is stored, and raises no error of the store. It can run beside
                the look at the version before, so its work must do no harm if that is gone.

        Raises:
            ConfigurationError, StoreUnavailableError: It is proven that nothing was committed.
            CommitStateUnknownError: The commit may be durable, or may still become so.
            CorruptLogError: The version exists, is not ours, and is damaged.
        """
        decided = None
        while decided is None and self._rounds < MAX_PUTS:
            decided = self._try(content, stored=True)
        while decided is None and empty is not None and self._rounds < MAX_PUTS + MAX_SETTLEMENTS:
            decided = self._try(empty(), stored=False)
        if decided is None:
            raise self._unknown(
                f"the store did not say what it holds ({_text(self._unanswered)})"
            ) from self._unanswered
        if decided:
            side_by_side(self._store, self._require_predecessor, afterwards)
        elif self._may_have_landed:
            self._require_predecessor()
        return decided

    def _require_predecessor(self) -> None:
        """Raise CommitStateUnknownError if the version before is gone, or the store does not answer."""
        failure: Exception | None = None
        for number in range(MAX_LOOKS if self._version else 0):
            if number:
                self._wait(number)
            try:
                found = self._has_previous()
            except (OSError, TidelogError) as error:
                failure = error
                continue
            if found:
                return
            raise self._unknown(f"version {self._version - 1} was cleaned up, so readers may not look for this one")
        if failure is not None:
            raise self._unknown(f"version {self._version - 1} could not be looked up ({_text(failure)})") from failure

    def _try(self, content: bytes, *, stored: bool) -> bool | None:
        """Put `content`. Returns `stored` if that worked, else whether the version is the transaction's own.

        None if there is no such version, or no answer.
        """
        if self._rounds:
            self._wait(self._rounds)
        self._rounds += 1
        try:
            self._store.put_if_absent(self._path, content)
        except NotDurableError as error:
            raise self._unknown(_text(error)) from error
        except (ConfigurationError, NotStoredError):
            if self._unanswered is None:
                raise  # this put stored nothing, and there was none before it
        except FileExistsError as error:
            # It may be ours: a proxy may repeat a request on its own if a connection breaks.
            self._unanswered = self._unanswered or error
        except (OSError, TidelogError) as error:
            self._unanswered = self._unanswered or error
            self._may_have_landed = True
        else:
            return stored
        return self._is_ours()

    def _is_ours(self) -> bool | None:
        """Whether the stored version is this transaction; None if there is none, or no answer."""
        try:
            info = read_info(self._store, self._version)
        except FileNotFoundError:
            return None
        except CorruptLogError:
            raise  # it is damaged and so not ours: a put stores all of the content or nothing
        except (OSError, TidelogError):
            # No answer. Go on with the empty commit, which settles the version if the store takes it.
            self._rounds = max(self._rounds, MAX_PUTS)
            return None
        if commit_info.txn_id(info) != self._txn_id:
            return False
        # The put that got no answer may not have made it durable.
        require_durable(self._store, self._version, self._txn_id)
        return True

    def _wait(self, number: int) -> None:
        self._system.sleep_s(self._system.uniform(0, PUT_BACKOFF_S * 2**number))

    def _unknown(self, why: str) -> CommitStateUnknownError:
        return _unknown(self._store, self._version, self._txn_id, why)


def require_durable(store: Store, version: int, txn_id: str) -> None:
    """Make sure that a version which is in the log, and all before it, survive a crash of the machine.

    Their content was synced before it got its name, so what may be missing on the disk are names. Raises
    CommitStateUnknownError if they cannot be synced.
    """
    try:
        store.sync([filenames.commit_path(version)])
    except (OSError, TidelogError) as error:
        raise CommitStateUnknownError(
            f"version {version} of {store.url} is in the log, but may not survive a crash of the machine: "
            f"{_text(error)}",
            advice="repair the disk, then look whether the version is still there, or repeat what has an idempotency "
            "key",
            path=store.url,
            version=version,
            txn_id=txn_id,
        ) from error


def _text(error: Exception | None) -> str:
    """What happened, without the advice of an error that knows nothing of commits."""
    return error.message if isinstance(error, TidelogError) else str(error)


def _unknown(store: Store, version: int, txn_id: str, why: str) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        f"version {version} of {store.url} may or may not have been committed: {why}",
        advice="once the store answers, look for the transaction id (txnId) in that version's commitInfo",
        path=store.url,
        version=version,
        txn_id=txn_id,
    )
