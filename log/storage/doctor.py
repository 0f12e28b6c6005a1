"""Test whether a store keeps the promises that a table relies on, and report the findings in words and numbers.

All tests write below `_tidelog/doctor-<uuid>/`, which is removed afterwards; the table itself is never touched. A store
that passes has kept its promises in every try, which is evidence but not proof; a failure is proof.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from threading import Barrier, BrokenBarrierError, Event
from typing import Any

from tidelog.log.errors import ConfigurationError, StoreUnavailableError, TidelogError
from tidelog.log.storage.local import LocalStore
from tidelog.log.storage.registry import open_store
from tidelog.log.storage.store import Store
from tidelog.log.system import REAL_SYSTEM, System

MAX_WRITERS, MAX_ROUNDS = 64, 1000
# Commits have a few kB. A large file takes long enough to write that readers can see it half-written, if the store
# allows that.
_COMMIT_BYTES, _LARGE_BYTES, _LARGE_FILES = 20_000, 2_000_000, 4
# Longer than all retries of a store together: a writer that hangs longer is an error, not a slow store.
_BARRIER_TIMEOUT_S = 60.0
# Object stores report times in whole seconds; NTP keeps machines well within this limit.
_MAX_SKEW_MS = 5000
_WHOLE_SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of testing one promise: whether it was kept, what happened, and the numbers (`_ms`: milliseconds)."""

    name: str
    ok: bool
    words: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings about the store at `path`."""

    path: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return all(finding.ok for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain values, for JSON."""
        return {"path": self.path, "ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}


def examine(
    path: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    writers: int = 8,
    rounds: int = 10,
    system: System = REAL_SYSTEM,
) -> Diagnosis:
    """Test the store at `path` with concurrent `writers`, each with its own connection, in several `rounds`.

    A broken promise or a refused request is a finding, not an error. Raises ConfigurationError for numbers out of range
    or an invalid path or options, StoreNotSupportedError for a kind of store that tidelog does not support.
    """
    if not 2 <= writers <= MAX_WRITERS or not 1 <= rounds <= MAX_ROUNDS:  # noqa: PLR2004 - a race needs two
        raise ConfigurationError(
            f"{writers} writers and {rounds} rounds are out of range",
            advice=f"use 2 to {MAX_WRITERS} writers and 1 to {MAX_ROUNDS} rounds",
        )
    stores = [open_store(path, storage_options) for _ in range(writers)]
    folder = f"_tidelog/doctor-{system.uuid()}"
    examination = _Examination(stores, folder, rounds, system)
    findings: list[Finding] = []
    with _nothing_left_behind(stores[0], folder):
        try:
            for check in examination.checks():
                findings.append(_found(check))
                if findings[-1].name in {"access", "put-if-absent"} and not findings[-1].ok:
                    break  # all further findings would follow from this one
        finally:
            left = examination.clean_up()
    return Diagnosis(stores[0].url, (*findings, *left))


def _found(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except (TidelogError, OSError, BrokenBarrierError) as error:
        name = check.__name__.replace("_", "-")
        return Finding(name, ok=False, words=f"this check failed: {str(error) or type(error).__name__}")


class _Examination:
    """The checks. Each relies on the promises checked before it."""

    def __init__(self, stores: list[Store], folder: str, rounds: int, system: System) -> None:
        self._stores = stores
        self._mine, self._other = stores[0], stores[1]
        self._folder = folder
        self._rounds = rounds
        self._system = system
        self._made: set[str] = set()
        self._took_ms: dict[str, list[float]] = defaultdict(list)

    def checks(self) -> list[Callable[[], Finding]]:
        return [
            self.access,
            self.put_if_absent,
            self.race,
            self.whole_files,
            self.read_after_write,
            self.list_after_write,
            self.list_after_delete,
            self.overwrite,
            self.clock,
            self.latency,
        ]

    def access(self) -> Finding:
        """List a folder. Opening a table does this first, and it fails for every reason that access can fail."""
        self._mine.list(self._folder)
        return Finding("access", ok=True, words=f"{self._mine.url} answers and can be listed")

    def put_if_absent(self) -> Finding:
        """Put the same name twice, one put after the other."""
        path = self._path("second-put")
        self._put(self._mine, path, b"first")
        try:
            self._put(self._other, path, b"second")
        except FileExistsError:
            kept = self._mine.read(path) == b"first"
            words = "a second put of the same name is refused" + ("" if kept else ", but it changed the content")
            return Finding("put-if-absent", ok=kept, words=words)
        words = (
            "a second put of the same name overwrote the first: writers would lose commits; do not keep a table here"
        )
        return Finding("put-if-absent", ok=False, words=words)

    def race(self) -> Finding:
        """All writers put the same names at the same time."""
        count = len(self._stores)
        barrier = Barrier(count, timeout=_BARRIER_TIMEOUT_S)
        contents = [bytes([number]) * _COMMIT_BYTES for number in range(count)]
        paths = [self._path(f"race/{turn:04}") for turn in range(self._rounds)]

        def write(number: int) -> list[str]:
            outcomes = []
            for path in paths:
                barrier.wait()
                outcomes.append(self._outcome(self._stores[number], path, contents[number]))
            return outcomes

        with ThreadPoolExecutor(count) as pool:
            outcomes = list(pool.map(write, range(count)))
        broken = 0
        for turn, path in enumerate(paths):
            won = [number for number in range(count) if outcomes[number][turn] == "won"]
            content = self._mine.read(path)
            broken += len(won) > 1 or content not in ([contents[number] for number in won] or contents)
        totals = Counter(outcome for each in outcomes for outcome in each)
        numbers = {"writers": count, "rounds": self._rounds, "broken": broken, "unanswered": totals["unanswered"]}
        words = f"{count} writers raced for one name, {self._rounds} times: "
        if broken:
            words += f"{broken} times several of them won, or the content is not the winner's"
        else:
            words += "exactly one won each time, and its content is complete"
        if totals["unanswered"]:
            words += f"; {totals['unanswered']} puts got no answer (a commit then checks whether it was written)"
        return Finding("race", ok=not broken, words=words, numbers=numbers)

    def whole_files(self) -> Finding:
        """Read and list large files while they are written."""
        paths = [self._path(f"whole/{number}") for number in range(_LARGE_FILES)]
        content, done = b"x" * _LARGE_BYTES, Event()

        def watch() -> set[int]:
            seen: set[int] = set()
            while not done.is_set():
                for path in paths:
                    with contextlib.suppress(FileNotFoundError):
                        seen.add(len(self._other.read(path)))
                listed = self._other.list(f"{self._folder}/whole")
                seen |= {status.size_bytes for status in listed if not status.name.startswith(".")}
            return seen

        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(watch)
            try:
                for path in paths:
                    self._mine.put_if_absent(path, content)
            finally:
                done.set()
            partial = watching.result() - {len(content)}
        words = (
            "readers saw half-written files: a commit could look damaged to them"
            if partial
            else "readers see a file whole or not at all"
        )
        return Finding("whole-files", ok=not partial, words=words)

    def read_after_write(self) -> Finding:
        """Put a file, then read it through another connection."""
        late = 0
        for turn in range(self._rounds):
            path, content = self._path(f"read/{turn:04}"), f"{turn}".encode()
            self._put(self._mine, path, content)
            try:
                late += self._timed("read", lambda path=path: self._other.read(path)) != content  # type: ignore[misc]
            except FileNotFoundError:
                late += 1
        return self._consistent("read-after-write", "a new file can be read", late)

    def list_after_write(self) -> Finding:
        """Put a file, then list it through another connection."""
        late = 0
        for turn in range(self._rounds):
            self._put(self._mine, self._path(f"list/{turn:04}"), b"")
            late += f"{turn:04}" not in self._names("list")
        return self._consistent("list-after-write", "a new file is listed", late)

    def list_after_delete(self) -> Finding:
        """Delete a file, then list and read it through another connection."""
        late = 0
        for turn in range(self._rounds):
            path = self._path(f"deleted/{turn:04}")
            self._put(self._mine, path, b"")
            self._mine.delete(path)
            gone = f"{turn:04}" not in self._names("deleted")
            try:
                self._other.read(path)
            except FileNotFoundError:
                late += not gone
            else:
                late += 1
        return self._consistent("list-after-delete", "a deleted file is gone", late)

    def overwrite(self) -> Finding:
        """Replace a pointer file, then read it through another connection."""
        late, path = 0, self._path("pointer")
        for turn in range(self._rounds):
            content = b"x" * turn + f"{turn}".encode()
            self._timed("replace", lambda content=content: self._mine.replace(path, content))  # type: ignore[misc]
            late += self._other.read(path) != content
        return self._consistent("overwrite", "a replaced file has its new content", late)

    def clock(self) -> Finding:
        """Compare the store's time of a new file with this machine's clock."""
        path = self._path("clock")
        before = self._system.now_ms()
        self._mine.put_if_absent(path, b"")
        after = self._system.now_ms()
        stored = self._mine.modified_ms(path)
        earliest, latest = stored, stored + (_WHOLE_SECOND_MS - 1 if stored % _WHOLE_SECOND_MS == 0 else 0)
        skew = earliest - after if earliest > after else min(0, latest - before)
        ok = abs(skew) <= _MAX_SKEW_MS
        words = f"the clocks of the store and this machine differ by {abs(skew) / 1000:g} s"
        if not ok:
            words += ": commit times come from the writers' clocks, so synchronise them with NTP"
        return Finding("clock", ok=ok, words=words, numbers={"skew_ms": skew})

    def latency(self) -> Finding:
        """Report how long the requests of the other checks took. Never fails: slow is not wrong."""
        numbers: dict[str, float] = {}
        words = []
        for request, took in sorted(self._took_ms.items()):
            numbers |= {f"{request}_p50_ms": round(median(took), 1), f"{request}_max_ms": round(max(took), 1)}
            words.append(f"{request} {median(took):.1f} ms (at most {max(took):.1f})")
        return Finding("latency", ok=True, words="median times: " + ", ".join(words), numbers=numbers)

    def clean_up(self) -> list[Finding]:
        """Delete all files that the checks created. Returns a finding only if that fails."""
        try:
            with ThreadPoolExecutor(len(self._stores)) as pool:
                list(pool.map(self._mine.delete, sorted(self._made)))
        except (TidelogError, OSError) as error:
            words = f"the test files below {self._folder} could not be deleted: {error}; delete them yourself"
            return [Finding("clean-up", ok=False, words=words)]
        return []

    # --- helpers ---

    def _path(self, name: str) -> str:
        path = f"{self._folder}/{name}"
        self._made.add(path)
        return path

    def _names(self, below: str) -> set[str]:
        folder = f"{self._folder}/{below}"
        return {status.name for status in self._timed("list", lambda: self._other.list(folder))}

    def _put(self, store: Store, path: str, content: bytes) -> None:
        self._timed("put", lambda: store.put_if_absent(path, content))

    def _outcome(self, store: Store, path: str, content: bytes) -> str:
        try:
            self._put(store, path, content)
        except FileExistsError:
            return "lost"
        except StoreUnavailableError:
            return "unanswered"
        return "won"

    def _timed(self, request: str, call: Callable[[], Any]) -> Any:
        began = self._system.monotonic_s()
        answer = call()
        self._took_ms[request].append((self._system.monotonic_s() - began) * 1000)
        return answer

    def _consistent(self, name: str, what: str, late: int) -> Finding:
        words = f"{what} immediately, through another connection, in all {self._rounds} tries"
        if late:
            words = f"{late} of {self._rounds} tries failed: {what} only later, so a cache or replica may be answering"
        return Finding(name, ok=not late, words=words, numbers={"tries": self._rounds, "late": late})


@contextmanager
def _nothing_left_behind(store: Store, folder: str) -> Iterator[None]:
    """Also remove the folders that the checks create in a local store, including the table's if it did not exist."""
    if not isinstance(store, LocalStore):
        yield
        return
    own = Path(store.url, folder)
    missing = [parent for parent in (own, *own.parents) if not parent.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            for below in own.iterdir():
                below.rmdir()
        with contextlib.suppress(OSError):  # another process may be using them by now
            for made in missing:
                made.rmdir()
