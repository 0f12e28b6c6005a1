"""The promises of every store (tidelog.log.storage.store), as tests that each store's test class inherits."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from tidelog.log.storage import Store, object_store


class StoreContract:
    """Subclasses define the fixture `store`, an empty store."""

    races = 10

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError

    # --- reading ---

    def test_content_that_was_put_can_be_read(self, store: Store) -> None:
        store.put_if_absent("a/b/c.bin", b"\x00\xffx")
        assert store.read("a/b/c.bin") == b"\x00\xffx"
        assert bytes(store.open_input("a/b/c.bin").read()) == b"\x00\xffx"

    def test_an_empty_file_is_a_file(self, store: Store) -> None:
        store.put_if_absent("empty", b"")
        assert store.read("empty") == b""
        assert [status.size_bytes for status in store.list("")] == [0]

    @pytest.mark.parametrize("path", ["missing", "a/missing", "not/there/at/all"])
    def test_a_missing_file_is_not_found(self, store: Store, path: str) -> None:
        store.put_if_absent("a/b", b"x")
        for reading in (store.read, store.open_input, store.modified_ms, lambda name: store.read_start(name, 9)):
            with pytest.raises(FileNotFoundError):
                reading(path)

    def test_a_file_is_not_a_folder(self, store: Store) -> None:
        store.put_if_absent("a", b"x")
        for reading in (store.read, store.open_input, store.modified_ms):
            with pytest.raises(FileNotFoundError):
                reading("a/b")
        store.delete("a/b")
        assert store.list("a") == []

    def test_names_may_contain_any_character(self, store: Store) -> None:
        names = sorted(["a b", "ü%20", "c=US%2FEast", "x#y?z", "x?y#z", "'\"", "-", "+&=", "{0}", "a:b", "日本 "])
        for name in names:
            store.put_if_absent(f"folder/{name}", name.encode())
            with pytest.raises(FileExistsError):
                store.put_if_absent(f"folder/{name}", b"second")
        assert [status.name for status in store.list("folder")] == names
        for name in names:
            assert store.read(f"folder/{name}") == name.encode()
            assert store.modified_ms(f"folder/{name}") > 0
            assert bytes(store.open_input(f"folder/{name}").read()) == name.encode()
            store.delete(f"folder/{name}")
        assert store.list("folder") == []

    def test_recent_names_are_all_or_those_from_a_name_on(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(object_store, "_PAGE", 3)
        assert store.recent_names("folder", lambda: "b") == ([], "")
        for name in ("a.json", "b.json", "c.json", "_d", "sub/e"):
            store.put_if_absent(f"folder/{name}", b"")
        for since in ("b", "b.json", "bb", "z", ""):
            names, start = store.recent_names("folder", lambda: since)  # noqa: B023 - called at once
            assert start in ("", since)
            assert sorted(names) == [name for name in ("_d", "a.json", "b.json", "c.json") if name >= start]
        assert [*store.recent_names("folder/sub", lambda: "b")[0]] == ["e"]

    def test_modification_times_agree_with_the_listing(self, store: Store) -> None:
        store.put_if_absent("a", b"1")
        (status,) = store.list("")
        assert store.modified_ms("a") == status.modified_ms
        assert status.modified_ms > 1_600_000_000_000, "milliseconds since the epoch"

    def test_the_modification_times_of_some_names_agree_with_the_listing(self, store: Store) -> None:
        names = [f"{number}.{ending}" for number in range(1, 6) for ending in ("crc", "json")]
        for name in [*names, "3.folder/4.json"]:
            store.put_if_absent(f"log/{name}", b"1")
        times = {status.name: status.modified_ms for status in store.list("log")}
        for wanted in ([], names[3:4], names[1::2], names[2:7], ["0", *names[1:6:2], "3.folder", "4", "9"]):
            assert store.modified_times_of("log", wanted) == {name: times[name] for name in wanted if name in times}
        assert store.modified_times_of("none", names) == {}

    def test_an_unpickled_store_has_the_same_files(self, store: Store) -> None:
        store.put_if_absent("a", b"1")
        again = pickle.loads(pickle.dumps(store))
        assert again.read("a") == b"1"
        assert again.url == store.url

    def test_a_large_file_is_read_in_any_order(self, store: Store) -> None:
        content = bytes(range(256)) * 40_000
        with store.create("x/large") as file:
            file.write(content)
        assert store.read("x/large") == content
        opened = store.open_input("x/large")
        assert opened.size() == len(content)
        for start, length in (
            (len(content) - 8, 8),
            (0, 4),
            (5_000_000, 2_000_000),
            (7_000_000, 10),
            (9_999_999, 10**6),
        ):
            opened.seek(start)
            assert bytes(opened.read(length)) == content[start : start + length]

    @pytest.mark.parametrize("size", [0, 10, 3_000_000])
    def test_the_start_of_a_file_is_read_alone_or_with_more(self, store: Store, size: int) -> None:
        content = bytes(range(250)) * (size // 250) + b"x" * (size % 250)
        with store.create("start") as file:
            file.write(content)
        start = store.read_start("start", 2_000_000)
        assert content.startswith(start)
        assert len(start) >= min(size, 2_000_000)

    def test_an_absolute_path_refers_to_the_same_file(self, store: Store) -> None:
        store.put_if_absent("a/b", b"1")
        assert store.read(f"{store.url}/a/b") == b"1"
        assert bytes(store.open_input(f"{store.url}/a/b").read()) == b"1"

    # --- through another store at the same location ---

    def test_another_store_sees_changes_immediately(self, store: Store) -> None:
        other = pickle.loads(pickle.dumps(store))
        assert other.list("log") == []
        store.put_if_absent("log/1", b"1")
        assert other.read("log/1") == b"1"
        assert [status.name for status in other.list("log")] == ["1"]
        with pytest.raises(FileExistsError):
            other.put_if_absent("log/1", b"2")
        other.replace("log/pointer", b"1")
        assert store.read("log/pointer") == b"1"
        other.replace("log/pointer", b"longer")
        assert store.read("log/pointer") == b"longer"
        assert bytes(store.open_input("log/pointer").read()) == b"longer"
        assert [status.size_bytes for status in store.list("log")] == [1, 6]
        store.delete("log/1")
        assert [status.name for status in other.list("log")] == ["pointer"]
        for reading in (other.read, other.open_input, other.modified_ms):
            with pytest.raises(FileNotFoundError):
                reading("log/1")
        other.put_if_absent("log/1", b"again")
        assert store.read("log/1") == b"again"

    # --- put if absent ---

    def test_a_second_put_is_refused_and_changes_nothing(self, store: Store) -> None:
        store.put_if_absent("a", b"first")
        for durable in (True, False):
            with pytest.raises(FileExistsError):
                store.put_if_absent("a", b"second", durable=durable)
        assert store.read("a") == b"first"

    @pytest.mark.parametrize("durable", [True, False])
    def test_exactly_one_of_many_puts_wins_and_its_content_is_complete(self, store: Store, durable: bool) -> None:
        writers, rounds = 16, self.races
        contents = [bytes([number]) * 50_000 for number in range(writers)]
        barrier = Barrier(writers, timeout=30)  # if a writer fails, the rest must not wait for ever

        def put(number: int) -> list[bool]:
            won = []
            for turn in range(rounds):
                barrier.wait()
                try:
                    store.put_if_absent(f"log/{turn}", contents[number], durable=durable)
                    won.append(True)
                except FileExistsError:
                    won.append(False)
            return won

        with ThreadPoolExecutor(16) as pool:
            outcomes = list(pool.map(put, range(writers)))
        for turn in range(rounds):
            winners = [number for number in range(writers) if outcomes[number][turn]]
            assert len(winners) == 1
            assert store.read(f"log/{turn}") == contents[winners[0]]
        assert [status.name for status in store.list("log")] == [str(turn) for turn in range(rounds)]

    def test_a_reader_sees_a_file_whole_or_not_at_all(self, store: Store) -> None:
        content, done = b"x" * 2_000_000, Event()

        def watch() -> set[int]:
            seen = set()
            while True:
                last = done.is_set()
                for number in range(20):
                    try:
                        seen.add(len(store.read(f"w/{number}")))
                    except FileNotFoundError:
                        continue
                seen |= {status.size_bytes for status in store.list("w") if not status.name.startswith(".")}
                if last:
                    return seen

        with ThreadPoolExecutor(16) as pool:
            watcher = pool.submit(watch)
            try:
                for number in range(20):
                    store.put_if_absent(f"w/{number}", content, durable=False)
            finally:
                done.set()
            assert watcher.result() == {len(content)}

    # --- replace ---

    def test_replace_creates_and_overwrites(self, store: Store) -> None:
        store.replace("p/pointer", b"1")
        assert store.read("p/pointer") == b"1"
        store.replace("p/pointer", b"22")
        assert store.read("p/pointer") == b"22"
        assert [(status.name, status.size_bytes) for status in store.list("p")] == [("pointer", 2)]

    def test_a_reader_during_a_replace_sees_the_old_or_the_new_content(self, store: Store) -> None:
        contents = {b"a" * 300_000, b"b" * 300_000}
        store.replace("pointer", b"a" * 300_000)
        done = Event()

        def watch() -> set[bytes]:
            seen = {store.read("pointer")}
            while not done.is_set():
                seen.add(store.read("pointer"))
            return seen

        with ThreadPoolExecutor(16) as pool:
            watchers = [pool.submit(watch) for _ in range(2)]
            try:
                for turn in range(20):
                    store.replace("pointer", (b"b" if turn % 2 else b"a") * 300_000)
            finally:
                done.set()
            assert all(watcher.result() <= contents for watcher in watchers)

    # --- list ---

    def test_a_listing_is_sorted_by_name_and_has_only_files(self, store: Store) -> None:
        names = ["b", "a", "B", "10", "9", "_x", "é"]
        for name in names:
            store.put_if_absent(f"f/{name}", name.encode())
        store.put_if_absent("f/below/deeper", b"")
        store.put_if_absent("f2/other", b"")
        found = store.list("f")
        assert [status.name for status in found] == sorted(names)
        assert [status.size_bytes for status in found] == [len(name.encode()) for name in sorted(names)]

    def test_the_folders_of_a_folder_are_sorted_and_not_its_files(self, store: Store) -> None:
        for path in ("a/f", "b/c/d", "b/a/x", "b/_log/y", "b/.hidden/z", "b/file"):
            store.put_if_absent(path, b"x")
        assert list(store.folders()) == ["a", "b"]
        assert list(store.folders("b")) == [".hidden", "_log", "a", "c"]
        assert list(store.folders("b/c")) == list(store.folders("b/file")) == list(store.folders("missing")) == []
        assert "_log" in store.folders("b", until="_log")
        assert list(store.folders("b", until="missing")) == [".hidden", "_log", "a", "c"]

    @pytest.mark.parametrize("folder", ["", "none", "none/at/all"])
    def test_a_missing_folder_is_empty(self, store: Store, folder: str) -> None:
        assert store.list(folder) == []

    def test_a_written_file_is_listed_immediately(self, store: Store) -> None:
        for number in range(30):
            store.put_if_absent(f"log/{number:03}", b"", durable=False)
            assert [status.name for status in store.list("log")][-1] == f"{number:03}"

    # --- walk ---

    def test_a_walk_finds_every_file(self, store: Store) -> None:
        assert list(store.walk()) == []
        paths = ["top", "a/b/c", "a/b/d", "_delta_log/0.json", "_delta_log/_sidecars/x", ".hidden/y", "ü b/%20#?"]
        for path in paths:
            store.put_if_absent(path, path.encode())
        found = dict(store.walk())
        assert sorted(found) == sorted(paths)
        for path, status in found.items():
            assert (status.name, status.size_bytes) == (path.rpartition("/")[2], len(path.encode()))
            assert status.modified_ms == store.modified_ms(path)

    def test_a_walk_of_a_folder_returns_paths_from_the_root(self, store: Store) -> None:
        for path in ("data/a/one", "data/a/b=1/two", "data/ab/three", "four"):
            store.put_if_absent(path, b"12")
        found = dict(store.walk("data/a"))
        assert sorted(found) == ["data/a/b=1/two", "data/a/one"]
        assert {status.size_bytes for status in found.values()} == {2}
        assert list(store.walk("data/none")) == []

    def test_sync_accepts_existing_files(self, store: Store) -> None:
        store.put_if_absent("data/a/b c%20=1/one", b"1", durable=False)
        store.sync(["data/a/b c%20=1/one"])
        store.sync([])
        assert store.read("data/a/b c%20=1/one") == b"1"

    def test_files_can_be_deleted_and_created_during_a_walk(self, store: Store) -> None:
        for number in range(50):
            store.put_if_absent(f"{number % 7}/{number}", b"")
        seen = []
        for path, _ in store.walk():
            seen.append(path)
            store.delete(path)
            store.put_if_absent(f"later/{path}", b"")
        assert {f"{number % 7}/{number}" for number in range(50)} <= set(seen)
        assert len(seen) == len(set(seen))

    # --- create ---

    def test_a_created_file_exists_after_the_block(self, store: Store) -> None:
        with store.create("x/data.parquet") as file:
            file.write(b"12")
            file.write(b"3")
            assert file.tell() == 3
        assert store.read("x/data.parquet") == b"123"

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    def test_a_created_file_is_removed_if_the_block_raises(self, store: Store, error: type[BaseException]) -> None:
        def fail() -> None:
            with store.create("x/data.parquet") as file:
                file.write(b"123")
                raise error

        with pytest.raises(error):
            fail()
        assert store.list("x") == []
        with pytest.raises(FileNotFoundError):
            store.read("x/data.parquet")

    def test_a_name_can_be_created_only_once(self, store: Store) -> None:
        store.put_if_absent("x/data", b"first")
        with pytest.raises(FileExistsError), store.create("x/data") as file:
            file.write(b"second")
        assert store.read("x/data") == b"first"

    # --- delete ---

    def test_a_deleted_file_is_gone_and_can_be_deleted_again(self, store: Store) -> None:
        store.put_if_absent("a/b", b"1")
        for _ in range(2):
            store.delete("a/b")
            assert store.list("a") == []
        store.delete("never/was")
        store.put_if_absent("a/b", b"2")
        assert store.read("a/b") == b"2"
