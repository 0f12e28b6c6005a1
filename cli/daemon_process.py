"""One daemon as a process: its settings, its log and its page, and what signals do to it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Thread

from tidelog.compaction_daemon import Daemon, StepReport, TableSource
from tidelog.compaction_daemon.observing.server import PageServer
from tidelog.compaction_daemon.settings.config import ListenAddress
from tidelog.compaction_daemon.settings.config_file import DaemonFile, read_config
from tidelog.compaction_daemon.settings.sources import require_store
from tidelog.log.errors import ConfigurationError, TidelogError
from tidelog.log.log_records import configure_logging, event
from tidelog.log.system import logger

_LOGGER = logger(__name__)

# A file can have thousands of tables; a line of the log that names more of them is of no use.
_SHOWN_CHANGES = 20


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """The options of the command line, which take precedence over a configuration file.

    Attributes:
        sources: Further places of tables.
        config: The configuration file; None for none.
        interval_s: The daemon's setting of that name; None, here and below, if it was not given.
        listen: Where to show the page.
        log_format: `text` or `json`.
        log_level: The least level of what is logged.
        default_level: The level if neither an option nor a file says another.
    """

    sources: tuple[TableSource, ...] = ()
    config: str | None = None
    interval_s: float | None = None
    listen: ListenAddress | None = None
    log_format: str | None = None
    log_level: str | None = None
    default_level: str = "info"

    def settings(self) -> DaemonFile:
        """The settings that hold now; reads the file. Raises ConfigurationError, also if there are no tables."""
        file = read_config(self.config) if self.config else DaemonFile()
        found = replace(
            file,
            sources=(*file.sources, *self.sources),
            config=file.config if self.interval_s is None else replace(file.config, interval_s=self.interval_s),
            listen=self.listen or file.listen,
            log_format=self.log_format or file.log_format,
            log_level=self.log_level or file.log_level or self.default_level,
        )
        if not found.sources:
            where = f"{self.config} has no [[tables]]" if self.config else "no tables are given"
            raise ConfigurationError(where, advice="give a PATH, or a --config FILE with [[tables]]")
        for source in found.sources:
            require_store(source)
        return found


def run_daemon(options: DaemonOptions, on_step: Callable[[StepReport], None] | None = None) -> None:
    """Run a daemon until SIGTERM or SIGINT: the first ends it after the step in hand, the second at once.

    On SIGHUP it reads its configuration file again. It logs to standard error.

    Raises:
        ConfigurationError: The configuration or the address of the page is wrong.
        RetryableError: The address of the page cannot be used now.
    """
    with _hangups() as requests:
        settings = options.settings()
        with logging_as(settings):
            _run(options, settings, requests, on_step)


def _run(
    options: DaemonOptions,
    settings: DaemonFile,
    requests: SimpleQueue[bool],
    on_step: Callable[[StepReport], None] | None,
) -> None:
    daemon = Daemon(settings.sources, config=settings.config, on_step=on_step)
    with _page(daemon, settings.listen), _reloading(daemon, settings, options.settings, requests):
        owner = daemon.status().owner
        text = "started as %s; SIGTERM or Ctrl-C stops it after the current step"
        _LOGGER.info(text, owner, extra=event("started", owner=owner))
        daemon.run()
    _LOGGER.info("stopped", extra=event("stopped", owner=owner))


@contextlib.contextmanager
def logging_as(settings: DaemonFile) -> Iterator[None]:
    """Within the block, log to standard error as the settings say."""
    restore = configure_logging(settings.log_format, settings.log_level or "info")
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def _page(daemon: Daemon, listen: ListenAddress | None) -> Iterator[None]:
    """Show the page at the address, if there is one."""
    if listen is None:
        yield
        return
    server = PageServer(daemon.status, daemon.open_table, host=listen.host, port=listen.port)
    server.start()
    _LOGGER.info("the page is at %s", server.address, extra=event("listening", address=server.address))
    if not server.is_local:
        _LOGGER.warning(
            "anyone who can reach %s can read the page; it has no password",
            server.address,
            extra=event("exposed", address=server.address),
        )
    try:
        yield
    finally:
        server.stop()


@contextlib.contextmanager
def _hangups() -> Iterator[SimpleQueue[bool]]:
    """Within the block, each SIGHUP puts True into a queue. It begins before anything is read, so none is missed."""
    requests: SimpleQueue[bool] = SimpleQueue()
    previous = signal.signal(signal.SIGHUP, lambda _number, _frame: requests.put(True))
    try:
        yield requests
    finally:
        signal.signal(signal.SIGHUP, previous)


@contextlib.contextmanager
def _reloading(
    daemon: Daemon, settings: DaemonFile, load: Callable[[], DaemonFile], requests: SimpleQueue[bool]
) -> Iterator[None]:
    """Within the block, each request loads the settings again and applies them."""
    thread = Thread(target=_Reloader(daemon, settings, load, requests).run, name="tidelog-reload", daemon=True)
    thread.start()
    try:
        yield
    finally:
        requests.put(False)
        thread.join()


class _Reloader:
    """Applies new settings in a thread of its own: a signal's handler must not wait for files or locks."""

    def __init__(
        self, daemon: Daemon, settings: DaemonFile, load: Callable[[], DaemonFile], requests: SimpleQueue[bool]
    ) -> None:
        self._daemon = daemon
        self._settings = settings
        self._load = load
        self._requests = requests

    def run(self) -> None:
        """Reload whenever the queue says True; end at False."""
        while self._requests.get():
            try:
                self._reload()
            except TidelogError as error:
                _LOGGER.error(  # noqa: TRY400 - the error says what is wrong
                    "the configuration stays as it was: %s", error, extra=event("config_refused", error=error.message)
                )
            except Exception:
                _LOGGER.exception("the configuration stays as it was", extra=event("config_refused"))

    def _reload(self) -> None:
        loaded = self._load()
        self._daemon.reconfigure(loaded.config, loaded.sources)
        configure_logging(loaded.log_format, loaded.log_level or "info")
        changes = loaded.changes_since(self._settings)
        more = f"; {len(changes) - _SHOWN_CHANGES} more" if len(changes) > _SHOWN_CHANGES else ""
        text = "; ".join(changes[:_SHOWN_CHANGES]) + more or "nothing is different"
        facts = event("config_applied", changes=changes[:_SHOWN_CHANGES])
        _LOGGER.info("the configuration was read again, and holds after the current step: %s", text, extra=facts)
        if loaded.listen != self._settings.listen:
            text = "the page stays where it is until the daemon is restarted"
            _LOGGER.warning(text, extra=event("restart_needed"))
        # The page stays, so that is what a later file is compared with.
        self._settings = replace(loaded, listen=self._settings.listen)
